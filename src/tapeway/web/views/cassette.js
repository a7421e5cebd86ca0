// One cassette: its interactions, however many, and what can be done with it.

import { checked, get, path, send } from "../shell/api.js";
import { emptyState, fill, h, setText } from "../shell/dom.js";
import { count, counted, duration, size } from "../shell/format.js";
import { address, replaceQuery, withQuery } from "../shell/router.js";
import { seek } from "../shell/sought.js";
import { attempt, confirm, modal, notify } from "../parts/dialog.js";
import { failure } from "../parts/failure.js";
import { drawWaterfall, requestCell, twoLines, waterfallCell } from "../parts/row.js";
import { Split } from "../parts/split.js";
import { VirtualList } from "../parts/virtual-list.js";
import { compose } from "./compose.js";
import { openInteraction } from "./interaction.js";

const PAGE = 200;
const MANY = 5000;
const MOST_AT_ONCE = 1000;
const SLOW_MS = 300;
const FORMATS = { json: "JSON", yaml: "YAML", jsonl: "JSON lines", har: "HAR" };
const COLUMNS = ["Answer", "Request", "Model", "Tokens", "Size", "Duration"];

const KINDS = { "": "all", failed: "errors and failures", unused: "unused", streamed: "streams", unmarked: "without an end mark" };
const ORDERS = { "": "as recorded", slowest: "slowest first", tokens: "most tokens first", largest: "largest first" };

export async function open({ parts: [name, index], query, signal }) {
  const cassette = new CassetteView(name, query, signal);
  document.title = cassette.split.title;
  const shown = index === undefined ? null : cassette.split.show(Number(index));
  try {
    await Promise.all([cassette.load(), cassette.showRules()]);
  } catch (error) {
    // A report has single recordings, and not their list.
    if (index === undefined || signal.aborted) throw error;
    cassette.fail(error);
  }
  await shown;
  if (index !== undefined) cassette.locate(Number(index));
  cassette.prepareSearch();
  return cassette.split.element;
}

