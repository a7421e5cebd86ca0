// The recorded calls of a cassette as one history: what each turn added, cost, and reused.

import { get, path } from "../shell/api.js";
import { emptyState, fill, h } from "../shell/dom.js";
import { count, counted, money } from "../shell/format.js";
import { address } from "../shell/router.js";
import { attempt } from "../parts/dialog.js";
import { messageBox } from "../parts/messages.js";

const PAGE = 50;

export async function open({ parts: [name], signal }) {
  const conversation = new ConversationView(name, signal);
  await conversation.load();
  document.title = `Conversation of ${name} · tapeway`;
  return conversation.element;
}

class ConversationView {
  constructor(name, signal) {
    this.name = name;
    this.signal = signal;
    this.messages = new Map(); // by interaction
    this.unread = null; // the number after which there are more
    this.last = null; // the turn after which there are more
    this.turns = h("div.turns");
    this.sums = h("div");
    this.more = h("button", { type: "button", hidden: true, on: { click: () => attempt(this.more, () => this.loadTurns()) } }, "Show more turns");
    this.element = h(
      "div",
      {},
      h("div.heading", {}, h("p.crumbs", {}, h("a", { href: "#/cassettes" }, "Cassettes"), " / ", h("a", { href: address("cassettes", name) }, name)), h("h1", {}, "Conversation")),
      this.sums,
      this.turns,
      this.more,
    );
  }

  async load() {
    const page = await this.turnsAfter(null);
    if (page.turns.length === 0) {
      fill(this.turns, emptyState("No call of a language model is recorded here", "A conversation is made of calls to providers such as OpenAI, Anthropic or Gemini.", leftOut(page.left_out)));
      return;
    }
    this.most = Math.max(...page.turns.map((each) => each.prompt_tokens ?? 0), 1);
    fill(this.sums, this.summary(page));
    await this.show(page);
  }

  turnsAfter(after) {
    return get(path`cassettes/${this.name}/turns`, { after, limit: PAGE }, this.signal);
  }

  async loadTurns() {
    await this.show(await this.turnsAfter(this.last));
  }

  async show(page) {
    await this.read(Math.max(...page.turns.map((each) => each.interaction)));
    for (const turn of page.turns) {
      if (turn.conversation !== this.conversation) {
        this.conversation = turn.conversation;
        if (turn.conversation > 0 || page.sums.conversations > 1) this.turns.append(h("h2.chapter", {}, `Conversation ${turn.conversation + 1}`));
      }
      this.turns.append(this.turn(turn));
    }
    this.last = page.next;
    this.more.hidden = page.next === null;
  }

  // Messages up to those of an interaction. What is not read by then is shown by its start.
  async read(interaction) {
    while (this.unread !== undefined) {
      const page = await get(path`cassettes/${this.name}/messages`, { after: this.unread, limit: 1000 }, this.signal);
      for (const each of page.messages) this.messages.set(each.interaction, [...(this.messages.get(each.interaction) ?? []), each]);
      this.unread = page.next ?? undefined;
      if (page.messages.some((each) => each.interaction > interaction)) return;
    }
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

  turn(turn) {
    const messages = this.messages.get(turn.interaction);
    return h(
      "section.turn",
      { "aria-label": `Turn ${turn.number + 1}` },
      h(
        "div.turn-head",
        {},
        h("h2.turn-title", {}, `Turn ${turn.number + 1}`),
        h("a", { href: address("cassettes", this.name, turn.interaction) }, `#${turn.interaction}`),
        h("span.muted.small", {}, [turn.model, turn.usd !== null && money(turn.usd)].filter(Boolean).join(" · ")),
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
