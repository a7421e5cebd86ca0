// The recorded calls of a cassette as one history: what each turn added, cost, and reused.

import { get, path } from "../shell/api.js";
import { emptyState, fill, h, s, setText } from "../shell/dom.js";
import { clock, count, counted, duration, full, money } from "../shell/format.js";
import { address } from "../shell/router.js";
import { attempt } from "../parts/dialog.js";
import { messageBox } from "../parts/messages.js";
import { VirtualList } from "../parts/virtual-list.js";

const PAGE = 50;
const MOST_HITS = 200;
const MOST_BARS = 500;
const COLUMNS = ["Turn", "Time", "Took", "Tokens", "Cost", "Tools"];

export async function open({ parts: [name], query, signal }) {
  const conversation = new ConversationView(name, signal);
  await conversation.load(query.interaction);
  document.title = `Conversation of ${name} · tapeway`;
  return conversation.element;
}

class ConversationView {
  constructor(name, signal) {
    this.name = name;
    this.signal = signal;
    this.last = null; // the turn after which there are more
    this.turns = h("div.turns");
    this.sums = h("div");
    this.more = h("button", { type: "button", hidden: true, on: { click: () => attempt(this.more, () => this.loadTurns()) } }, "Show more turns");
    this.text = h("input", { type: "search", id: "text", placeholder: "Words of any message" });
    this.found = h("span.muted.small", { role: "status" });
    this.hits = h("div");
    this.index = new VirtualList({ label: "Turns", key: (at) => at, row: (at) => indexRow(this.all[at], this.slowest), open: (at) => this.go(at) });
    const head = h("div.row.row-head", { "aria-hidden": "true" }, COLUMNS.map((each) => h("span", { class: each === "Turn" || each === "Tools" ? "" : "number" }, each)));
    this.body = h("div.conversation", {}, h("section.panel", {}, h("h2", {}, "Where the time went"), (this.bar = h("div"))), h("div.filters", {}, h("label.field.grow", { for: "text" }, "Search", this.text), this.found), this.hits, h("div.list.turn-index", {}, head, this.index.element));
    let typing;
    this.text.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.search().catch((error) => signal.aborted || setText(this.found, error.message)), 200);
    });
    this.element = h(
      "div",
      {},
      h("div.heading", {}, h("p.crumbs", {}, h("a", { href: "#/cassettes" }, "Cassettes"), " / ", h("a", { href: address("cassettes", name) }, name)), h("h1", {}, "Conversation")),
      this.sums,
      this.body,
      this.turns,
      this.more,
    );
  }

  async load(interaction) {
    const page = await get(path`cassettes/${this.name}/turns`, { index: true }, this.signal);
    this.all = page.turns;
    if (this.all.length === 0) {
      this.body.remove();
      fill(this.turns, emptyState("No call of a language model is recorded here", "A conversation is made of calls to providers such as OpenAI, Anthropic or Gemini.", leftOut(page.left_out)));
      return;
    }
    this.many = page.sums.conversations > 1;
    this.most = this.all.reduce((most, each) => Math.max(most, each.prompt_tokens ?? 0), 1);
    const took = this.all.map((each) => each.latency_ms ?? 0).sort((a, b) => a - b);
    this.slowest = 2 * took[Math.floor(took.length / 2)]; // slow is twice the median
    fill(this.sums, this.summary(page));
    fill(this.bar, timeBar(this.all, this.slowest, (at) => this.go(at)));
    this.index.resize(this.all.length);
    const at = this.all.findIndex((each) => String(each.interaction) === interaction);
    await this.showFrom(Math.max(0, at));
    if (at >= 0) this.index.selected = at;
  }

  // Show the turn at a place of the index, and those behind it.
  async go(at) {
    this.index.select(at);
    if (document.getElementById(`turn-${at}`) === null) await this.showFrom(at);
    document.getElementById(`turn-${at}`)?.scrollIntoView({ block: "start" });
  }

  async showFrom(at) {
    fill(this.turns);
    this.conversation = undefined;
    this.last = at === 0 ? null : this.all[at - 1].number;
    await this.loadTurns();
    if (at > 0) this.turns.prepend(h("button", { type: "button", on: { click: () => this.showFrom(Math.max(0, at - PAGE)) } }, `Show turns before ${at + 1}`));
  }

  async loadTurns() {
    const page = await get(path`cassettes/${this.name}/turns`, { after: this.last, limit: PAGE }, this.signal);
    const messages = await this.read(page.turns.map((each) => each.interaction));
    for (const turn of page.turns) {
      if (turn.conversation !== this.conversation) {
        this.conversation = turn.conversation;
        if (this.many) this.turns.append(h("h2.chapter", {}, `Conversation ${turn.conversation + 1}`));
      }
      this.turns.append(this.turn(turn, messages.get(turn.interaction)));
    }
    this.last = page.next;
    this.more.hidden = page.next === null;
  }

  // The messages of these interactions, by interaction. A turn without is shown by its start.
  async read(interactions) {
    const range = { first: Math.min(...interactions), last: Math.max(...interactions), limit: 1000 };
    const page = await get(path`cassettes/${this.name}/messages`, range, this.signal);
    return Map.groupBy(page.messages, (each) => each.interaction);
  }

  // Find a text in all messages, whether they are on the screen or not.
  async search() {
    const text = this.text.value.trim();
    if (text === "") return fill(this.hits), setText(this.found, "");
    const page = await get(path`cassettes/${this.name}/messages`, { text, limit: MOST_HITS }, this.signal);
    if (text !== this.text.value.trim()) return;
    const places = new Map(this.all.map((each, at) => [each.interaction, at]));
    setText(this.found, `${count(page.found)} found${page.found > MOST_HITS ? `, the first ${MOST_HITS} are shown` : ""}`);
    fill(this.hits, page.messages.length > 0 && h("ol.hits.panel", {}, page.messages.map((each) => this.hit(each, text.toLowerCase(), places.get(each.interaction)))));
  }

  hit(each, words, at) {
    const text = wordsOf(each);
    const start = Math.max(0, text.toLowerCase().indexOf(words) - 40);
    return h("li", {}, at !== undefined && h("button.quiet", { type: "button", on: { click: () => this.go(at) } }, `Turn ${at + 1}`), h("span.muted", {}, ` ${each.role} `), text.slice(start, start + 120));
  }

  summary({ sums, largest_results: largest, left_out: left }) {
    const unpriced = sums.unpriced.length > 0 ? `without ${sums.unpriced.join(", ")}, which has no listed price` : "at list prices";
    const facts = [
      ["Turns", count(sums.turns)],
      ["Tokens in", count(sums.prompt_tokens)],
      ["of them cached", count(sums.cached_tokens)],
      ["Tokens out", count(sums.completion_tokens)],
      ["Cost", money(sums.usd), unpriced],
    ];
    return h(
      "section.panel.sums",
      {},
      h("dl.numbers", {}, facts.map(([term, value, says]) => h("div", { title: says }, h("dt", {}, term), h("dd", {}, value)))),
      largest.length > 0 && h("details", {}, h("summary", {}, "Largest tool results"), h("ol.largest", {}, largest.map((each) => h("li", {}, h("a", { href: address("cassettes", this.name, each.interaction) }, `#${each.interaction}`), " ", h("code", {}, each.name), ` ${counted(each.characters, "character")} `, h("span.muted.mono", {}, each.head.slice(0, 80)))))),
      leftOut(left),
    );
  }

  turn(turn, messages) {
    return h(
      "section.turn",
      { id: `turn-${turn.number}`, "aria-label": `Turn ${turn.number + 1}` },
      h(
        "div.turn-head",
        {},
        h("h2.turn-title", {}, `Turn ${turn.number + 1}`),
        h("a", { href: address("cassettes", this.name, turn.interaction) }, `#${turn.interaction}`),
        h("span.muted.small", {}, [turn.model, turn.latency_ms !== null && duration(turn.latency_ms), turn.usd !== null && money(turn.usd)].filter(Boolean).join(" · ")),
        this.tokens(turn),
      ),
      reuse(turn.prefix),
      messages ? messages.map(message) : turn.new.map(summaryOf),
    );
  }

  // Tokens in as a bar, its cached part lighter.
  tokens({ prompt_tokens: prompt, completion_tokens: completion, cached_tokens: cached }) {
    if (prompt === null) return null;
    const bar = h("span.token-bar", { "aria-hidden": "true" }, h("span.token-cached"), h("span.token-new"));
    bar.children[0].style.width = `${((cached ?? 0) / this.most) * 100}%`;
    bar.children[1].style.width = `${((prompt - (cached ?? 0)) / this.most) * 100}%`;
    return h("span.tokens.small", {}, bar, `${count(prompt)} in${cached ? ` (${count(cached)} cached)` : ""}, ${count(completion)} out`);
  }
}

