// The recorded calls of a cassette as one history: what each turn added, cost, and reused.

import { get, path } from "../shell/api.js";
import { emptyState, fill, h } from "../shell/dom.js";
import { count, counted, money, size } from "../shell/format.js";
import { address } from "../shell/router.js";
import { attempt } from "../parts/dialog.js";
import { jsonTree } from "../parts/json-tree.js";

const PAGE = 50;
const LONG = 1500;

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

function message(each) {
  const calls = each.tool_calls ?? [];
  const result = each.role === "tool" || each.tool_call_id !== undefined;
  return h(
    "article.message-box",
    { data: { role: each.role } },
    h("p.role", {}, result ? `tool result${each.name ? ` of ${each.name}` : ""}` : each.role),
    each.thinking && h("details", {}, h("summary", {}, "Thinking"), prose(each.thinking)),
    each.content && (result || each.content.length > LONG ? folded(each.content, result) : prose(each.content)),
    calls.map((call) => h("details.tool", {}, h("summary", {}, "calls ", h("code", {}, call.name), " ", h("span.muted.mono", {}, JSON.stringify(call.arguments).slice(0, 90))), structured(call.arguments, "Arguments"))),
    (each.attachments ?? []).map((one) => h("p.small.muted", {}, typeof one === "string" ? one : JSON.stringify(one))),
    (each.notes ?? []).map((one) => h("p.small.muted", {}, String(one))),
  );
}

function folded(text, result) {
  const details = h("details.tool", {}, h("summary", {}, h("span.mono", {}, text.slice(0, 100)), h("span.muted.small", {}, ` ${size(new Blob([text]).size)}`)));
  details.addEventListener("toggle", () => details.childElementCount === 1 && details.append(result ? structured(text, "Result") : prose(text)), { once: true });
  return details;
}

function structured(value, label) {
  if (typeof value !== "string") return jsonTree(value, { label });
  try {
    const parsed = JSON.parse(value);
    if (parsed !== null && typeof parsed === "object") return jsonTree(parsed, { label });
  } catch {
    // It is a text.
  }
  return prose(value);
}

function prose(text) {
  return h("p.prose", {}, text);
}

function summaryOf({ role, kind, name, characters, head }) {
  return h("article.message-box", { data: { role } }, h("p.role", {}, kind === "text" ? role : `${kind} ${name}`), prose(head), characters > head.length && h("p.small.muted", {}, `${counted(characters, "character")} in all`));
}

function leftOut(list) {
  if (!list || list.length === 0) return null;
  return h("details", {}, h("summary", {}, `${counted(list.length, "interaction")} left out`), h("ul.small", {}, list.slice(0, 100).map((each) => h("li", {}, `#${each.interaction}: ${each.reason}`))));
}
