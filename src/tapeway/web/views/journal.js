// The journal, live: one line for each request, and filters. A line opens to why it hit or missed.

import { get, send } from "../shell/api.js";
import { IS_REPORT, OUTCOMES, command, emptyState, fill, h, outcomeBadge, setText } from "../shell/dom.js";
import { follow } from "../shell/feed.js";
import { count, counted, duration, full, preciseClock, tokens } from "../shell/format.js";
import { address, replaceQuery, withQuery } from "../shell/router.js";
import { seek } from "../shell/sought.js";
import { onStatus } from "../shell/status.js";
import { attempt, confirm } from "../parts/dialog.js";
import { drawWaterfall, requestCell, twoLines, waterfallCell } from "../parts/row.js";
import { Split } from "../parts/split.js";
import { VirtualList } from "../parts/virtual-list.js";
import { openEntry } from "./entry.js";

const PAGE = 500;
const MOST_HELD = 20_000;
const DRAW_EVERY_MS = 150;
const STATES = { connecting: "Connecting", live: "Live", broken: "tapeway does not answer: trying again" };
const FILTERS = ["outcome", "cassette", "route", "slot", "take", "text", "negate"];

const WIDE = matchMedia("(min-width: 900px)");

// `first`: nobody has chosen what to see, so what went wrong last is open beside the list.
export async function open({ parts: [id], query, signal, first = false }) {
  const journal = new JournalView(query, signal);
  const shown = id === undefined ? null : journal.split.show(id);
  await journal.load();
  if (first && WIDE.matches) await journal.showNewestMiss();
  await shown;
  journal.start();
  return journal.split.element;
}

class JournalView {
  constructor(query, signal) {
    this.signal = signal;
    this.filter = Object.fromEntries(FILTERS.map((name) => [name, query[name] ?? ""]));
    this.entries = []; // oldest first: new ones are put at the end
    this.older = null;
    this.fresh = 0;
    this.waiting = 0;
    this.build();
  }

  build() {
    this.list = new VirtualList({
      label: "Requests, newest first",
      key: (at) => this.at(at).id,
      row: (at) => this.row(this.at(at)),
      reach: (first, last) => {
        const end = drawWaterfall(this.list, first, last, (at) => timesOf(this.at(at)));
        setText(this.scale, `Time, ${duration(end)}`);
        if (last >= this.entries.length - 20) this.loadOlder();
      },
    });
    this.state = h("span.state", { role: "status" });
    this.said = h("span.muted.small", { role: "status" });
    this.nothing = h("div");
    this.chips = Object.keys(OUTCOMES).map((outcome) => this.chip(outcome));
    this.text = h("input", { type: "search", id: "text", value: this.filter.text, placeholder: "Text in bodies and streams", data: { key: "/" }, "aria-keyshortcuts": "/" });
    this.negate = h("input", { type: "checkbox", checked: this.filter.negate === "true" });
    this.cassette = h("select", { id: "cassette" });
    this.route = h("select", { id: "route" });
    this.choices(this.cassette, "cassette", []);
    this.choices(this.route, "route", []);
    const filters = h(
      "div.filters",
      {},
      h("div.chips", { role: "group", "aria-label": "Outcome" }, this.chips),
      h("label.field", { for: "cassette" }, "Cassette", this.cassette),
      h("label.field", { for: "route" }, "Route", this.route),
      h("label.field.grow", { for: "text" }, "Text", this.text),
      h("label.check", {}, this.negate, "without it"),
    );
    const clear = h("button.changes", { type: "button", on: { click: (event) => this.clear(event.currentTarget) } }, "Clear…");
    this.scale = h("span", {}, "Time");
    const head = h("div.row.row-head", { "aria-hidden": "true" }, COLUMNS.map((name) => h("span", { class: name === "Duration" ? "number" : "" }, name)), this.scale);
    this.table = h("div.list.requests", {}, head, this.list.element);
    this.split = new Split({
      master: [h("div.heading", {}, h("h1", {}, "Journal"), this.state, this.said, h("div.side", {}, clear)), filters, this.nothing, this.table],
      list: this.list,
      label: "The opened request",
      title: "Journal · tapeway",
      address: (id) => this.address(id),
      open: (id, signal) => openEntry(id, signal),
      signal: this.signal,
      down: -1,
    });
    // The same list with something else open beside it.
    this.split.element.moved = ({ parts: [name, id], query }) => {
      if (name !== "journal" || FILTERS.some((each) => (query[each] ?? "") !== this.filter[each])) return false;
      this.split.show(id);
      return true;
    };
    this.listen();
  }