class CassetteView {
  constructor(name, query, signal) {
    this.name = name;
    this.signal = signal;
    this.titles = []; // by position; a hole is not loaded yet
    this.order = null; // the indexes that were found, by position
    this.asked = new Set();
    this.list = new VirtualList({
      label: "Interactions by index",
      key: (at) => this.order?.[at] ?? this.titles[at]?.index ?? at,
      row: (at) => this.row(this.titles[at], at),
      reach: (first, last) => {
        const end = drawWaterfall(this.list, first, last, (at) => timesOf(this.titles[at]));
        setText(this.scale, `Time, ${duration(end)}`);
        this.reach(first, last);
      },
    });
    this.scale = h("span", {}, "Time");
    this.said = h("span.muted.small", { role: "status" });
    this.found = h("span.muted.small", { role: "status" });
    this.text = h("input", { type: "search", id: "text", value: query.text ?? "", placeholder: "Words of request or answer, path, model, tag", data: { key: "/" }, "aria-keyshortcuts": "/" });
    this.kind = choice("kind", KINDS, query.kind);
    this.sorting = choice("order", ORDERS, query.order);
    this.listen();
    this.nothing = h("div");
    const head = h("div.row.row-head", { "aria-hidden": "true" }, COLUMNS.map((each) => h("span", { class: ["Tokens", "Size", "Duration"].includes(each) ? "number" : "" }, each)), this.scale);
    this.table = h("div.list.interactions", {}, head, this.list.element);
    const master = [
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
          h("button.changes", { type: "button", on: { click: () => this.compose() } }, "New…"),
          h("button", { type: "button", on: { click: () => this.download() } }, "Download…"),
          h("button.danger.changes", { type: "button", on: { click: (event) => this.remove(event.currentTarget) } }, "Delete…"),
        ),
      ),
      h("div.filters", {}, h("label.field.grow", { for: "text" }, "Search", this.text), h("label.field", { for: "kind" }, "Show", this.kind), h("label.field", { for: "order" }, "Order", this.sorting), this.found),
      (this.rules = h("div")),
      this.nothing,
      this.table,
    ];
    this.split = new Split({ master, list: this.list, label: "The opened recording", title: `${name} · tapeway`, address: (key) => this.address(key), open: (key, shown) => openInteraction(name, key, shown, () => this.refilter()), signal });
    // The same list with something else open beside it.
    this.split.element.moved = ({ parts: [view, of, key], query: { text = "", kind = "", order = "" } }) => {
      const asked = this.query;
      if (view !== "cassettes" || of !== name || text !== asked.text || kind !== asked.show || order !== asked.order) return false;
      this.split.show(key === undefined ? null : Number(key));
      return true;
    };
    addEventListener("tapeway-back", () => this.list.draw(), { signal });
  }

  // The rules under which it matches, each with what removes it.
  async showRules() {
    const where = path`cassettes/${this.name}/rules`;
    const { rules } = await get(where, {}, this.signal).catch(() => ({ rules: [] }));
    const remove = async (button, rule) => {
      const agreed = await confirm({ title: `Remove this rule from ${this.name}?`, body: [h("pre.rule", {}, rule), h("p", {}, "It ends at once, for every request: what differs there counts again.")], action: "Remove the rule", danger: true });
      if (!agreed || (await attempt(button, () => checked("DELETE", where, { query: { rule } }))) === undefined) return;
      notify("The rule is removed.");
      await this.showRules();
    };
    const row = ({ rule, of_settings: settings }) => h("li", {}, h("code.plain", {}, rule), " ", settings ? h("span.muted.small", {}, "of the settings") : h("button.quiet.changes", { type: "button", "aria-label": `Remove ${rule}`, on: { click: (event) => remove(event.currentTarget, rule) } }, "Remove…"));
    fill(this.rules, rules.length > 0 && h("details.panel.rules", {}, h("summary", {}, counted(rules.length, "rule"), " for what does not count"), h("ul", {}, rules.map(row))));
  }

  address(index) {
    const { text, show, order } = this.query;
    return withQuery(index === undefined ? address("cassettes", this.name) : address("cassettes", this.name, index), { text, kind: show, order });
  }

  fail(error) {
    fill(this.nothing, failure(error, () => this.refilter()));
    this.table.hidden = true;
  }

  listen() {
    let typing;
    this.text.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.refilter(), 200);
    });
    for (const each of [this.kind, this.sorting]) each.addEventListener("change", () => this.refilter());
  }

  // What is searched for, shown and ordered by; the server finds it.
  get query() {
    return { text: this.text.value.trim(), show: this.kind.value, order: this.sorting.value };
  }

  async refilter() {
    const loading = (this.loading = {});
    const { text, show, order } = this.query;
    replaceQuery({ text, kind: show, order });
    seek(text);
    const slow = setTimeout(() => setText(this.found, `reading ${this.total === null ? "all" : count(this.total)} recordings …`), SLOW_MS);
    try {
      await this.load(loading);
      if (loading === this.loading) this.list.renew(this.length);
    } catch (error) {
      if (!this.signal.aborted && loading === this.loading) setText(this.found, error.message);
    } finally {
      clearTimeout(slow);
    }
  }

  async load(loading = (this.loading = {})) {
    const where = path`cassettes/${this.name}/titles`;
    const first = await get(where, { ...this.query, limit: PAGE }, this.signal);
    // Where no index is beyond the number of interactions, each is at the position of its index,
    // and the list can be entered anywhere. Of what was found, all indexes are known.
    const dense = first.found !== null || first.next === null || (first.total !== null && (await get(where, { after: first.total - 1, limit: 1 }, this.signal)).titles.length === 0);
    if (loading !== this.loading) return;
    Object.assign(this, { dense, total: first.total, titles: first.titles, order: first.found, next: first.next, asked: new Set([0]), busy: null });
    const more = first.unsearched > 0 ? `, but of ${counted(first.unsearched, "recording")} only the titles were searched` : "";
    setText(this.found, this.order === null ? "" : `${count(this.order.length)} found${more}`);
    this.resize();
  }

  // Of a large cassette the server reads all titles for the first search: before anybody asks.
  prepareSearch() {
    if (this.total < MANY) return;
    get(path`cassettes/${this.name}/titles`, { order: "slowest", limit: 1 }, this.signal).catch(() => null);
  }

  get length() {
    if (this.order !== null) return this.order.length;
    return this.dense && this.total !== null ? Math.max(this.total, this.titles.length) : this.titles.length;
  }

  resize() {
    const { length, order } = this;
    this.said.textContent = this.total === null ? "" : counted(this.total, "interaction");
    this.table.hidden = length === 0;
    fill(this.nothing, length === 0 && order === null && emptyState("This cassette has no interactions", "Send a request through the proxy in mode auto or record, and it appears here."));
    this.list.resize(length);
    this.split.mark();
  }

  reach(first, last) {
    if (this.dense) {
      for (let page = Math.floor(first / PAGE); page <= Math.floor((last - 1) / PAGE); page += 1) this.loadPage(page);
    } else if (last >= this.titles.length - 20 && this.next !== null) {
      this.loadNext();
    }
  }

  // Pages that were scrolled past before they came are asked for when they are seen again.
  async loadPage(page) {
    if (this.asked.has(page)) return;
    const { asked, titles } = this;
    asked.add(page);
    try {
      const start = page * PAGE;
      const after = this.order === null ? start - 1 : this.order[start - 1];
      const found = await get(path`cassettes/${this.name}/titles`, { ...this.query, after, limit: PAGE }, this.signal);
      found.titles.forEach((each, at) => (titles[start + at] = each));
      this.list.draw();
    } catch (error) {
      asked.delete(page);
      if (!this.signal.aborted) this.said.textContent = error.message;
    }
  }

  // Where indexes have gaps, the place of one is known once all before it are loaded.
  async locate(index) {
    const { titles } = this;
    while (!this.dense && this.next !== null && this.next < index && titles === this.titles && !this.signal.aborted) await this.loadNext(MOST_AT_ONCE);
  }

  async loadNext(limit = PAGE) {
    if (this.busy) return this.busy;
    return (this.busy = this.nextPage(limit).finally(() => (this.busy = null)));
  }

  async nextPage(limit) {
    const { titles } = this;
    try {
      const found = await get(path`cassettes/${this.name}/titles`, { after: this.next, limit }, this.signal);
      if (titles !== this.titles) return;
      titles.push(...found.titles);
      this.next = found.next;
      this.resize();
    } catch (error) {
      this.next = null;
      if (!this.signal.aborted) this.said.textContent = error.message;
    }
  }

  row(title, at) {
    if (title === undefined) return h("div.row.loading", {}, h("span.muted", {}, `#${this.list.key(at)}`), h("span.muted", {}, "…"));
    return h(
      "a.row",
      { href: this.address(title.index) },
      twoLines("span.came", h("span.status", { data: { bad: title.failure !== null || title.status >= 400 ? "true" : undefined } }, title.failure ?? title.status ?? title.kind), `#${title.index}`),
      requestCell(title, title.summary, tags(title)),
      h("span.where", {}, title.model ?? ""),
      h("span.number.extra", {}, title.usage?.total_tokens === undefined ? "" : count(title.usage.total_tokens)),
      h("span.number.extra", {}, size(title.response_bytes)),
      h("span.number.extra", {}, title.latency_ms ? duration(title.latency_ms) : ""),
      waterfallCell(title.failure !== null || title.status >= 400 ? "error" : "replayed"),
    );
  }

  compose() {
    compose(this.name, this.titles[0]?.route ?? "default", async (index) => {
      await this.refilter();
      location.hash = this.address(index);
    });
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
  const select = h("select", { id }, Object.entries(choices).map(([value, label]) => h("option", { value }, label)));
  select.value = Object.hasOwn(choices, selected) ? selected : "";
  return select;
}

function timesOf(title) {
  return title?.latency_ms ? { at: 0, real: title.latency_ms, took: title.latency_ms, waited: title.first_byte_ms } : null;
}

function tags(title) {
  const shown = [title.streamed && ["stream"], title.unmarked && ["unmarked", "warn"], title.unused && ["unused"], ...title.tags.map((each) => [each])];
  return shown.filter(Boolean).map(([text, kind]) => [" ", h("span.tag", { data: { kind } }, text)]);
}
