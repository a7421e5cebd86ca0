// One request of the journal: what answered it, or beside what it missed, and what would help.

import { ApiError, checked, get, path, send } from "../shell/api.js";
import { IS_REPORT, OUTCOMES, append, breakable, command, copyButton, emptyState, fill, h, outcomeBadge } from "../shell/dom.js";
import { count, counted, duration, full, head, preciseClock, tokens } from "../shell/format.js";
import { address, withQuery } from "../shell/router.js";
import { hasSought, sought } from "../shell/sought.js";
import { callView, rawOf, statusOf } from "../parts/call.js";
import { attempt, confirm, notify } from "../parts/dialog.js";
import { bytesOf } from "../parts/hex.js";
import { jsonTree, keyOf } from "../parts/json-tree.js";
import { lazy, messageList, structured } from "../parts/messages.js";
import { differences as differencesOf, marked } from "../parts/text-diff.js";

const MOST_ROWS = 8;
const VERDICTS = {
  ok: { sign: "✓", says: "equal" },
  differs: { sign: "≠", says: "differs" },
  not_compared: { sign: "–", says: "not compared" },
};

// {element, title, before, after} of a request, as Split opens it.
export async function openEntry(id, signal) {
  let found;
  try {
    found = await get(path`journal/${id}`, {}, signal);
  } catch (error) {
    if (error.status !== 404) throw error;
    const element = h("div", {}, h("h1", {}, "This request is not in the journal"), emptyState("It has left the journal, or was cleared", "The journal holds the last requests since tapeway started. Send the request again, and open it from the list.", h("a", { href: "#/journal" }, "Open the journal")));
    return { element };
  }
  const { nearest, entry, previous: before, next: after } = found;
  const opened = (element) => ({ element, before, after, title: `${entry.outcome} ${entry.method} ${entry.path}` });
  const call = await orNull(get(callOf(entry), {}, signal));
  if (entry.outcome !== "miss") return opened(answered(found, call));
  const near = nearest && call?.messages.length > 0 ? await orNull(get(path`cassettes/${entry.nearest[0]?.base ?? entry.cassette}/interactions/${nearest.index}/view`, {}, signal)) : null;
  const can = IS_REPORT ? null : await orNull(get(path`journal/${id}/record`, {}, signal));
  return opened(missed(found, call, near, can));
}

// Where the request and the answer of an entry are: a report has them below their recording.
function callOf(entry) {
  if (entry.interaction === null) return path`journal/${entry.id}/call`;
  return path`cassettes/${entry.base ?? entry.cassette}/interactions/${entry.interaction}/view`;
}

async function orNull(answer) {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError && error.status !== 0) return null;
    throw error;
  }
}

// All bytes of a recorded body; of what is not recorded there is nothing more than is shown.
async function whole(entry, body, side) {
  if (entry.interaction === null) throw new Error("Of a call that is not recorded, a body above 1 MiB is not kept.");
  if (body.sha256) return new Uint8Array(await (await checked("GET", path`cassettes/${entry.base ?? entry.cassette}/bodies/${body.sha256}`)).arrayBuffer());
  const stored = (await get(path`cassettes/${entry.base ?? entry.cassette}/interactions/${entry.interaction}`))[side];
  return stored.body_b64 === undefined ? new TextEncoder().encode(stored.text ?? JSON.stringify(stored.json)) : bytesOf(stored.body_b64);
}

// Its turn, and the run it belongs to.
function ways({ entry }, call) {
  const turn = entry.interaction !== null && call?.messages?.length > 0;
  return [
    turn && [" · ", h("a", { href: withQuery(address("conversation", entry.base ?? entry.cassette), { interaction: entry.interaction }) }, "its turn in the conversation")],
    " · ",
    h("a", { href: withQuery("#/journal", entry.slot ? { slot: entry.slot, take: entry.take } : { cassette: entry.cassette }) }, entry.slot ? "its run" : `all requests to ${entry.cassette}`),
  ];
}

