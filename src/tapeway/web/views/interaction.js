// One interaction: request and answer, the answer in time, and what can be done with it.

import { ApiError, checked, get, path, send } from "../shell/api.js";
import { copyButton, h, tabs } from "../shell/dom.js";
import { count, duration } from "../shell/format.js";
import { address, withQuery } from "../shell/router.js";
import { bodyView } from "../parts/body.js";
import { attempt, confirm, modal, notify } from "../parts/dialog.js";
import { bytesOf } from "../parts/hex.js";
import { jsonTree } from "../parts/json-tree.js";
import { SNIPPETS } from "../parts/snippets.js";
import { timelineView } from "../parts/timeline.js";
import { askAgain } from "./ask-again.js";
import { edit } from "./edit.js";

const VERDICTS = {
  marked: ["complete, with its end mark", "good"],
  complete: ["complete", "good"],
  unmarked: ["ended without its end mark", "warn"],
  error: ["an error inside a success", "warn"],
  truncated: ["truncated", "warn"],
};

export async function open({ parts: [name, index], signal }) {
  const [view, next] = await Promise.all([get(path`cassettes/${name}/interactions/${index}/view`, {}, signal), indexAfter(name, index, signal)]);
  document.title = `#${view.index} ${name} · tapeway`;
  return new InteractionDetails(name, view, next).element;
}

// The index of the interaction after this one; null where there is none, or, in a report, none is known.
async function indexAfter(name, index, signal) {
  try {
    const { titles } = await get(path`cassettes/${name}/titles`, { after: index, limit: 1 }, signal);
    return titles[0]?.index ?? null;
  } catch (error) {
    if (error instanceof ApiError) return null;
    throw error;
  }
}

class InteractionDetails {
  constructor(name, view, next) {
    this.name = name;
    this.view = view;
    this.next = next;
    this.index = view.index;
    this.where = path`cassettes/${name}/interactions/${view.index}`;
    this.element = h("div", {}, this.heading(), this.content());
  }

  heading() {
    const { view } = this;
    const at = (index, text) => h("a", { href: address("cassettes", this.name, index) }, text);
    return h(
      "div.heading",
      {},
      h("p.crumbs", {}, h("a", { href: "#/cassettes" }, "Cassettes"), " / ", h("a", { href: address("cassettes", this.name) }, this.name), ` / #${this.index}`, this.index > 0 && [" · ", at(this.index - 1, "previous")], this.next !== null && [" · ", at(this.next, "next")]),
      h("h1.mono.long", {}, view.kind === "http" ? `${view.method} ${pathOf(view.url)}` : view.summary),
      h(
        "div.side",
        {},
        view.kind === "http" && h("button", { type: "button", on: { click: () => this.copyAs() } }, "Copy as…"),
        view.kind === "http" && h("button.changes", { type: "button", on: { click: (event) => askAgain(event.currentTarget, this.name, this.index) } }, "Ask again live…"),
        h("button.changes", { type: "button", on: { click: (event) => edit(event.currentTarget, this.where, () => this.reload(this.index)) } }, "Edit…"),
        h("button.changes", { type: "button", on: { click: (event) => this.duplicate(event.currentTarget) } }, "Duplicate"),
        h("button.danger.changes", { type: "button", on: { click: (event) => this.remove(event.currentTarget) } }, "Delete…"),
      ),
      h("p.crumbs", {}, this.facts()),
    );
  }

  facts() {
    const { route, provider, endpoint, model, latency_ms: latency, usage, tags } = this.view;
    const parts = [route && `route ${route}`, [provider, endpoint].filter(Boolean).join(" "), model, latency !== null && duration(latency), usage?.total_tokens !== undefined && `${count(usage.total_tokens)} tokens`];
    return [parts.filter(Boolean).join(" · "), (tags ?? []).map((each) => [" ", h("span.tag", {}, each)])];
  }

  content() {
    const { view } = this;
    if (view.kind !== "http") return h("section.panel", {}, h("h2", {}, `A recording of kind ${view.kind}`), jsonTree(view.document, { label: "Interaction" }));
    const { timeline } = view;
    const inTime = timeline?.events.length > 1;
    const answers = (view.answers ?? []).filter((each) => (each.text && !inTime) || each.thinking || each.error || each.tool_calls.length > 0);
    return [
      answers.length > 0 && h("section.panel", {}, h("h2", {}, "What it adds up to"), answers.map((each) => answer(each, inTime))),
      inTime && h("section.panel", {}, h("h2", {}, "In time"), timelineView(timeline, view.answers ?? [])),
      h(
        "div.sides",
        {},
        h("section.panel", {}, h("h2", {}, "Request"), h("p.mono.address", {}, `${view.method} ${view.url}`), this.message(view.request, "request")),
        h("section.panel", {}, h("h2", {}, "Answer"), view.failure && h("p", {}, h("span.tag", { data: { kind: "warn" } }, view.failure.kind), " ", view.failure.message), view.response && [this.status(view.response), this.message(view.response, "response")]),
      ),
    ];
  }