function indexRow(turn, slowest) {
  const slow = slowest > 0 && turn.latency_ms >= slowest;
  return h(
    "div.row",
    {},
    h("span", {}, `${turn.number + 1}`),
    h("span.number.muted", { title: full(turn.at) }, turn.at === null ? "–" : clock(turn.at)),
    h("span.number", { data: { slow: slow ? "true" : undefined } }, duration(turn.latency_ms)),
    h("span.number", {}, count((turn.prompt_tokens ?? 0) + (turn.completion_tokens ?? 0))),
    h("span.number", {}, money(turn.usd)),
    h("span.mono.small", { title: turn.tools.join(", ") }, turn.tools.join(", ")),
  );
}

// Turns side by side, as wide as they took: the slow ones are seen at once. Of very many, several
// share a bar, which leads to the slowest of them.
function timeBar(turns, slowest, go) {
  const took = (at) => turns[at].latency_ms ?? 0;
  const total = turns.reduce((sum, _, at) => sum + took(at), 0);
  if (total === 0) return h("p.muted", {}, "No durations are recorded.");
  const slowestOf = (start, end) => {
    let found = start;
    for (let at = start + 1; at < end; at += 1) if (took(at) > took(found)) found = at;
    return found;
  };
  const together = Math.ceil(turns.length / MOST_BARS);
  const bars = [];
  let x = 0;
  for (let start = 0; start < turns.length; start += together) {
    const end = Math.min(start + together, turns.length);
    const at = slowestOf(start, end);
    let width = 0;
    for (let each = start; each < end; each += 1) width += (took(each) / total) * 1000;
    const kind = took(at) >= slowest && slowest > 0 ? "slow" : "quick";
    bars.push(s("rect", { x, y: 0, width: Math.max(width - Math.min(1, width / 4), 0.05), height: 28, class: kind, on: { click: () => go(at) } }, s("title", {}, `Turn ${at + 1}: ${duration(took(at))}`)));
    x += width;
  }
  const slow = slowestOf(0, turns.length);
  return [s("svg.time-bar", { viewBox: "0 0 1000 28", preserveAspectRatio: "none", role: "img", "aria-label": `${counted(turns.length, "turn")} in ${duration(total)}` }, bars), h("p.small.muted", {}, `${duration(total)} in all. The slowest is `, h("button.quiet.inline", { type: "button", on: { click: () => go(slow) } }, `turn ${slow + 1}`), ` with ${duration(took(slow))}.`)];
}

