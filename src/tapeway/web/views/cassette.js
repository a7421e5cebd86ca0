// One cassette: its interactions, however many, and what can be done with it.

import { checked, get, path, send } from "../shell/api.js";
import { emptyState, fill, h, requestCell, setText } from "../shell/dom.js";
import { count, counted, duration, size } from "../shell/format.js";
import { address, replaceQuery, withQuery } from "../shell/router.js";
import { attempt, confirm, modal, notify } from "../parts/dialog.js";
import { VirtualList } from "../parts/virtual-list.js";

const PAGE = 200;
const FORMATS = { json: "JSON", yaml: "YAML", jsonl: "JSON lines", har: "HAR" };
const COLUMNS = ["Index", "Answer", "Request", "Model", "Tokens", "Size", "Duration"];

const KINDS = {
  "": { label: "all", is: () => true },
  failed: { label: "errors and failures", is: (each) => each.failure !== null || each.status >= 400 },
  unused: { label: "unused", is: (each) => each.unused === true },
  streamed: { label: "streams", is: (each) => each.streamed },
  unmarked: { label: "without an end mark", is: (each) => each.unmarked },
};
const ORDERS = {
  "": { label: "as recorded" },
  slowest: { label: "slowest first", by: (each) => each.latency_ms ?? 0 },
  tokens: { label: "most tokens first", by: (each) => each.usage?.total_tokens ?? 0 },
  largest: { label: "largest first", by: (each) => each.response_bytes ?? 0 },
};

export async function open({ parts: [name], query, signal }) {
  const cassette = new CassetteView(name, query, signal);
  await cassette.load();
  document.title = `${name} · tapeway`;
  return cassette.element;
}

class CassetteView {
  constructor(name, query, signal) {
    this.name = name;
    this.signal = signal;
    this.titles = []; // by position; a hole is not loaded yet
    this.shown = this.titles; // what passes the filters, in their order
    this.asked = new Set();
    this.list = new VirtualList({
      label: "Interactions by index",
      key: (at) => (this.shown[at] ? `index ${this.shown[at].index}` : `position ${at}`),
      row: (at) => row(name, this.shown[at], at),
      reach: (first, last) => this.reach(first, last),
    });
    this.said = h("span.muted.small", { role: "status" });
    this.found = h("span.muted.small", { role: "status" });
    this.text = h("input", { type: "search", id: "text", value: query.text ?? "", placeholder: "Words of request or answer, path, model, tag" });
    this.kind = choice("kind", KINDS, query.kind);
    this.order = choice("order", ORDERS, query.order);
    this.listen();
    this.nothing = h("div");
    const head = h("div.row.row-head", { "aria-hidden": "true" }, COLUMNS.map((each) => h("span", { class: ["Tokens", "Size", "Duration"].includes(each) ? "number" : "" }, each)));
    this.table = h("div.list.interactions", {}, head, this.list.element);
    this.element = h(
      "div",
      {},
      h(
        "div.heading",
        {},
        h("p.crumbs", {}, h("a", { href: "#/cassettes" }, "Cassettes")),
        h("h1.mono.long", {}, name),
        this.said,
        h(
          "div.side",
          {},
          h("a", { href: address("conversation", name) }, "Conversation"),
          h("a.changes", { href: withQuery("#/compare", { a: name }) }, "Compare…"),
          h("a", { href: withQuery("#/journal", { cassette: name }) }, "Journal"),
          h("button", { type: "button", on: { click: () => this.download() } }, "Download…"),
          h("button.danger.changes", { type: "button", on: { click: (event) => this.remove(event.currentTarget) } }, "Delete…"),
        ),
      ),
      h("div.filters", {}, h("label.field.grow", { for: "text" }, "Search", this.text), h("label.field", { for: "kind" }, "Show", this.kind), h("label.field", { for: "order" }, "Order", this.order), this.found),
      this.nothing,
      this.table,
    );
  }

