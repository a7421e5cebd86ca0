// Starts the page: the frame around the views, and which view is open.

import { onReachable, setTokenPrompt } from "./shell/api.js";
import { IS_REPORT, fill, h, setText } from "./shell/dom.js";
import { parse } from "./shell/router.js";
import { seek } from "./shell/sought.js";
import { watchStatus } from "./shell/status.js";
import { askToken, leaveDialogs } from "./parts/dialog.js";
import { failure } from "./parts/failure.js";
import { keyHelp } from "./parts/keys.js";
import { strip } from "./parts/strip.js";
import * as cassette from "./views/cassette.js";
import * as cassettes from "./views/cassettes.js";
import * as compare from "./views/compare.js";
import * as conversation from "./views/conversation.js";
import * as deck from "./views/deck.js";
import * as journal from "./views/journal.js";
import * as recording from "./views/recording.js";
import * as recordings from "./views/recordings.js";
import * as summary from "./views/summary.js";

// Views by the first part of the address. A module has `open(context)`, which returns its element
// or a promise of it, and has it all stop when `context.signal` is aborted. An element may have
// `moved(address)`, which says whether it shows that address itself. All are loaded at the start:
// there may be no server later.
const VIEWS = {
  deck: { label: "Deck", of: deck },
  journal: { label: "Journal", of: journal },
  cassettes: { label: "Cassettes", of: cassettes, one: cassette },
  recordings: { label: "Recordings", of: recordings, one: recording },
  conversation: { label: "Conversation", within: "cassettes", of: conversation },
  ...(IS_REPORT && { summary: { label: "Summary", of: summary } }),
  compare: { label: "Compare", of: compare },
};
const NAVIGATION = IS_REPORT ? ["summary", "deck", "journal", "cassettes"] : ["journal", "deck", "recordings", "cassettes", "compare"];

const BACK_MS = 4000;
const SLOW_MS = 400;

let current = null;
const main = h("main", { id: "main", tabindex: "-1" });
const links = NAVIGATION.map((name) => h("a", { href: `#/${name}`, data: { view: name } }, VIEWS[name].label));

function start() {
  setTokenPrompt(askToken);
  // Hides what is of class `changes`.
  document.documentElement.classList.toggle("report", IS_REPORT);
  const skip = h("button.skip", { type: "button", on: { click: () => main.focus() } }, "Skip to content");
  const brand = h("a.brand", { href: IS_REPORT ? "#/summary" : "#/journal" }, h("img", { src: "web/icon.svg", alt: "", width: 28, height: 28 }), "tapeway");
  const keys = h("button.quiet.help", { type: "button", data: { key: "?" }, "aria-keyshortcuts": "?", on: { click: keyHelp } }, "Keys ", h("kbd", {}, "?"));
  const above = IS_REPORT ? null : strip();
  document.body.append(
    skip,
    h("header.frame", {}, brand, h("nav", { "aria-label": "Views" }, links), keys),
    h("div.content", {}, above?.element ?? "", main),
    watchServer(above),
    h("div.notes", { id: "notes", role: "status", "aria-live": "polite" }),
  );
  addEventListener("hashchange", () => show(true));
  addEventListener("keydown", press);
  if (!IS_REPORT) watchStatus();
  show(false);
}

// Keys that every view has: what an element names as its `data-key`, and those of a list.
function press(event) {
  if (event.target.matches?.("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const wanted = [...document.querySelectorAll(`[data-key="${CSS.escape(event.key)}"]`)].find((each) => each.checkVisibility({ visibilityProperty: true }));
  if (wanted?.matches("input")) {
    event.preventDefault();
    wanted.focus();
  } else wanted?.click();
  const list = main.querySelector(".virtual");
  const letter = event.key === "j" || event.key === "k";
  if (!(letter || event.key === "ArrowDown" || event.key === "ArrowUp") || list === null) return;
  if (event.target.closest?.(letter ? ".virtual" : ".virtual, .tabs, pre, .side-pane")) return;
  list.focus({ preventScroll: true });
  list.list.press(event);
}

// What tells that the server is gone, and that it is back, in whichever view.
function watchServer(above) {
  const note = h("p.away", { role: "alert", hidden: true });
  let timer;
  const say = (text) => {
    clearTimeout(timer);
    setText(note, text);
    note.hidden = text === "";
  };
  above?.answers(true);
  onReachable((there) => {
    above?.answers(there);
    if (!there) return say("tapeway does not answer: it has stopped, or the network to it is down.");
    say("tapeway is back.");
    timer = setTimeout(() => say(""), BACK_MS);
    dispatchEvent(new Event("tapeway-back"));
  });
  return note;
}

async function show(moved) {
  const place = parse(location.hash);
  const { parts, query } = place;
  leaveDialogs();
  seek(query.negate === "true" ? "" : (query.text ?? ""));
  const name = Object.hasOwn(VIEWS, parts[0] ?? "") ? parts[0] : "journal";
  const view = VIEWS[name];
  for (const link of links) link.ariaCurrent = link.dataset.view === (view.within ?? name) ? "page" : null;
  if (main.firstChild?.moved?.(place)) return;
  current?.abort();
  const { signal } = (current = new AbortController());
  document.title = `${view.label} · tapeway`;
  const slow = setTimeout(() => signal.aborted || fill(main, h("p.empty.muted", { role: "status" }, "Loading … The first look at a large cassette takes some seconds.")), SLOW_MS);
  let element;
  try {
    element = await (parts.length > 1 && view.one ? view.one : view.of).open({ parts: parts.slice(1), query, signal, first: parts.length === 0 });
  } catch (error) {
    element = failure(error, () => show(false));
  } finally {
    clearTimeout(slow);
  }
  if (signal.aborted) return;
  fill(main, element);
  scrollTo(0, 0);
  if (moved) (main.querySelector(".virtual[data-restored]") ?? main).focus({ preventScroll: true });
}

start();
