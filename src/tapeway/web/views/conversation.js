// The recorded calls of a cassette as one history: what each turn added, cost, and reused.

import { get, path } from "../shell/api.js";
import { emptyState, fill, h, setText } from "../shell/dom.js";
import { count, counted, duration, money } from "../shell/format.js";
import { address, replaceQuery } from "../shell/router.js";
import { attempt } from "../parts/dialog.js";
import { messageBox } from "../parts/messages.js";
import { RunTree, extremes } from "../parts/run-tree.js";
import { transcriptView } from "../parts/session.js";

const PAGE = 50;
const MOST_HITS = 200;
const MOST_SESSIONS = 3;

export async function open({ parts: [name], query, signal }) {
  const conversation = new ConversationView(name, signal);
  await conversation.load(query);
  document.title = `Conversation of ${name} · tapeway`;
  return conversation.element;
}

class ConversationView {
  constructor(name, signal) {
    this.name = name;
    this.signal = signal;
    this.last = null; // the turn after which there are more
    this.views = new Map(); // interactions whose pictures are shown
    this.turns = h("div.turns");
    this.sums = h("div");
    this.spoken = h("div.spoken");
    this.more = h("button", { type: "button", hidden: true, on: { click: () => attempt(this.more, () => this.loadTurns()) } }, "Show more turns");
    this.text = h("input", { type: "search", "aria-label": "Search", placeholder: "Search all messages" });
    this.found = h("span.muted.small", { role: "status" });
    this.hits = h("div");
    this.tree = h("div");
    this.pane = h("div.turn-pane", { tabindex: "0", role: "region", "aria-label": "Turns" }, this.turns, this.more);
    this.body = h("div.conversation", {}, h("div.run-bar", {}, (this.order = h("div")), this.text, this.found), this.hits, h("div.run", {}, this.tree, this.pane));
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
      this.spoken,
      this.body,
    );
  }

  async load({ interaction, order = "" }) {
    const page = await get(path`cassettes/${this.name}/turns`, { index: true }, this.signal);
    this.all = page.turns;
    await this.showSessions(page.sessions);
    if (this.all.length > 0) this.body.after(this.spoken);
    if (this.all.length === 0) {
      this.body.remove();
      if (page.sessions.length === 0) fill(this.sums, emptyState("No call of a language model is recorded here", "A conversation is made of calls to providers such as OpenAI, Anthropic or Gemini.", leftOut(page.left_out)));
      return;
    }
    this.many = page.sums.conversations > 1;
    this.most = this.all.reduce((most, each) => Math.max(most, each.prompt_tokens ?? 0), 1);
    fill(this.sums, this.summary(page));
    this.index = new RunTree({ name: this.name, turns: this.all, sums: page.sums, order, open: (at, call) => this.go(at, call) });
    this.index.onSort = (chosen) => replaceQuery({ interaction, order: chosen });
    fill(this.tree, this.index.element);
    fill(this.order, this.index.control);
    const at = this.all.findIndex((each) => String(each.interaction) === interaction);
    await this.showFrom(Math.max(0, at));
    if (at >= 0) this.index.select(at);
  }

  // What was said in sessions, such as those of the Realtime API.
  async showSessions(indexes) {
    const shown = indexes.slice(0, MOST_SESSIONS);
    const views = await Promise.all(shown.map((index) => this.viewOf(index)));
    const link = (index) => h("a", { href: address("cassettes", this.name, index) }, `#${index}`);
    fill(
      this.spoken,
      views.map((view, at) => h("section.panel.messages", {}, h("h2", {}, "Session ", link(shown[at])), view === null ? h("p.muted", {}, "This file does not hold what was said.") : transcriptView(view.session))),
      indexes.length > shown.length && h("p.muted", {}, "Later sessions: ", indexes.slice(MOST_SESSIONS, 100).map((index) => [link(index), " "])),
    );
  }

  // An interaction with its sounds and pictures, read once; null where a report does not hold it.
  viewOf(index) {
    if (!this.views.has(index)) this.views.set(index, get(path`cassettes/${this.name}/interactions/${index}/view`, {}, this.signal).catch((error) => { if (error.status === 404) return null; throw error; }));
    return this.views.get(index);
  }

  // The data: URL of a picture that came up first in an interaction.
  async picture(index, digest) {
    const view = await this.viewOf(index);
    const parts = [...(view?.messages ?? []), ...(view?.answers ?? [])].flatMap((each) => each.parts);
    return parts.find((each) => each.value?.sha256 === digest)?.data ?? "";
  }

  // Show the turn at a place of the index, and those behind it.
  async go(at, call) {
    if (call === undefined) this.index.select(at);
    if (document.getElementById(`turn-${at}`) === null) await this.showFrom(at);
    const turn = document.getElementById(`turn-${at}`);
    const target = turn?.querySelectorAll("details[data-call]")[call] ?? turn;
    if (!target) return;
    if (target.open === false) target.open = true;
    const inPane = getComputedStyle(this.pane).overflowY === "auto";
    if (inPane) this.pane.scrollTop += target.getBoundingClientRect().top - this.pane.getBoundingClientRect().top;
    else target.scrollIntoView({ block: "start" });
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

  // The messages of these interactions, by interaction; of none where a report has no room for them.
  async read(interactions) {
    const range = { first: Math.min(...interactions), last: Math.max(...interactions), limit: 1000 };
    const page = await get(path`cassettes/${this.name}/messages`, range, this.signal).catch((error) => {
      if (error.status === 404) return { messages: [] };
      throw error;
    });
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
      ["Model's time", duration(sums.latency_ms)],
      ["Tokens in", count(sums.prompt_tokens)],
      ["of them cached", count(sums.cached_tokens)],
      ["Tokens out", count(sums.completion_tokens)],
      ["Cost", money(sums.usd), unpriced],
    ];
    return h(
      "section.panel.sums",
      {},
      h("dl.numbers", {}, facts.map(([term, value, says]) => h("div", { title: says }, h("dt", {}, term), h("dd", {}, value)))),
      h("p", {}, extremes(this.all, sums, (at) => this.go(at))),
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
      messages ? messages.map((each) => message(each, (digest) => this.picture(turn.interaction, digest))) : beginnings(turn),
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

function wordsOf(each) {
  return [each.content, each.thinking, ...(each.tool_calls ?? []).map((call) => `${call.name} ${JSON.stringify(call.arguments)}`)].filter(Boolean).join(" ");
}

function reuse({ kept, of, breaks_at: at }) {
  if (of === 0) return null;
  if (at === null) return h("p.small.muted", {}, `Continues ${of === 1 ? "the message" : `all ${count(of)} messages`} of the turn before.`);
  return h("p.small", {}, h("span.tag", { data: { kind: "warn" } }, `prefix breaks at ${at}`), ` ${kept === 0 ? "Nothing" : `Only ${count(kept)}`} of the ${counted(of, "message")} before can come from the provider's cache.`);
}

// A message as the list of messages has it, as one of a call.
function message(each, picture) {
  const result = each.role === "tool" || each.tool_call_id !== undefined;
  const parts = [
    each.thinking && { kind: "thinking", text: each.thinking },
    each.content && { kind: result ? "result" : "text", text: each.content, name: each.name ?? "", failed: each.failed === true },
    ...(each.tool_calls ?? []).map((call) => ({ kind: "call", text: "", name: call.name, value: call.arguments })),
    ...(each.attachments ?? []).map((value) => ({ kind: "attachment", text: "", value })),
  ];
  return messageBox({ role: each.role, parts: parts.filter(Boolean), notes: (each.notes ?? []).map(String) }, { picture });
}

// Of a turn whose messages a report has no room for.
function beginnings({ asked, answered }) {
  const said = [["user", asked], ["assistant", answered]].filter(([, text]) => text !== "");
  return said.map(([role, text]) => messageBox({ role, parts: [{ kind: "text", text }] }));
}

function leftOut(list) {
  if (!list || list.length === 0) return null;
  return h("details", {}, h("summary", {}, `${counted(list.length, "interaction")} left out`), h("ul.small", {}, list.slice(0, 100).map((each) => h("li", {}, `#${each.interaction}: ${each.reason}`))));
}
