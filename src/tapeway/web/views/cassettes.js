// The cassettes of the store: how large, how much of them was used, what their replays saved.

import { get } from "../shell/api.js";
import { command, emptyState, fill, h } from "../shell/dom.js";
import { count, counted, day, full, money, size } from "../shell/format.js";
import { address, replaceQuery } from "../shell/router.js";
import { VirtualList } from "../parts/virtual-list.js";

const PAGE = 500;
const COLUMNS = ["Cassette", "Interactions", "Size", "Unused", "Stale", "Unmarked", "Tokens", "Saved", "Changed"];

export async function open({ query, signal }) {
  const cassettes = new CassettesView(query, signal);
  await cassettes.load();
  return cassettes.element;
}

class CassettesView {
  constructor({ name = "" }, signal) {
    this.signal = signal;
    this.all = [];
    this.shown = [];
    this.next = null;
    this.filter = h("input", { type: "search", id: "name", value: name, placeholder: "Part of the name" });
    this.filter.addEventListener("input", () => this.refilter());
    this.list = new VirtualList({
      label: "Cassettes by name",
      key: (at) => this.shown[at].name,
      row: (at) => this.row(this.shown[at]),
      reach: (first, last) => last >= this.shown.length - 20 && this.more(),
    });
    this.said = h("span.muted.small", { role: "status" });
    this.nothing = h("div");
    addEventListener("tapeway-back", () => this.load().catch(() => null), { signal });
    const head = h("div.row.row-head", { "aria-hidden": "true" }, COLUMNS.map((name, at) => h("span", { class: at > 0 && at < COLUMNS.length - 1 ? "number" : "" }, name)));
    this.table = h("div.list.cassettes", {}, head, this.list.element);
    this.element = h(
      "div",
      {},
      h("div.heading", {}, h("h1", {}, "Cassettes"), this.said, h("div.side", {}, h("a.changes", { href: "#/compare" }, "Compare two…"))),
      h("div.filters", {}, h("label.field.grow", { for: "name" }, "Name", this.filter)),
      this.nothing,
      this.table,
    );
  }

  async load() {
    this.all = [];
    const [page, report] = await Promise.all([get("cassettes", { limit: PAGE }, this.signal), get("report", {}, this.signal)]);
    this.reports = new Map(report.cassettes.map((each) => [each.name, each]));
    this.take(page);
    this.refilter();
  }

  take(page) {
    this.all.push(...page.cassettes);
    this.next = page.next;
  }

  async more() {
    if (this.next === null || this.busy) return;
    this.busy = true;
    try {
      this.take(await get("cassettes", { limit: PAGE, after: this.next }, this.signal));
      this.refilter();
    } catch (error) {
      if (!this.signal.aborted) this.said.textContent = error.message;
    } finally {
      this.busy = false;
    }
  }

  refilter() {
    const wanted = this.filter.value.trim().toLowerCase();
    if (location.hash.startsWith("#/cassettes")) replaceQuery({ name: wanted });
    this.shown = this.all.filter((each) => each.name.toLowerCase().includes(wanted));
    this.said.textContent = this.next === null ? counted(this.shown.length, "cassette") : "";
    const empty = this.shown.length === 0 && this.next === null;
    this.table.hidden = empty;
    fill(this.nothing, empty && (wanted === "" ? nothingYet() : emptyState("No cassette has this in its name")));
    this.list.renew(this.shown.length);
    if (this.shown.length < 20) this.more();
  }

  row(item) {
    const report = this.reports.get(item.name);
    return h(
      "a.row",
      { href: address("cassettes", item.name) },
      h("span.mono.what", { title: item.name }, item.name, item.active && [" ", h("span.tag", { data: { kind: "good" } }, "active")], item.error && [" ", h("span.tag", { data: { kind: "warn" }, title: item.error }, "cannot be read")]),
      h("span.number.many", {}, count(item.interactions), h("span.unit", {}, item.interactions === 1 ? " interaction" : " interactions")),
      h("span.number", {}, size(item.size_bytes)),
      h("span.number.extra", {}, report ? count(report.unused.length) : "–"),
      h("span.number.extra", {}, report ? count(report.stale.length) : "–"),
      h("span.number.extra", {}, report ? count(report.unmarked.length) : "–"),
      h("span.number.extra", {}, report ? count(report.usage.total_tokens) : "–"),
      h("span.number.extra", {}, report ? money(report.saved.usd) : "–"),
      h("span.where.extra", { title: full(item.modified_at) }, day(item.modified_at)),
    );
  }
}

function nothingYet() {
  return emptyState(
    "The store holds no cassette",
    "The first recording creates one. In mode auto or record, send a request through the proxy:",
    command("tapeway run --mode auto --cassette smoke -- YOUR COMMAND"),
  );
}
