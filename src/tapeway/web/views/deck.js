// The deck: what tapeway does now, and its controls. Each control says first what will happen.

import { get, send } from "../shell/api.js";
import { IS_REPORT, OUTCOMES, breakable, command, emptyState, fill, h, leads, setText } from "../shell/dom.js";
import { count, counted, full } from "../shell/format.js";
import { address, withQuery } from "../shell/router.js";
import { onStatus, refreshStatus } from "../shell/status.js";
import { attempt, confirm, modal, notify } from "../parts/dialog.js";
import { FaultsPanel } from "./faults.js";

const MOST_RUNS = 5;

export const MODES = {
  replay: "Answers come from the cassette. What is not recorded is a miss; the upstream is never asked.",
  record: "Each request goes to the upstream, and its answer replaces the recording.",
  auto: "What is recorded is replayed; anything else goes to the upstream and is recorded.",
  passthrough: "Each request goes to the upstream. Nothing is recorded.",
};

const DURABILITY = {
  disk: "A recording is on the disk before its answer is handed out.",
  memory: "Recordings are lost when tapeway stops.",
};

export async function open({ signal }) {
  const [status, clients] = await Promise.all([get("status", {}, signal), IS_REPORT ? null : get("clients", {}, signal)]);
  const deck = new DeckView(status, clients);
  await Promise.all([deck.showRuns(), deck.faults?.show(signal)]);
  if (!IS_REPORT) onStatus((now) => deck.show(now), signal);
  return deck.element;
}

class DeckView {
  constructor(status, clients) {
    this.clients = clients;
    this.modes = Object.keys(MODES).map((mode) => this.modeButton(mode));
    this.explained = h("p.muted", { id: "mode-says" });
    this.own = h("p");
    this.active = h("a.mono");
    this.store = h("dd.mono");
    this.durability = h("dd");
    this.connections = h("dd");
    this.inFlight = h("dd", {}, h("a", { href: "#/recordings" }));
    this.takes = h("dd");
    this.version = h("span.muted.small");
    this.counts = Object.fromEntries(Object.keys(OUTCOMES).map((each) => [each, h("span.big")]));
    this.loaded = h("div");
    this.runs = h("div");
    this.first = h("div");
    this.faults = IS_REPORT ? null : new FaultsPanel();
    this.element = this.layout();
    this.show(status);
  }

  layout() {
    return h(
      "div.deck",
      {},
      h("div.heading", {}, h("h1", {}, "Deck"), this.version),
      h("div.counters", {}, Object.keys(OUTCOMES).map((each) => this.counter(each))),
      h(
        "div.two",
        {},
        h("section.panel", {}, h("h2", { id: "mode-label" }, "Mode"), h("div.modes", { role: "group", "aria-labelledby": "mode-label", "aria-describedby": "mode-says" }, this.modes), this.explained, this.own),
        h(
          "section.panel",
          {},
          h("h2", {}, "Active cassette"),
          h("p.active", {}, this.active),
          h(
            "div.buttons.changes",
            {},
            h("button", { type: "button", on: { click: () => this.insert() } }, "Insert…"),
            h("button", { type: "button", on: { click: (event) => this.rewind(event.currentTarget) } }, "Rewind…"),
            h("button", { type: "button", on: { click: (event) => this.eject(event.currentTarget, this.status.cassette) } }, "Eject…"),
          ),
        ),
      ),
      this.runs,
      this.clients && addresses(this.clients),
      h("section.panel", {}, h("h2", {}, "Loaded cassettes"), this.loaded),
      this.faults?.element,
      h(
        "section.panel",
        {},
        h("h2", {}, "Store and upstream"),
        h("dl.facts", {}, [
          ["Store", this.store],
          ["Durability", this.durability],
          ["Upstream connections", this.connections],
          ["Recordings in flight", this.inFlight],
          ["Takes", this.takes],
        ].map(([term, value]) => [h("dt", {}, term), value])),
      ),
      this.first,
    );
  }

  counter(outcome) {
    const { sign, label, says } = OUTCOMES[outcome];
    return h(
      "a.counter",
      { href: withQuery("#/journal", { outcome }), title: says },
      this.counts[outcome],
      h("span.outcome", { data: { outcome } }, h("span.sign", { "aria-hidden": "true" }, sign), label),
    );
  }

  modeButton(mode) {
    return h("button", { type: "button", disabled: IS_REPORT, data: { mode }, title: MODES[mode], on: { click: (event) => this.setMode(mode, event.currentTarget) } }, mode);
  }

