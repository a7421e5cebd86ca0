// A run as a tree: the run, its turns, and the tools that they call, with bars for time or cost.

import { h } from "../shell/dom.js";
import { clock, count, counted, duration, full, head, money } from "../shell/format.js";
import { VirtualList } from "./virtual-list.js";

export const ORDERS = { "": "as it ran", slowest: "slowest first", dearest: "dearest first" };

const LEGENDS = {
  time: [
    ["model", "the model's answer"],
    ["slow", "twice the median or more"],
    ["tool", "a tool, about"],
  ],
  usd: [
    ["input", "input"],
    ["output", "output"],
    ["tool", "of the next input, a tool's result, about"],
  ],
};
LEGENDS.tokens = LEGENDS.usd;

// `turns` are all of a run, `sums` theirs. `open(turn, call)` is called with places: of a turn, and
// of a call in it or undefined.
export class RunTree {
  constructor({ name, turns, sums, order, open }) {
    Object.assign(this, { name, turns, sums, openAt: open });
    const took = turns.map((each) => each.latency_ms ?? 0).sort((a, b) => a - b);
    this.slow = 2 * took[Math.floor(took.length / 2)] || Infinity;
    this.many = sums.conversations > 1 && sums.conversations < sums.turns;
    this.priced = sums.usd !== null;
    this.list = new VirtualList({ label: "Run, turns and tool calls", key: (at) => this.rows[at].key, row: (at) => this.row(this.rows[at]), open: (at) => this.open(at) });
    this.legend = h("div.legend.small.muted");
    this.buttons = Object.entries(ORDERS).map(([value, label]) => h("button", { type: "button", data: { order: value }, on: { click: () => this.sort(value) } }, label));
    const titles = ["Words", "", "Time", "Tokens", "Cost"];
    const columns = h("div.row.row-head", { "aria-hidden": "true" }, titles.map((each, at) => h("span", { class: at > 1 ? "number" : "" }, each)));
    this.element = h("section.run-tree", { "aria-label": "Run" }, this.legend, h("div.list.tree-list", {}, columns, this.list.element));
    this.control = h("div.modes", { role: "group", "aria-label": "Order" }, this.buttons);
    this.sort(order);
  }

  sort(order) {
    this.order = order in ORDERS ? order : "";
    for (const each of this.buttons) each.setAttribute("aria-pressed", String(each.dataset.order === this.order));
    this.measure = this.order !== "dearest" ? "time" : this.priced ? "usd" : "tokens";
    this.legend.replaceChildren(...LEGENDS[this.measure].map(([kind, says]) => h("span.key", {}, h("span.swatch", { data: { kind } }), says)));
    this.rows = this.ordered();
    this.most = this.rows.reduce((most, each) => Math.max(most, each.call ? sizeOf(each.call, this.measure) : each.turn ? sizeOf(each.turn, this.measure) : 0), 0);
    this.list.renew(this.rows.length);
    this.onSort?.(this.order);
  }

  ordered() {
    const by = (one, two) => sizeOf(two, this.measure) - sizeOf(one, this.measure);
    const places = this.turns.map((turn, at) => ({ turn, at }));
    if (this.order !== "") places.sort((one, two) => by(one.turn, two.turn));
    const rows = [{ key: "run" }];
    let conversation;
    for (const { turn, at } of places) {
      if (this.many && this.order === "" && turn.conversation !== conversation) rows.push({ key: `conversation ${(conversation = turn.conversation)}`, conversation, at });
      rows.push({ key: `${this.order} turn ${at}`, turn, at });
      const calls = turn.calls.map((call, number) => ({ key: `${this.order} call ${at} ${number}`, call, at, number }));
      if (this.order !== "") calls.sort((one, two) => by(one.call, two.call));
      rows.push(...calls);
    }
    return rows;
  }

  open(row) {
    this.list.select(row);
    const { at = 0, number, key } = this.rows[row];
    this.openAt(key === "run" ? 0 : at, number);
  }

  // Select the row of a turn, without opening it.
  select(at) {
    this.list.select(this.rows.findIndex((each) => each.turn && each.at === at));
  }

