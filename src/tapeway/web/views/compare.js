// Two cassettes or two interactions by what they mean: what is equal, what differs, what is missing.

import { checked, get, path } from "../shell/api.js";
import { breakable, emptyState, fill, h, setText } from "../shell/dom.js";
import { serverEvents } from "../shell/events.js";
import { count, counted } from "../shell/format.js";
import { address, replaceQuery, withQuery } from "../shell/router.js";
import { attempt } from "../parts/dialog.js";
import { differences, marked } from "../parts/text-diff.js";

const STATES = {
  equal: { sign: "=", says: "equal" },
  alike: { sign: "≈", says: "equal but for ids and times" },
  different: { sign: "≠", says: "different" },
  only_first: { sign: "−", says: "only in the first" },
  only_second: { sign: "+", says: "only in the second" },
};
const MOST_ROWS = 300;

// The address has `a` and `b`, names of cassettes, each with `:INDEX` for one interaction of it.
export async function open({ query, signal }) {
  const compare = new CompareView(query, signal);
  await compare.names();
  if (query.a && query.b) await compare.run();
  return compare.element;
}

class CompareView {
  constructor({ a = "", b = "", headers = "" }, signal) {
    this.signal = signal;
    this.fields = [a, b].map((value, at) => h("input.mono", { id: `side-${at}`, list: "cassette-names", value, placeholder: "NAME or NAME:INDEX", autocomplete: "off" }));
    this.headers = h("input", { type: "checkbox", checked: headers === "true" });
    this.list = h("datalist", { id: "cassette-names" });
    this.go = h("button.primary", { type: "button", on: { click: () => attempt(this.go, () => this.run()) } }, "Compare");
    for (const field of this.fields) field.addEventListener("keydown", (event) => event.key === "Enter" && this.go.click());
    this.result = h("div.result", {}, emptyState("Choose two cassettes", "They are compared by what they mean: order of keys, ids and times count apart. For two interactions write their index behind the name: smoke:3."));
    this.element = h(
      "div",
      {},
      h("div.heading", {}, h("p.crumbs", {}, h("a", { href: "#/cassettes" }, "Cassettes")), h("h1", {}, "Compare")),
      h("div.filters", {}, this.fields.map((field, at) => h("label.field.grow", { for: field.id }, at === 0 ? "First" : "Second", field)), h("label.check", {}, this.headers, "headers too"), this.go),
      this.list,
      this.result,
    );
  }

  async names() {
    const { cassettes } = await get("cassettes", { counts: false, limit: 1000 }, this.signal);
    fill(this.list, cassettes.map((each) => h("option", { value: each.name })));
  }

  async run() {
    const [first, second] = this.fields.map((field) => sideOf(field.value));
    if (first.name === "" || second.name === "") return;
    const headers = this.headers.checked || undefined;
    replaceQuery({ a: this.fields[0].value.trim(), b: this.fields[1].value.trim(), headers });
    const whole = first.index === undefined && second.index === undefined;
    const query = { other: second.name, headers };
    const found = whole ? await this.followed(path`cassettes/${first.name}/comparison/events`, query) : await get(path`cassettes/${first.name}/comparison`, { ...query, index: first.index, other_index: second.index }, this.signal);
    this.names_ = [first.name, second.name];
    this.places = found.places;
    fill(this.result, whole && this.summary(found), this.rows(found));
  }

  // The comparison of two cassettes, and meanwhile how far it has come.
  async followed(where, query) {
    const says = h("p.empty.muted", { role: "status" }, "Reading the cassettes …");
    const bar = h("progress", { "aria-label": "Comparison" });
    fill(this.result, says, bar);
    try {
      const { body } = await checked("GET", where, { query, signal: this.signal, headers: { Accept: "text/event-stream" } });
      for await (const events of serverEvents(body)) {
        for (const each of events) {
          if (each.rows) return each;
          [bar.value, bar.max] = [each.done, Math.max(1, each.of)];
          setText(says, each.step === "read" ? `Read ${count(each.done)} of ${counted(each.of, "recording")} …` : `Compared ${count(each.done)} of ${counted(each.of, "pair")} …`);
        }
      }
      throw new Error("The comparison broke off: the log of tapeway says where.");
    } catch (error) {
      fill(this.result);
      throw error;
    }
  }

  summary(found) {
    const numbers = [
      ["equal", found.equal],
      ["alike", found.equal_but_for_ids_and_times],
      ["different", found.counts.different],
      ["only_first", found.counts.only_first],
      ["only_second", found.counts.only_second],
    ];
    return h("section.panel", {}, h("dl.numbers", {}, numbers.map(([state, value]) => h("div", { data: { state } }, h("dt", {}, `${STATES[state].sign} ${STATES[state].says}`), h("dd", {}, count(value))))));
  }