  status({ status, reason, verdict }) {
    const [says, kind] = VERDICTS[verdict] ?? [verdict, ""];
    return h("p", {}, h("span.status.mono", { data: { bad: status >= 400 ? "true" : undefined } }, `${status} ${reason ?? ""}`), " ", verdict && h("span.tag", { data: { kind } }, says));
  }

  message({ headers, body }, side) {
    const rows = headers.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td.mono", {}, value)));
    const name = `${this.name.replaceAll("/", "-")}-${this.index}-${side}${suffix(body.media_type)}`;
    return [
      h("details.headers", {}, h("summary", {}, `Headers (${headers.length})`), h("table", {}, h("tbody", {}, rows))),
      bodyView(body, { name, whole: () => this.whole(body, side) }),
    ];
  }

  // All bytes of a body of which the view has the start.
  async whole(body, side) {
    if (body.sha256) {
      const response = await checked("GET", path`cassettes/${this.name}/bodies/${body.sha256}`);
      return new Uint8Array(await response.arrayBuffer());
    }
    const stored = (await get(this.where))[side];
    if (stored.body_b64 !== undefined) return bytesOf(stored.body_b64);
    const text = stored.text ?? (stored.json === undefined ? undefined : JSON.stringify(stored.json));
    if (text === undefined) throw new Error("The rest of this body is not to be had here: download the cassette.");
    return new TextEncoder().encode(text);
  }

  copyAs() {
    const panes = Object.entries(SNIPPETS).map(([name, make]) => [name, () => h("div.snippet", {}, copyButton(() => make(this.view)), h("pre.text", { tabindex: "0", role: "region", "aria-label": name }, make(this.view)))]);
    const dialog = modal("Copy the request", [h("p.muted", {}, "No key is in it: set the variable that it names."), tabs(panes, { label: "Language" })], [h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")]);
    dialog.classList.add("wide");
  }

  async duplicate(button) {
    const added = await attempt(button, async () => {
      const { index, ...document } = await get(this.where);
      return send("POST", path`cassettes/${this.name}/interactions`, { interactions: [document] }, { headers: { "Idempotency-Key": crypto.randomUUID?.() ?? String(Math.random()) } });
    });
    if (added === undefined) return;
    notify(`#${this.index} is duplicated as #${added.interactions[0].index}.`);
    this.reload(added.interactions[0].index);
  }

  async remove(button) {
    const { etag } = (await attempt(button, async () => ({ etag: (await checked("GET", this.where)).headers.get("ETag") }))) ?? {};
    if (etag === undefined) return;
    const agreed = await confirm({ title: `Delete #${this.index}?`, body: [h("p", {}, `The recording is removed from ${this.name}. Equal requests then miss, or are asked live in mode auto. In a file, those behind it move up by one.`)], action: "Delete the recording", danger: true });
    if (!agreed) return;
    const removed = await attempt(button, () => send("DELETE", this.where, undefined, { headers: { "If-Match": etag } }));
    if (removed === undefined) return;
    notify(`#${this.index} is deleted.`);
    location.hash = address("cassettes", this.name);
  }

  reload(index) {
    const hash = address("cassettes", this.name, index);
    // The same address again shows what is stored now.
    if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = hash;
  }
}

function answer(found, textIsShown) {
  return h(
    "div.answer",
    {},
    found.thinking && h("details", {}, h("summary", {}, "Thinking"), h("pre.text.prose", {}, found.thinking)),
    found.text && !textIsShown && h("pre.text.prose", {}, found.text),
    found.tool_calls.map((call) => h("details.tool", { open: true }, h("summary", {}, "Tool call ", h("code", {}, call.name)), argumentsOf(call.arguments))),
    found.error && h("p", {}, h("span.tag", { data: { kind: "warn" } }, "error"), " ", found.error),
    found.stop_reason && h("p.muted.small", {}, `Stopped because of ${found.stop_reason}.`),
  );
}

export function argumentsOf(value) {
  let shown = value;
  if (typeof value === "string") {
    try {
      shown = JSON.parse(value);
    } catch {
      return h("pre.text", {}, value);
    }
  }
  return jsonTree(shown, { label: "Arguments" });
}

// Another tool's cassette may hold what is no URL.
function pathOf(url) {
  return URL.canParse(url) ? new URL(url).pathname : url;
}

function suffix(type) {
  const known = { "application/json": ".json", "text/event-stream": ".txt", "text/plain": ".txt", "image/png": ".png", "image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/wav": ".wav" };
  return known[(type ?? "").split(";")[0]] ?? "";
}
