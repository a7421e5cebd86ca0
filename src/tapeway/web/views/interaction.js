// One interaction: request and answer, the answer in time, and what can be done with it.

import { checked, get, path, send } from "../shell/api.js";
import { copyButton, h, tabs } from "../shell/dom.js";
import { duration, tokens } from "../shell/format.js";
import { address, withQuery } from "../shell/router.js";
import { callView } from "../parts/call.js";
import { attempt, confirm, modal, notify } from "../parts/dialog.js";
import { bytesOf } from "../parts/hex.js";
import { jsonTree } from "../parts/json-tree.js";
import { SNIPPETS } from "../parts/snippets.js";
import { askAgain } from "./ask-again.js";
import { edit } from "./edit.js";

// {element, title} of an interaction, as Split opens it. `changed()` is called once it, or another
// beside it, is stored or removed.
export async function openInteraction(name, index, signal, changed) {
  const view = await get(path`cassettes/${name}/interactions/${index}/view`, {}, signal);
  return { element: new InteractionDetails(name, view, changed).element, title: `#${view.index} ${name}` };
}

class InteractionDetails {
  constructor(name, view, changed) {
    Object.assign(this, { name, view, changed });
    this.index = view.index;
    this.where = path`cassettes/${name}/interactions/${view.index}`;
    this.element = h("div", {}, this.heading(), this.content());
  }

  heading() {
    const { view } = this;
    return h(
      "div.heading",
      {},
      h("p.crumbs", {}, h("a", { href: "#/cassettes" }, "Cassettes"), " / ", h("a", { href: address("cassettes", this.name) }, this.name), ` / #${this.index}`, view.messages?.length > 0 && [" · ", h("a", { href: withQuery(address("conversation", this.name), { interaction: this.index }) }, "its turn in the conversation")]),
      h("h1.mono.long", {}, view.request !== null ? `${view.method} ${pathOf(view.url)}` : view.summary),
      h(
        "div.side",
        {},
        view.kind === "http" && h("button", { type: "button", on: { click: () => this.copyAs() } }, "Copy as…"),
        view.kind === "http" && h("button.changes", { type: "button", on: { click: (event) => askAgain(event.currentTarget, this.name, this.index, () => this.reload(this.index)) } }, "Ask again live…"),
        h("button.changes", { type: "button", on: { click: (event) => edit(event.currentTarget, this.where, () => this.reload(this.index)) } }, "Edit…"),
        h("button.changes", { type: "button", on: { click: (event) => this.duplicate(event.currentTarget) } }, "Duplicate"),
        h("button.danger.changes", { type: "button", on: { click: (event) => this.remove(event.currentTarget) } }, "Delete…"),
      ),
      h("p.crumbs", {}, this.facts()),
    );
  }

  facts() {
    const { route, provider, endpoint, model, latency_ms: latency, usage, tags } = this.view;
    const parts = [route && `route ${route}`, [provider, endpoint].filter(Boolean).join(" "), model, latency > 0 && duration(latency), usage?.total_tokens !== undefined && tokens(usage.total_tokens)];
    return [parts.filter(Boolean).join(" · "), (tags ?? []).map((each) => [" ", h("span.tag", {}, each)])];
  }

  content() {
    const { view } = this;
    if (view.request === null) return h("section.panel", {}, h("h2", {}, `A recording of kind ${view.kind}`), jsonTree(view.document, { label: "Interaction" }));
    return callView(view, { name: `${this.name.replaceAll("/", "-")}-${this.index}`, whole: (body, side) => this.whole(body, side) });
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
    await this.changed();
    location.hash = address("cassettes", this.name);
  }

  async reload(index) {
    await this.changed();
    const hash = address("cassettes", this.name, index);
    // The same address again shows what is stored now.
    if (location.hash === hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = hash;
  }
}

// Another tool's cassette may hold what is no URL.
function pathOf(url) {
  if (!URL.canParse(url)) return url;
  const { pathname, search } = new URL(url);
  return pathname + search;
}