function heading(found, call) {
  const { entry } = found;
  return h(
    "div.heading",
    {},
    h("p.crumbs", {}, h("a", { href: "#/journal" }, "Journal"), entry.outcome === "miss" && [" · ", h("a", { href: withQuery("#/journal", { outcome: "miss" }) }, "all misses")], ways(found, call)),
    outcomeBadge(entry.outcome),
    h("h1.mono.long", {}, `${entry.method} ${entry.path}`),
    h(
      "p.crumbs",
      {},
      "cassette ",
      h("a", { href: address("cassettes", entry.cassette) }, entry.cassette),
      ` · route ${entry.route} · `,
      h("span", { title: full(entry.at) }, preciseClock(entry.at)),
      ` · ${entry.status} after ${duration(entry.duration_ms)}`,
      call?.model && ` · ${call.model}`,
      call?.usage?.total_tokens !== undefined && ` · ${tokens(call?.usage?.total_tokens)}`,
      entry.slot && ` · slot ${entry.slot}, take ${entry.take}`,
      entry.attempt > 1 && ` · attempt ${entry.attempt}`,
    ),
  );
}

function answered(found, call) {
  const { entry, recording } = found;
  const from = recording && h("p", {}, "Recording ", h("a", { href: address("cassettes", recording.cassette, recording.index) }, `#${recording.index} of ${recording.cassette}`), `: ${recording.reason}.`);
  const kept = call?.request ? callView(call, { name: entry.id, whole: (body, side) => whole(entry, body, side) }) : [];
  return h(
    "div.entry",
    {},
    heading(found, call),
    h("section.panel", {}, h("h2", {}, OUTCOMES[entry.outcome]?.says ?? entry.outcome), entry.interaction === null && call?.response && statusOf(call.response), from, entry.message && h("p.long", {}, sought(entry.message)), call === null && h("p.muted", {}, "Request and answer are not kept: newer calls took their room.")),
    kept,
  );
}

function missed(found, call, near, can) {
  const { entry, request, nearest, verdicts } = found;
  const said = call ? call.messages : [];
  return h(
    "div.entry",
    {},
    heading(found, call),
    h("p.message", {}, sought(entry.message)),
    remedies(found, can),
    verdicts.length > 0 && h("ul.verdicts", { "aria-label": "What was compared" }, verdicts.map(verdict)),
    nearest && differences(nearest),
    said.length > 0 && h("section.panel.messages", {}, h("h2", {}, "Messages"), near ? messageList(said, near.messages) : messageList(said)),
    said.length > 0 ? rawOf("Both requests as they were compared", () => sides(request, nearest), !hasSought(said.map((each) => each.parts)) && hasSought(request?.document)) : sides(request, nearest),
    call?.response && lazy(h("summary", {}, "What the client got ", h("span.status.mono", { data: { bad: "true" } }, call.response.status)), () => structured(call.response.body.text ?? "", "What the client got"), "details.raw", hasSought(call.response.body.text)),
  );
}

function verdict({ part, verdict: kind, reason }) {
  const known = VERDICTS[kind] ?? { sign: "?", says: kind };
  return h(
    "li",
    { data: { verdict: kind } },
    h("span.verdict-part", {}, h("span.sign", { "aria-hidden": "true" }, known.sign), part, h("span.hidden-label", {}, `: ${known.says}`)),
    h("span.verdict-reason", {}, breakable(reason)),
  );
}