  listen() {
    let typing;
    this.text.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.refilter(), 200);
    });
    for (const each of [this.kind, this.order]) each.addEventListener("change", () => this.refilter());
  }

  get filtered() {
    return this.text.value.trim() !== "" || this.kind.value !== "" || this.order.value !== "";
  }

  // Search, filter and order what is listed, which is loaded as a whole for it.
  async refilter() {
    replaceQuery({ text: this.text.value.trim(), kind: this.kind.value, order: this.order.value });
    if (!this.filtered) {
      this.shown = this.titles;
      setText(this.found, "");
      this.list.renew(0);
      return this.resize();
    }
    try {
      await (this.whole ??= this.loadAll());
    } catch (error) {
      this.whole = undefined;
      if (!this.signal.aborted) setText(this.found, error.message);
      return;
    }
    const words = this.text.value.trim().toLowerCase();
    this.shown = this.titles.filter((each) => KINDS[this.kind.value].is(each) && (words === "" || textOf(each).includes(words)));
    const { by } = ORDERS[this.order.value];
    if (by) this.shown.sort((one, two) => by(two) - by(one));
    setText(this.found, `${count(this.shown.length)} found`);
    this.list.renew(this.shown.length);
  }

  async loadAll() {
    const all = [];
    let next;
    do {
      setText(this.found, `loading ${this.total === null ? "all" : count(this.total)} recordings …`);
      const page = await get(path`cassettes/${this.name}/titles`, { after: next, limit: 1000 }, this.signal);
      all.push(...page.titles);
      next = page.next;
    } while (next !== null);
    this.titles = all;
    this.next = null;
    all.forEach((_, at) => this.asked.add(Math.floor(at / PAGE)));
  }

  async load() {
    const where = path`cassettes/${this.name}/titles`;
    const first = await get(where, { limit: PAGE }, this.signal);
    this.total = first.total;
    // Where no index is beyond the number of interactions, each is at the position of its index,
    // and the list can be entered anywhere.
    this.dense = first.next === null || (this.total !== null && (await get(where, { after: this.total - 1, limit: 1 }, this.signal)).titles.length === 0);
    first.titles.forEach((each, at) => (this.titles[at] = each));
    this.next = first.next;
    this.asked.add(0);
    this.shown = this.titles;
    this.resize();
    if (this.filtered) await this.refilter();
  }

  resize() {
    const length = this.dense && this.total !== null ? Math.max(this.total, this.titles.length) : this.titles.length;
    this.said.textContent = this.total === null ? "" : counted(this.total, "interaction");
    this.table.hidden = length === 0;
    fill(this.nothing, length === 0 && emptyState("This cassette has no interactions", "Send a request through the proxy in mode auto or record, and it appears here."));
    this.list.resize(length);
  }

  reach(first, last) {
    if (this.shown !== this.titles) return;
    if (this.dense) {
      for (let page = Math.floor(first / PAGE); page <= Math.floor((last - 1) / PAGE); page += 1) this.loadPage(page);
    } else if (last >= this.titles.length - 20 && this.next !== null) {
      this.loadNext();
    }
  }

  // Pages that were scrolled past before they came are asked for when they are seen again.
  async loadPage(page) {
    if (this.asked.has(page)) return;
    this.asked.add(page);
    try {
      const start = page * PAGE;
      const found = await get(path`cassettes/${this.name}/titles`, { after: start - 1, limit: PAGE }, this.signal);
      found.titles.forEach((each, at) => (this.titles[start + at] = each));
      this.list.draw();
    } catch (error) {
      this.asked.delete(page);
      if (!this.signal.aborted) this.said.textContent = error.message;
    }
  }

  async loadNext() {
    if (this.busy) return;
    this.busy = true;
    try {
      const found = await get(path`cassettes/${this.name}/titles`, { after: this.next, limit: PAGE }, this.signal);
      this.titles.push(...found.titles);
      this.next = found.next;
      this.resize();
    } catch (error) {
      if (!this.signal.aborted) this.said.textContent = error.message;
    } finally {
      this.busy = false;
    }
  }

  download() {
    const format = h("select", { id: "format" }, Object.entries(FORMATS).map(([value, label]) => h("option", { value }, label)));
    const go = h("button.primary", { type: "button" }, "Download");
    const dialog = modal(
      `Download ${this.name}`,
      [h("label.field", { for: "format" }, "Format", format), h("p.muted", {}, "What a format cannot hold is left out: HAR holds only HTTP exchanges.")],
      [h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"), go],
    );
    go.addEventListener("click", () =>
      attempt(go, async () => {
        const response = await checked("GET", path`cassettes/${this.name}`, { query: { format: format.value, losses: "allow" } });
        const link = h("a", { href: URL.createObjectURL(await response.blob()), download: `${this.name.replaceAll("/", "-")}.${format.value}` });
        link.click();
        dialog.close();
      }),
    );
  }

  async remove(button) {
    const agreed = await confirm({
      title: `Delete ${this.name}?`,
      body: [h("p", {}, `The cassette with ${this.total === null ? "all its interactions" : counted(this.total, "interaction")} and all its files are removed from the store. This cannot be undone.`), h("p.muted", {}, "If it is loaded, its recordings in flight are waited for first.")],
      action: "Delete the cassette",
      danger: true,
    });
    if (!agreed || (await attempt(button, () => send("DELETE", path`cassettes/${this.name}`))) === undefined) return;
    notify(`${this.name} is deleted.`);
    location.hash = "#/cassettes";
  }
}

function choice(id, choices, selected = "") {
  const select = h("select", { id }, Object.entries(choices).map(([value, { label }]) => h("option", { value }, label)));
  select.value = Object.hasOwn(choices, selected) ? selected : "";
  return select;
}

function textOf(each) {
  return [`#${each.index}`, each.summary, each.asked, each.answered, each.model, each.path, ...each.tags].join(" ").toLowerCase();
}

function row(name, title, at) {
  if (title === undefined) return h("div.row.loading", {}, h("span", {}, `#${at}`), h("span.muted", {}, "…"));
  return h(
    "a.row",
    { href: address("cassettes", name, title.index) },
    h("span.muted", {}, `#${title.index}`),
    h("span.status", { data: { bad: title.failure !== null || title.status >= 400 ? "true" : undefined } }, title.failure ?? title.status ?? title.kind),
    requestCell(title, title.summary, tags(title)),
    h("span.where", {}, title.model ?? ""),
    h("span.number.extra", {}, title.usage?.total_tokens === undefined ? "" : count(title.usage.total_tokens)),
    h("span.number.extra", {}, size(title.response_bytes)),
    h("span.number.extra", {}, duration(title.latency_ms)),
  );
}

function tags(title) {
  const shown = [title.streamed && ["stream"], title.unmarked && ["unmarked", "warn"], title.unused && ["unused"], ...title.tags.map((each) => [each])];
  return shown.filter(Boolean).map(([text, kind]) => [" ", h("span.tag", { data: { kind } }, text)]);
}
