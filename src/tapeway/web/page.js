// Starts the page: the frame around the views, and which view is open.

import { onReachable, request, setTokenPrompt } from "./shell/api.js";
import { IS_REPORT, fill, h, setText } from "./shell/dom.js";
import { parse } from "./shell/router.js";
import { askToken } from "./parts/dialog.js";

// Views by the first part of the address. A module has `open(context)`, which returns its element
// or a promise of it, and has it all stop when `context.signal` is aborted.
const VIEWS = {
  deck: { label: "Deck", load: () => import("./views/deck.js") },
  journal: { label: "Journal", load: () => import("./views/journal.js") },
  cassettes: { label: "Cassettes", load: () => import("./views/cassettes.js") },
  recordings: { label: "Recordings", load: () => import("./views/recordings.js") },
  conversation: { label: "Conversation", within: "cassettes", load: () => import("./views/conversation.js") },
  ...(IS_REPORT && { summary: { label: "Summary", load: () => import("./views/summary.js") } }),
  compare: { label: "Compare", load: () => import("./views/compare.js") },
};
const NAVIGATION = IS_REPORT ? ["summary", "deck", "journal", "cassettes"] : ["deck", "journal", "recordings", "cassettes", "compare"];

// Views of one thing, by the number of parts of their address.
const DEEPER = {
  "journal 2": () => import("./views/entry.js"),
  "recordings 2": () => import("./views/recording.js"),
  "cassettes 2": () => import("./views/cassette.js"),
  "cassettes 3": () => import("./views/interaction.js"),
};

const BACK_MS = 4000;
const ASK_MS = 2000;
const SLOW_MS = 400;

let current = null;
const main = h("main", { id: "main", tabindex: "-1" });
const links = NAVIGATION.map((name) => h("a", { href: `#/${name}`, data: { view: name } }, VIEWS[name].label));

function start() {
  setTokenPrompt(askToken);
  // Hides what is of class `changes`.
  document.documentElement.classList.toggle("report", IS_REPORT);
  const skip = h("button.skip", { type: "button", on: { click: () => main.focus() } }, "Skip to content");
  const brand = h("a.brand", { href: IS_REPORT ? "#/summary" : "#/deck" }, h("img", { src: "web/icon.svg", alt: "", width: 28, height: 28 }), "tapeway");
  document.body.append(
    skip,
    h("header.frame", {}, brand, h("nav", { "aria-label": "Views" }, links)),
    main,
    watchServer(),
    h("div.notes", { id: "notes", role: "status", "aria-live": "polite" }),
  );
  addEventListener("hashchange", () => show(true));
  addEventListener("keydown", press);
  show(false);
}

// Keys that every view has: what an element names as its `data-key`, and those of a list.
function press(event) {
  if (event.target.matches?.("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  main.querySelector(`[data-key="${CSS.escape(event.key)}"]`)?.click();
  const list = main.querySelector(".virtual");
  if (!["j", "k", "ArrowDown", "ArrowUp"].includes(event.key) || list === null || event.target.closest?.(".virtual, .tabs, pre")) return;
  list.focus();
  list.list.press(event);
}

// What tells that the server is gone, and that it is back, in whichever view.
function watchServer() {
  const note = h("p.away", { role: "alert", hidden: true });
  let timer;
  const say = (text) => {
    clearTimeout(timer);
    setText(note, text);
    note.hidden = text === "";
  };
  const ask = () => document.visibilityState === "visible" && request("GET", "../../healthz").catch(() => null);
  if (!IS_REPORT) setInterval(ask, ASK_MS);
  onReachable((there) => {
    if (!there) return say("tapeway does not answer: it has stopped, or the network to it is down.");
    say("tapeway is back.");
    timer = setTimeout(() => say(""), BACK_MS);
  });
  return note;
}

async function show(moved) {
  current?.abort();
  const opened = (current = new AbortController());
  const { parts, query } = parse(location.hash);
  const name = VIEWS[parts[0]] ? parts[0] : "deck";
  for (const link of links) {
    link.ariaCurrent = link.dataset.view === (VIEWS[name].within ?? name) ? "page" : null;
  }
  document.title = `${VIEWS[name].label} · tapeway`;
  const slow = setTimeout(() => opened.signal.aborted || fill(main, h("p.empty.muted", { role: "status" }, "Loading … The first look at a large cassette takes some seconds.")), SLOW_MS);
  let element;
  try {
    const load = DEEPER[`${name} ${parts.length}`] ?? VIEWS[name].load;
    element = await (await load()).open({ parts: parts.slice(1), query, signal: opened.signal });
  } catch (error) {
    element = failure(error);
  } finally {
    clearTimeout(slow);
  }
  if (opened.signal.aborted) return;
  fill(main, element);
  scrollTo(0, 0);
  if (moved) (main.querySelector(".virtual[data-restored]") ?? main).focus({ preventScroll: true });
}

function failure(error) {
  const again = h("button", { type: "button", on: { click: () => show(false) } }, "Try again");
  return h("div.empty", { role: "alert" }, h("h1", {}, "This cannot be shown"), h("p", {}, error.message), again);
}

start();