// What makes a hit of it: record it, or a rule.
function remedies(found, can) {
  const { entry, nearest } = found;
  const panel = h("section.panel.suggestion", {}, h("h2", {}, "Record it"), h("p", {}, nearest ? "If what differs says what is asked for, record the request anew." : "Nothing like it is in the cassette. Record it:"));
  const now = h("button.primary", { type: "button" }, "Record this one now");
  now.addEventListener("click", () => record(panel, now, entry));
  const auto = h("button", { type: "button", on: { click: () => toAuto(auto, entry.cassette) } }, `Switch ${entry.cassette} to auto`);
  append(panel, [
    can?.possible && h("p.muted.small", {}, effect(can, entry.cassette)),
    can && !can.possible && h("p.muted.small", {}, `It cannot be recorded from here: ${can.reason}.`),
    h("div.buttons.changes", {}, can?.possible && now, auto),
    entry.record_command && command(entry.record_command),
  ]);
  return [suggestion(found), panel];
}

// What one click does: there is no second one.
function effect({ method, path: where, route, credential, changes }, cassette) {
  return ["Asks the service of route ", h("code", {}, route), " once for ", h("code", {}, breakable(`${method} ${where}`)), credential && [" with the key in ", h("code", {}, credential)], `, as your client did${changes ? " (which may change something there)" : ""}, and records the answer in ${cassette}.`];
}

async function record(panel, button, { id, cassette }) {
  const made = await attempt(button, () => send("POST", path`journal/${id}/record`));
  if (made === undefined) return;
  const there = made.index !== null && h("a", { href: address("cassettes", cassette, made.index) }, `#${made.index} of ${cassette}`);
  if (there) fill(panel, h("h2", {}, made.status === null ? "It was recorded meanwhile" : "✓ Recorded"), h("p", {}, made.status !== null && `The service answered ${made.status}. `, "The same request is now answered by ", there, ". Run your test again."));
  else fill(panel, h("h2", {}, "It was asked, and not recorded"), h("p", {}, `The service answered ${made.status}.`));
  append(panel, [made.note && h("p.muted", {}, made.note)]);
}

async function toAuto(button, cassette) {
  const agreed = await confirm({
    title: `Switch ${cassette} to auto?`,
    body: [h("p", {}, "What is recorded in it is replayed; anything else goes to the service and is recorded. The other cassettes keep their mode.")],
    action: "Switch to auto",
  });
  if (!agreed || (await attempt(button, () => send("PUT", "mode", { mode: "auto", cassette }))) === undefined) return;
  notify(`${cassette} is in mode auto. Run your test again.`);
}

function suggestion(found) {
  const { entry, suggestion: rule, preview, unsafe } = found;
  if (!rule) return null;
  const panel = h("section.panel.suggestion");
  if (unsafe) return fill(panel, h("h2", {}, "No rule would make it match"), h("p", {}, `The rule that was suggested is refused by now: ${unsafe}.`));
  const button = h("button.primary", { type: "button" }, "Accept");
  button.addEventListener("click", () => accept(panel, button, found));
  fill(
    panel,
    h("h2", {}, "Suggestion"),
    h("p", {}, "If this difference does not matter, add a rule to the cassette:"),
    h("div.command", {}, h("code", {}, rule), copyButton(() => rule)),
    preview && h("p", {}, after(preview, entry.cassette)),
    h("div.buttons.changes", {}, button),
  );
  return panel;
}

// What the request would match with the rule.
function after({ answers, searched, complete }, cassette) {
  const where = complete ? "" : ` (of the ${counted(searched, "recording")} that were looked at)`;
  if (answers.length === 0) return `Even then nothing would answer it${where}.`;
  const links = answers.slice(0, 5).map((index, at) => [at > 0 && ", then ", h("a", { href: address("cassettes", cassette, index) }, `#${index}`)]);
  return ["With it this request is answered by ", links, answers.length > 5 && ` and ${answers.length - 5} more`, `${where}.`];
}

