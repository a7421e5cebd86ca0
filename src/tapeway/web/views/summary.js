// What a report opens with: what became of the run, and what needs attention.

import { get } from "../shell/api.js";
import { OUTCOMES, breakable, emptyState, h, outcomeBadge } from "../shell/dom.js";
import { count, counted, duration, money } from "../shell/format.js";
import { address, withQuery } from "../shell/router.js";
import { requestCell } from "../parts/row.js";

export async function open({ signal }) {
  const found = await get("summary", {}, signal);
  const sections = [causes(found), ...found.remarks.map(remark), runs(found.runs), slowest(found.slowest), gains(found.gains)];
  return h(
    "div.deck.summary",
    {},
    h("div.heading", {}, h("h1", {}, "Summary")),
    found.notes.map((each) => h("p.muted", {}, each)),
    h("div.counters", {}, Object.keys(OUTCOMES).map((each) => counter(each, found.counts[each]))),
    sections.some(Boolean) ? sections : emptyState("Nothing was asked", "No request came through tapeway in this run."),
  );
}

function counter(outcome, times) {
  return h(
    "a.counter",
    { href: withQuery("#/journal", { outcome }), title: OUTCOMES[outcome].says },
    h("span.big", {}, count(times)),
    outcomeBadge(outcome),
  );
}

function panel(title, ...children) {
  return h("section.panel", {}, h("h2", {}, title), children);
}

function causes({ causes: found, more_causes: more }) {
  if (found.length === 0) return null;
  return panel("Why requests missed", h("ul", {}, found.map(cause)), more > 0 && h("p.muted", {}, counted(more, "more cause")));
}

function cause(each) {
  const title = each.times === 1 ? "1 miss" : `${count(each.times)} misses, one cause`;
  const linked = each.entry === null ? h("strong", {}, title) : h("a", { href: `#/journal/${encodeURIComponent(each.entry)}` }, title);
  return h(
    "li",
    {},
    h("p", {}, linked, ": ", h("span.mono", {}, breakable(each.text))),
    each.rule !== null && h("p", {}, "Rule, for [rules] in tapeway.toml: ", h("code", {}, breakable(each.rule))),
    each.requests.map((one) => h("p.muted.small", {}, breakable(one))),
    each.more > 0 && h("p.muted.small", {}, `${count(each.more)} more`),
  );
}

function remark({ title, count: all, notices, items }) {
  const rest = all - items.length;
  return h(
    "section.panel",
    {},
    h("h2", {}, title),
    notices.map((each) => h("p", {}, each)),
    h("details", { open: all <= 5 }, h("summary", {}, counted(all, "item")), h("ul.mono.small", {}, items.map((each) => h("li", {}, breakable(each))), rest > 0 && h("li.muted", {}, `${count(rest)} more`))),
  );
}

// The cassettes of the run, each a click from its conversation.
function runs(found) {
  if (found.length === 0) return null;
  const says = ({ turns, latency_ms: took, usd }) => [counted(turns, "turn"), took > 0 && duration(took), usd !== null && money(usd)].filter(Boolean).join(" · ");
  return panel("Runs", h("ul", {}, found.map(({ name, sums }) => h("li", {}, h("a.mono", { href: address("conversation", name) }, breakable(name)), h("span.muted.small", {}, ` ${sums.turns > 0 ? says(sums) : "a session"}`)))));
}

function slowest(found) {
  if (found.length === 0) return null;
  return panel("Slowest calls", h("ul", {}, found.map(slow)));
}

function slow(each) {
  return h(
    "li",
    {},
    h("a.mono", { href: `#/journal/${encodeURIComponent(each.id)}` }, duration(each.took_ms)),
    " ",
    outcomeBadge(each.outcome),
    " ",
    requestCell(each, each.cassette),
  );
}

function gains(lines) {
  if (lines.length === 0) return null;
  return panel("What was saved and kept out", lines.map((each) => h("p", {}, each)));
}