  show(status) {
    this.status = status;
    setText(this.version, `version ${status.version}`);
    for (const button of this.modes) button.setAttribute("aria-pressed", String(button.dataset.mode === status.mode));
    setText(this.explained, MODES[status.mode] ?? "");
    setText(this.own, ownModes(status));
    setText(this.active, status.cassette);
    const where = address("cassettes", status.cassette);
    if (leads(where)) this.active.href = where;
    setText(this.store, status.store.url);
    const { durability } = status.store;
    setText(this.durability, DURABILITY[durability] ? `${durability}: ${DURABILITY[durability]}` : durability);
    const open = status.open_connections;
    setText(this.connections, `${count(open.in_use)} in use, ${count(open.idle)} idle, ${count(status.upstream_connections)} opened since the start`);
    setText(this.inFlight.firstChild, count(status.in_flight));
    setText(this.takes, count(status.takes));
    for (const [outcome, value] of Object.entries(status.counts)) {
      if (this.counts[outcome]) setText(this.counts[outcome], count(value));
    }
    this.showLoaded(status);
    const idle = Object.values(status.counts).every((each) => each === 0);
    if (this.first.childElementCount !== Number(idle)) fill(this.first, idle && firstSteps());
  }

  showLoaded(status) {
    const shown = JSON.stringify(status.cassettes);
    if (shown === this.shown) return;
    this.shown = shown;
    if (this.named !== undefined) this.showRuns();
    if (status.cassettes.length === 0) {
      fill(this.loaded, h("p.muted", {}, "None. A cassette is loaded by its first request, or by Insert."));
      return;
    }
    const rows = status.cassettes.map((each) =>
      h(
        "tr",
        {},
        h("td", {}, h("a.mono", { href: address("cassettes", each.name) }, breakable(each.name))),
        h("td.extra", {}, each.mode),
        h("td.number", {}, count(each.interactions)),
        h("td.number", {}, count(each.unused)),
        h("td.number", {}, h("button.quiet.changes", { type: "button", "aria-label": `Eject ${each.name}`, on: { click: (event) => this.eject(event.currentTarget, each.name) } }, "Eject…")),
      ),
    );
    const head = h("tr", {}, h("th", {}, "Cassette"), h("th.extra", {}, "Mode"), h("th.number", {}, "Interactions"), h("th.number", {}, "Unused"), h("th", {}, h("span.hidden-label", {}, "Actions")));
    fill(this.loaded, h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Loaded cassettes" }, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))));
  }

  // What was recorded last, each one click from its conversation, and from what changed since the
  // one before, if there is one in the same folder.
  async showRuns() {
    const loaded = this.status.cassettes.map((each) => each.name);
    if (loaded.join("\n") === this.named) return;
    this.named = loaded.join("\n");
    // The cassettes have a view that says why they cannot be listed.
    const { cassettes } = await get("cassettes", { counts: false, limit: 1000 }).catch(() => ({ cassettes: [] }));
    const kept = cassettes.sort((one, two) => (two.modified_at ?? "").localeCompare(one.modified_at ?? ""));
    const fresh = loaded.filter((name) => kept.every((each) => each.name !== name)).map((name) => ({ name }));
    const runs = [...fresh, ...kept];
    const before = (at) => runs.slice(at + 1).find((each) => folderOf(each.name) === folderOf(runs[at].name)) ?? runs[at + 1];
    const row = ({ name, modified_at: at }, older) =>
      h("tr", {}, h("td", {}, h("a.mono", { href: address("conversation", name) }, breakable(name))), h("td.extra.muted", {}, full(at)), h("td", {}, older && !IS_REPORT && h("a", { href: withQuery("#/compare", { a: older.name, b: name }) }, "what changed since ", h("span.mono", {}, breakable(older.name)))));
    fill(this.runs, runs.length > 0 && h("section.panel", {}, h("h2", {}, "Newest runs"), h("div.scroll", { tabindex: "0", role: "region", "aria-label": "Newest runs" }, h("table", {}, h("tbody", {}, runs.slice(0, MOST_RUNS).map((each, at) => row(each, before(at))))))));
  }

  async setMode(mode, button) {
    if (mode === this.status.mode && this.status.own_modes.length === 0) return;
    const foreseen = await attempt(button, () => get("eject", {}));
    if (foreseen === undefined) return;
    const all = h("input", { type: "checkbox" });
    const agreed = await confirm({
      title: `Switch to ${mode}?`,
      body: [
        h("p", {}, MODES[mode]),
        this.status.own_modes.length > 0 && [h("p", {}, ownModes(this.status)), h("label.check", {}, all, "End these modes too")],
        mode !== this.status.mode && h("p.muted", {}, "A new take starts: every cassette is answered from its first recordings again. Requests under way keep the mode they arrived in."),
        shared(foreseen),
      ],
      action: `Switch to ${mode}`,
    });
    if (agreed) await this.change(button, () => send("PUT", "mode", { mode, all: all.checked }), () => `Mode ${mode} is in force.`);
  }

  async rewind(button) {
    const agreed = await confirm({
      title: "Rewind all cassettes?",
      body: [h("p", {}, "A new take starts: every request is answered from its first recording again. Nothing that is recorded is lost.")],
      action: "Rewind",
    });
    if (agreed) await this.change(button, () => send("POST", "rewind", {}), () => "A new take has started.");
  }

  async eject(button, cassette) {
    const foreseen = await attempt(button, () => get("eject", { cassette }));
    if (foreseen === undefined) return;
    if (!foreseen.loaded) {
      notify(`${cassette} is not loaded: there is nothing to eject.`);
      return;
    }
    const prune = h("input", { type: "checkbox" });
    const agreed = await confirm({
      title: `Eject ${cassette}?`,
      body: [
        h("p", {}, ejectSays(foreseen)),
        foreseen.slots.length > 0 && h("p", {}, `Slots that point at it: ${foreseen.slots.join(", ")}. Their takes begin anew.`),
        shared(foreseen),
        h("label.check", {}, prune, `Drop the ${counted(foreseen.unused, "recording")} that this take did not use`),
        h("p.muted", {}, "The name stays active: the next request loads it again, as a new take."),
      ],
      action: "Eject",
    });
    if (!agreed) return;
    await this.change(button, () => send("POST", "eject", { cassette, prune: prune.checked }), () => `${cassette} is ejected; its file is written.`);
  }

  async insert() {
    const { cassettes } = await get("cassettes", { counts: false, limit: 1000 }).catch(() => ({ cassettes: [] }));
    const names = h("datalist", { id: "names" }, cassettes.map((each) => h("option", { value: each.name })));
    const name = h("input.mono", { id: "insert-name", list: "names", autocomplete: "off", placeholder: "tests/greeting" });
    const mode = h("select", { id: "insert-mode" }, h("option", { value: "" }, "unchanged"), Object.keys(MODES).map((each) => h("option", { value: each }, each)));
    const go = h("button.primary", { type: "button" }, "Insert");
    const dialog = modal(
      "Insert a cassette",
      [
        h("p", {}, "It becomes the active one: it serves all requests that name no cassette themselves. A name that does not exist is created by its first recording."),
        h("label.field", { for: "insert-name" }, "Cassette", name),
        h("label.field", { for: "insert-mode" }, "Mode from now on", mode),
        names,
      ],
      [h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel"), go],
    );
    const submit = async () => {
      const cassette = name.value.trim();
      if (cassette === "") return;
      const done = await this.change(go, () => send("POST", "insert", { cassette, mode: mode.value || null }), () => `${cassette} is the active cassette.`);
      if (done) dialog.close();
    };
    go.addEventListener("click", submit);
    name.addEventListener("keydown", (event) => event.key === "Enter" && submit());
    name.focus();
  }

  // Carry a change out, and say what is not as it may have been meant.
  async change(button, action, says) {
    const answer = await attempt(button, action);
    if (answer === undefined) return false;
    if (answer.warning) notify(`${says()} Warning: ${answer.warning}`, "failed");
    else notify(says());
    await refreshStatus();
    return true;
  }
}

function folderOf(name) {
  return name.slice(0, name.lastIndexOf("/") + 1);
}

function ownModes({ own_modes: own }) {
  if (own.length === 0) return "";
  return `Not in this mode: ${own.map(({ name, mode }) => `${name} (${mode})`).join(", ")}. ${own.length === 1 ? "It has a mode of its own." : "They have modes of their own."}`;
}

function ejectSays({ in_flight: inFlight, recorded }) {
  const parts = [];
  if (inFlight > 0) parts.push(`It waits for ${counted(inFlight, "recording")} in flight.`);
  parts.push("Its final file is written, and it is unloaded.");
  if (recorded > 0) parts.push(`${counted(recorded, "new recording")} will be in the file.`);
  return parts.join(" ");
}

// Who else is in it, on a store that several instances share.
function shared({ instances }) {
  return instances.length > 1 && h("p", {}, `It is done on all ${instances.length} instances that share this store: ${instances.join(", ")}.`);
}

const FIRST = ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL"];

// Where the proxy is, and the lines to paste for each SDK.
function addresses({ proxy, base_urls: urls }) {
  const line = ([name, url]) => `export ${name}=${url}`;
  const all = Object.entries(urls);
  const [first, others] = [all.filter(([name]) => FIRST.includes(name)), all.filter(([name]) => !FIRST.includes(name))];
  const shown = first.length > 0 ? first : others.splice(0, 3);
  return h(
    "section.panel.addresses",
    {},
    h("h2", {}, "Base URLs"),
    h("p", {}, "The proxy listens at ", h("code", {}, proxy), ". Paste what your SDK reads, and start your app:"),
    h("div.lines", {}, shown.map((each) => command(line(each)))),
    others.length > 0 && h("details", {}, h("summary", {}, `${counted(others.length, "more variable")}`), h("div.lines", {}, others.map((each) => command(line(each))))),
    all.length === 0 && command(`curl ${proxy}/`),
  );
}

function firstSteps() {
  return emptyState(
    "Nothing was asked yet",
    "Point your app at the proxy: it needs only another base URL. Run this to see the variables that the SDKs read, then start your app.",
    command('eval "$(tapeway env)"'),
    "Each request appears in the journal as it comes, with what became of it.",
  );
}