function wordsOf(each) {
  return [each.content, each.thinking, ...(each.tool_calls ?? []).map((call) => `${call.name} ${JSON.stringify(call.arguments)}`)].filter(Boolean).join(" ");
}

function reuse({ kept, of, breaks_at: at }) {
  if (of === 0) return null;
  if (at === null) return h("p.small.muted", {}, `Continues all ${counted(of, "message")} of the turn before.`);
  return h("p.small", {}, h("span.tag", { data: { kind: "warn" } }, `prefix breaks at ${at}`), ` ${kept === 0 ? "Nothing" : `Only ${count(kept)}`} of the ${counted(of, "message")} before can come from the provider's cache.`);
}

// A message as the list of messages has it, as one of a call.
function message(each) {
  const result = each.role === "tool" || each.tool_call_id !== undefined;
  const parts = [
    each.thinking && { kind: "thinking", text: each.thinking },
    each.content && { kind: result ? "result" : "text", text: each.content, name: each.name ?? "", id: each.tool_call_id },
    ...(each.tool_calls ?? []).map((call) => ({ kind: "call", text: "", name: call.name, value: call.arguments })),
    ...(each.attachments ?? []).map((value) => ({ kind: "attachment", text: "", value })),
  ];
  return messageBox({ role: each.role, parts: parts.filter(Boolean), notes: (each.notes ?? []).map(String) });
}

function summaryOf({ role, kind, name, characters, head }) {
  return h("article.message-box", { data: { role } }, h("p.role", {}, kind === "text" ? role : `${kind} ${name}`), h("p.prose", {}, head), characters > head.length && h("p.small.muted", {}, `${counted(characters, "character")} in all`));
}

function leftOut(list) {
  if (!list || list.length === 0) return null;
  return h("details", {}, h("summary", {}, `${counted(list.length, "interaction")} left out`), h("ul.small", {}, list.slice(0, 100).map((each) => h("li", {}, `#${each.interaction}: ${each.reason}`))));
}