  rows(found) {
    const different = new Map(found.different.map((each) => [each.first, each]));
    const only = new Map([...found.only_first.map((each) => [`first ${each.index}`, each]), ...found.only_second.map((each) => [`second ${each.index}`, each])]);
    const groups = grouped(found.rows);
    const list = h("ol.comparison", {});
    const show = (from) => {
      for (const group of groups.slice(from, from + MOST_ROWS)) list.append(this.group(group, different, only, groups.length === 1));
      const left = groups.length - from - MOST_ROWS;
      if (left <= 0) return;
      const more = h("li", {}, h("button.quiet", { type: "button", on: { click: () => (more.remove(), show(from + MOST_ROWS)) } }, `Show ${count(left)} more`));
      list.append(more);
    };
    show(0);
    if (found.rows_left_out > 0) list.append(h("li.muted", {}, `${counted(found.rows_left_out, "row")} more are not shown.`));
    return list;
  }

  group({ state, rows }, different, only, alone) {
    const { sign, says } = STATES[state];
    const mark = h("span.state-sign", { title: says }, sign, h("span.hidden-label", {}, says));
    if (state === "equal" || state === "alike") {
      const [start, end] = [rows[0], rows.at(-1)];
      const which = rows.length === 1 ? `#${start.first}` : `#${start.first} to #${end.first}`;
      return h("li.same", { data: { state } }, mark, `${which}: ${rows.length === 1 ? "" : `${count(rows.length)} `}${says}`);
    }
    const [{ first, second }] = rows;
    if (state === "different") {
      const found = different.get(first);
      // Of very many only the first are listed with their differences.
      if (found === undefined) return h("li", { data: { state } }, mark, h("a", { href: withQuery("#/compare", { a: this.placeOf(0, first).join(":"), b: this.placeOf(1, second).join(":") }) }, `#${first} and #${second}`), h("span.muted.small", {}, ` ${says}`));
      const details = h("details", { open: alone || different.size <= 10 }, h("summary", {}, mark, `#${first} and #${second} `, brief(found.summary), h("span.muted.small", {}, ` ${counted(found.differences.length, "difference")}${found.more ? " or more" : ""}`)), h("p.small.muted", {}, "Open ", this.link(0, first), ` of ${this.names_[0]}, `, this.link(1, second), ` of ${this.names_[1]}`), places(found.differences));
      return h("li", { data: { state } }, details);
    }
    const found = only.get(first === null ? `second ${second}` : `first ${first}`);
    return h("li", { data: { state } }, mark, first === null ? this.link(1, second) : this.link(0, first), " ", brief(found?.summary ?? ""), h("span.muted.small", {}, ` ${says}`));
  }

  // A cassette with a base is compared as one run: each recording is in the cassette or in a base.
  placeOf(side, index) {
    return this.places?.[side]?.[index] ?? [this.names_[side], index];
  }

  link(side, index) {
    const [name, at] = this.placeOf(side, index);
    return h("a", { href: address("cassettes", name, at), title: name }, `#${at}`);
  }
}

// Rows of one state that follow each other are one group, where nothing is to be said of each.
function grouped(rows) {
  const groups = [];
  for (const row of rows) {
    const last = groups.at(-1);
    if (last?.state === row.state && (row.state === "equal" || row.state === "alike")) last.rows.push(row);
    else groups.push({ state: row.state, rows: [row] });
  }
  return groups;
}

// One key, and below it the two values, what differs in them marked.
function places(differences) {
  const sorted = [...differences].sort((a, b) => a.path.localeCompare(b.path, undefined, { numeric: true }));
  return h("dl.places", {}, sorted.map((each) => [h("dt.mono", {}, each.path), h("dd", { data: { mark: "missing" } }, h("span.state-sign", {}, "−"), value(each, "first", "second")), h("dd", { data: { mark: "added" } }, h("span.state-sign", {}, "+"), value(each, "second", "first"))]));
}

function value(each, name, other) {
  if (!(name in each)) return h("span.muted", {}, "nothing there");
  const [text, beside] = [plain(each[name]), other in each ? plain(each[other]) : ""];
  if (beside === "") return h("code", {}, text);
  return h("code", {}, marked(text, differences(text, beside)));
}

// A text as it reads, anything else as JSON.
function plain(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

// A summary without its index: the request, and what it said in words that may be broken.
function brief(summary) {
  const [request, ...rest] = summary.replace(/^#\d+\s+/, "").split("  ");
  return [h("span.mono", {}, breakable(request)), h("span.muted", {}, ` ${rest.join(" · ")}`)];
}

function sideOf(text) {
  const match = text.trim().match(/^(.*?)(?::(\d+))?$/);
  return { name: match[1], index: match[2] };
}