  row(each) {
    if (each.call) return callRow(each.call, this);
    if (each.turn) return turnRow(each.turn, each.at, this);
    if (each.conversation !== undefined) return cells(h("span.level", { data: { level: 1 } }, h("strong", {}, `Conversation ${each.conversation + 1}`)), null, "", "", "");
    const { sums } = this;
    return cells(h("span.level", {}, h("strong", {}, this.name), h("span.muted", {}, ` ${counted(sums.turns, "turn")}`)), null, duration(sums.latency_ms), count(sums.total_tokens), money(sums.usd));
  }

  isSlow(turn) {
    return (turn.latency_ms ?? 0) >= this.slow;
  }
}

// Who was slowest and dearest, as buttons that lead there; nothing where nothing is known.
export function extremes(turns, sums, go) {
  const dear = sums.usd !== null ? "usd" : "tokens";
  const most = (measure) => turns.reduce((found, each, at) => (sizeOf(each, measure) > sizeOf(turns[found], measure) ? at : found), 0);
  const said = [
    ["slowest", most("time"), "time", (turn) => duration(turn.latency_ms)],
    ["dearest", most(dear), dear, (turn) => (dear === "usd" ? money(turn.usd) : counted(tokensOf(turn), "token"))],
  ].filter(([, at, measure]) => sizeOf(turns[at], measure) > 0);
  return said.map(([word, at, , says]) => [h("span", {}, `The ${word} is `, h("button.quiet.inline", { type: "button", on: { click: () => go(at) } }, `turn ${at + 1}`), ` with ${says(turns[at])}. `)]);
}

function sizeOf(each, measure) {
  if (measure === "time") return each.latency_ms ?? each.ms ?? 0;
  if (measure === "usd") return each.usd ?? 0;
  return each.calls ? tokensOf(each) : (each.tokens ?? 0);
}

function tokensOf(turn) {
  return (turn.prompt_tokens ?? 0) + (turn.completion_tokens ?? 0);
}

function turnRow(turn, at, tree) {
  const words = turn.answered || (turn.calls.length > 0 ? `calls ${turn.calls.map((each) => each.name).join(", ")}` : turn.asked);
  const slow = tree.isSlow(turn);
  return cells(
    h("span.level", { data: { level: 1 }, title: [turn.asked, turn.answered].filter(Boolean).join("\n→ ") }, h("strong", {}, `${at + 1}`), turn.error && h("strong.failed", {}, " failed"), ` ${turn.error || words}`),
    bar(shares(turn, slow, tree.measure), tree.most),
    h("span", { data: { slow: slow ? "true" : undefined }, title: turn.at === null ? null : `answered ${clock(turn.at)}, ${full(turn.at)}` }, duration(turn.latency_ms)),
    tokensOf(turn) > 0 ? count(tokensOf(turn)) : "–",
    money(turn.usd),
  );
}

function shares(turn, slow, measure) {
  if (measure === "time") return [[slow ? "slow" : "model", turn.latency_ms ?? 0]];
  if (measure === "tokens") return [["input", turn.prompt_tokens ?? 0], ["output", turn.completion_tokens ?? 0]];
  return [["input", turn.prompt_usd ?? 0], ["output", (turn.usd ?? 0) - (turn.prompt_usd ?? 0)]];
}

function callRow(call, tree) {
  const result = call.result === null ? "no result is recorded" : call.result;
  const about = (value) => (value === "–" ? value : `≈ ${value}`);
  return cells(
    h("span.level", { data: { level: 2, failed: call.failed ? "true" : undefined }, title: `${call.call}\n→ ${result}` }, call.failed && h("strong.failed", {}, "failed "), h("code", {}, call.call), ` → ${head(result, 100)}`),
    sizeOf(call, tree.measure) > 0 && bar([["tool", sizeOf(call, tree.measure)]], tree.most),
    about(call.ms === null ? "–" : `${Math.round(call.ms / 1000)} s`),
    about(count(call.tokens)),
    about(money(call.usd)),
  );
}

function cells(words, drawn, time, tokens, cost) {
  const number = (value) => h("span.number", {}, value);
  return h("div.row", {}, words, drawn || h("span"), number(time), number(tokens), number(cost));
}

function bar(parts, most) {
  const element = h("span.bar-track", { "aria-hidden": "true" }, parts.map(([kind]) => h("span.swatch", { data: { kind } })));
  parts.forEach(([, size], at) => (element.children[at].style.width = `${most > 0 ? (size / most) * 100 : 0}%`));
  return element;
}