  listen() {
    let typing;
    this.text.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.refilter({ text: this.text.value }), 250);
    });
    this.negate.addEventListener("change", () => this.refilter({ negate: this.negate.checked ? "true" : "" }));
    this.cassette.addEventListener("change", () => this.refilter({ cassette: this.cassette.value }));
    this.route.addEventListener("change", () => this.refilter({ route: this.route.value }));
  }

  address(id) {
    return withQuery(id === undefined ? "#/journal" : address("journal", id), this.filter);
  }

  async showNewestMiss() {
    const missed = this.entries.findLast((each) => each.outcome === "miss" || each.status >= 400);
    if (missed === undefined) return;
    history.replaceState(history.state, "", this.address(missed.id));
    await this.split.show(missed.id);
  }

  chip(outcome) {
    const number = h("span.chip-count");
    const chip = h("button.chip", { type: "button", data: { outcome }, on: { click: () => this.refilter({ outcome: this.filter.outcome === outcome ? "" : outcome }) } }, outcomeBadge(outcome), number);
    chip.number = number;
    return chip;
  }

  choices(select, name, values) {
    const known = new Set(values);
    if (this.filter[name] !== "") known.add(this.filter[name]);
    const shown = [...known].sort().join("\n");
    if (select.shown === shown) return;
    select.shown = shown;
    fill(select, h("option", { value: "" }, "all"), [...known].sort().map((each) => h("option", { value: each }, each)));
    select.value = this.filter[name];
  }

  at(position) {
    return this.entries[this.entries.length - 1 - position];
  }

  start() {
    if (IS_REPORT) {
      setText(this.state, "Report");
      get("status").then((status) => this.recount(status));
      return;
    }
    onStatus((status) => this.recount(status), this.signal);
    follow({
      since: this.newest,
      signal: this.signal,
      report: (state) => {
        setText(this.state, STATES[state]);
        this.state.dataset.state = state;
      },
      receive: (entries, how) => this.receive(entries, how),
    });
  }

  // The numbers are the server's own: however fast requests come, they are all counted.
  recount(status) {
    for (const chip of this.chips) setText(chip.number, count(status.counts[chip.dataset.outcome]));
    this.choices(this.cassette, "cassette", [...status.cassettes.map((each) => each.name), ...this.entries.slice(-500).map((each) => each.cassette)]);
    this.choices(this.route, "route", this.entries.slice(-500).map((each) => each.route));
  }

  // The newest entries that pass the filter.
  async load() {
    const loading = (this.loading = Symbol("loading"));
    let before = this.entries.length;
    // What comes from now on is new to this list.
    const start = await get("journal", { limit: 1 }, this.signal);
    this.newest ??= start.entries[0]?.id ?? null;
    // A search shows what it found while it goes on.
    const page = await this.page(null, loading, (found) => {
      this.entries = [...found].reverse();
      before = 0;
      this.older = null;
      this.list.renew(this.entries.length);
      this.draw();
    });
    if (page === null) return;
    const known = new Set(page.found.map((each) => each.id));
    const meanwhile = this.entries.slice(before).filter((each) => this.passes(each) && !known.has(each.id));
    this.entries = [...page.found.reverse(), ...meanwhile];
    this.fresh = 0;
    this.older = page.next;
    this.list.renew(this.entries.length);
    this.draw();
  }

  // Entries that pass the filter, newest first; null where another filter was chosen meanwhile.
  async page(after, loading, show = () => {}) {
    const found = [];
    let [next, searched] = [after, 0];
    do {
      const page = await get("journal", { ...this.asked(), after: next, limit: PAGE, gist: true }, this.signal);
      if (loading !== this.loading) return null;
      found.push(...page.entries);
      next = page.next;
      searched += page.searched ?? 0;
      if (this.filter.text !== "") this.say(page.left > 0 && next !== null ? `Searching: ${count(searched)} of ${count(searched + page.left)}, ${count(found.length)} found.` : `Searched ${counted(searched, "request")}: ${count(found.length)} found.`);
      if (page.entries.length > 0 && next !== null && found.length < PAGE && this.filter.text !== "") show(found);
    } while (this.filter.text !== "" && next !== null && found.length < PAGE);
    if (this.filter.text === "") this.say("");
    return { found, next };
  }

  asked() {
    const { negate, ...others } = this.filter;
    return others.text === "" ? others : { ...others, negate };
  }

  async loadOlder() {
    if (this.older === null || this.busy || this.entries.length >= MOST_HELD) return;
    this.busy = true;
    try {
      const page = await this.page(this.older, this.loading);
      if (page === null) return;
      this.entries = [...page.found.reverse(), ...this.entries];
      this.older = page.next;
      this.list.resize(this.entries.length);
    } catch (error) {
      if (!this.signal.aborted) this.say(error.message);
    } finally {
      this.busy = false;
    }
  }

  receive(entries, { missed, gap }) {
    this.newest = entries.at(-1)?.id ?? this.newest;
    if (missed) this.say(gap ? "The connection was lost; some requests have left the journal meanwhile. The counts have them all." : `The connection was lost; ${counted(entries.length, "request")} came meanwhile.`);
    if (this.filter.text !== "") {
      // Whether a body has the text, only the server knows.
      this.waiting += entries.length;
      this.searchSoon();
      return;
    }
    const known = missed ? new Set(this.entries.map((each) => each.id)) : null;
    this.add(entries.filter((each) => this.passes(each) && !known?.has(each.id)));
  }

  add(entries) {
    if (entries.length === 0) return;
    this.entries.push(...entries);
    this.fresh += entries.length;
    if (this.entries.length > MOST_HELD + 2000) {
      this.entries.splice(0, this.entries.length - MOST_HELD);
    }
    this.drawing ??= setTimeout(() => {
      this.drawing = undefined;
      this.draw();
    }, DRAW_EVERY_MS);
  }

  searchSoon() {
    this.searching ??= setTimeout(async () => {
      const [expected, loading] = [this.waiting, this.loading];
      this.waiting = 0;
      try {
        const known = new Set(this.entries.map((each) => each.id));
        let [after, searched] = [null, 0];
        const found = [];
        do {
          const page = await get("journal", { ...this.asked(), after, limit: PAGE, gist: true }, this.signal);
          found.push(...page.entries.filter((each) => !known.has(each.id)));
          searched += page.searched ?? 0;
          after = page.next;
        } while (after !== null && searched < expected);
        if (loading === this.loading) this.add(found.reverse());
      } catch (error) {
        if (!this.signal.aborted) this.say(error.message);
      } finally {
        this.searching = undefined;
      }
    }, 500);
  }

  passes(entry) {
    return ["outcome", "cassette", "route", "slot", "take"].every((name) => this.filter[name] === "" || this.filter[name] === String(entry[name]));
  }

  draw() {
    for (const chip of this.chips) chip.setAttribute("aria-pressed", String(this.filter.outcome === chip.dataset.outcome));
    const added = this.fresh;
    this.fresh = 0;
    const filtered = FILTERS.some((name) => this.filter[name] !== "");
    const empty = this.entries.length === 0;
    this.table.hidden = empty;
    if (empty !== this.wasEmpty || filtered !== this.wasFiltered) {
      fill(this.nothing, empty && (filtered ? nothingFound(() => this.reset()) : nothingYet()));
      [this.wasEmpty, this.wasFiltered] = [empty, filtered];
    }
    this.list.resize(this.entries.length, added);
    this.split.mark();
  }

  row(entry) {
    const again = entry.attempt > 1 && [" ", h("span.tag", { data: { kind: "warn" } }, `attempt ${entry.attempt}`)];
    return h(
      "a.row",
      { href: this.address(entry.id), data: { missed: entry.outcome === "miss" ? "true" : undefined } },
      h("span.time", { title: full(entry.at) }, preciseClock(entry.at)),
      twoLines("span.came", outcomeBadge(entry.outcome), entry.interaction === null ? (entry.outcome === "miss" ? "" : entry.status) : `#${entry.interaction}`),
      requestCell(entry, `${entry.method} ${entry.path}`, again),
      twoLines("span.where", entry.cassette, entry.model, { title: entry.slot ? `${entry.cassette}, through slot ${entry.slot}` : entry.cassette }),
      twoLines("span.number.took", duration(entry.duration_ms), tokens(entry.tokens)),
      waterfallCell(entry.outcome),
    );
  }

  say(text) {
    setText(this.said, text);
  }

  reset() {
    this.text.value = this.cassette.value = this.route.value = "";
    this.negate.checked = false;
    this.refilter(Object.fromEntries(FILTERS.map((name) => [name, ""])));
  }

  async refilter(change) {
    Object.assign(this.filter, change);
    replaceQuery(this.filter);
    seek(this.filter.negate === "true" ? "" : this.filter.text);
    this.draw();
    try {
      await this.load();
    } catch (error) {
      if (!this.signal.aborted) this.say(error.message);
    }
  }

  async clear(button) {
    const agreed = await confirm({ title: "Clear the journal?", body: [h("p", {}, "The list of requests is emptied, for everybody who looks at it. Counters and cassettes stay as they are.")], action: "Clear", danger: true });
    if (agreed && (await attempt(button, () => send("DELETE", "journal"))) !== undefined) await this.refilter({});
  }
}

const COLUMNS = ["Began", "Outcome", "Request", "Cassette", "Duration"];

// When a call began and waited; a replay as long as its recording took.
function timesOf({ at, duration_ms: real, recorded_ms: recorded, first_byte_ms: waited }) {
  return { at: Date.parse(at), real, took: recorded || real, waited };
}

function nothingYet() {
  return emptyState(
    "No request has come yet",
    "Requests that go through the proxy appear here as they come. Set the base URLs of your SDKs and start your app:",
    command('eval "$(tapeway env)"'),
  );
}

function nothingFound(reset) {
  return emptyState("No request passes this filter", h("button", { type: "button", on: { click: reset } }, "Show all requests"));
}