async function accept(panel, button, { entry, suggestion: rule, preview }) {
  const agreed = await confirm({
    title: `Add this rule to ${entry.cassette}?`,
    body: [h("pre.rule", {}, rule), h("p", {}, "It is stored in the cassette and in force at once, for every request to it. It is seen and removed in the view of the cassette.")],
    action: "Add the rule",
  });
  if (!agreed) return;
  const accepted = await attempt(button, () => send("POST", path`journal/${entry.id}/accept`, { rule: null }));
  if (accepted === undefined) return;
  notify("The rule is in force.");
  fill(
    panel,
    h("h2", {}, "✓ Accepted"),
    h("p", {}, `The rule is stored in ${entry.cassette} and in force.`, preview?.answers.length > 0 && ` The same request is now answered by #${preview.answers[0]}.`, " Run your test again."),
    h("pre.rule", {}, JSON.stringify(accepted.rules, null, 2)),
  );
}

function differences({ index, differences: list, more }) {
  if (list.length === 0) return null;
  const rows = list.map((each) =>
    h(
      "tr",
      {},
      h("td", {}, h("button.quiet.mono", { type: "button", title: "Show it in the request", on: { click: () => reveal(each.steps) } }, each.path)),
      h("td", {}, side(each, "requested", "recorded")),
      h("td", {}, side(each, "recorded", "requested")),
    ),
  );
  const body = h("tbody", {}, rows.slice(0, MOST_ROWS));
  const rest = rows.slice(MOST_ROWS);
  const all = h("button.quiet", { type: "button", on: { click: () => (append(body, rest), all.remove()) } }, `Show ${count(rest.length)} more`);
  const title = list.length === 1 && !more ? "1 difference" : `${list.length}${more ? " of more" : ""} differences`;
  return h(
    "section.panel",
    {},
    h("h2", {}, title),
    h("div.scroll", { tabindex: "0", role: "region", "aria-label": title }, h("table.differences", {}, h("thead", {}, h("tr", {}, ["Place", "Requested", `Recorded #${index}`].map((each) => h("th", { scope: "col" }, each)))), body)),
    rest.length > 0 && all,
  );
}

// A text as it reads, with the words that differ marked; anything else as JSON.
function side(difference, name, other) {
  if (!(name in difference)) return h("span.muted", {}, "nothing there");
  const [text, beside] = [difference[name], difference[other]].map((each) => (typeof each === "string" ? each : JSON.stringify(each ?? null)));
  return h("code.plain", {}, other in difference ? marked(text, differencesOf(text, beside)) : head(text, 160));
}

function reveal(steps) {
  const raw = document.querySelector("details.raw");
  if (raw && !raw.open) {
    raw.addEventListener("toggle", () => reveal(steps), { once: true });
    raw.open = true;
    return;
  }
  const place = document.querySelector(`.side-requested [data-place="${CSS.escape(keyOf(steps))}"]`) ?? document.querySelector(`[data-place="${CSS.escape(keyOf(steps))}"]`);
  place?.scrollIntoView({ block: "center" });
  place?.classList.add("flash");
  setTimeout(() => place?.classList.remove("flash"), 1500);
}

function sides(request, nearest) {
  const marks = nearest?.differences ?? [];
  return h(
    "div.sides",
    {},
    h("section.panel.side-requested", {}, h("h2", {}, "Requested"), documentOf(request, marks.filter((each) => "requested" in each).map((each) => ({ steps: each.steps, kind: "recorded" in each ? "changed" : "added", other: each.recorded })), "The request")),
    nearest
      ? h("section.panel.side-recorded", {}, h("h2", {}, `Nearest recording, #${nearest.index}`), documentOf(nearest, marks.filter((each) => "recorded" in each).map((each) => ({ steps: each.recorded_steps ?? each.steps, kind: "requested" in each ? "changed" : "missing", other: each.requested })), "The recorded request"))
      : null,
  );
}

function documentOf(shown, marks, label) {
  if (!shown?.document) return h("p.muted", {}, shown?.note ?? "It is not kept.");
  return [shown.note && h("p.muted.small", {}, shown.note), jsonTree(shown.document, { marks, label })];
}
