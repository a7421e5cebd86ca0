// A JSON value as a tree that opens part by part, with marked places and media shown as such.

import { fill, h } from "../shell/dom.js";
import { count, counted } from "../shell/format.js";
import { hasSought, sought } from "../shell/sought.js";
import { mediaElement } from "./media.js";
import { differences, marked } from "./text-diff.js";

const LONG_LIST = 60;
const LIST_HEAD = 30;
const MORE = 200;
const LONG_TEXT = 1500;
const OPEN_DEPTH = 6;
const OPEN_AT_FIRST = 150;

export const MARKS = {
  changed: { sign: "≠", says: "differs" },
  added: { sign: "+", says: "is only here" },
  missing: { sign: "−", says: "is only here" },
};

// `marks` is [{steps, kind, other}]: places that differ, and the value on the other side. `media`
// is [{steps, media_type, encoding, size}].
export function jsonTree(value, { marks = [], media = [], label = "JSON", open = OPEN_DEPTH } = {}) {
  const tree = new Tree([...marks, ...media].map((each) => each.steps).concat([...soughtIn(value, [])]), marks, media, open);
  return h("div.json", { role: "group", "aria-label": label }, tree.node(null, value, []));
}

class Tree {
  constructor(shown, marks, media, depth) {
    this.depth = depth;
    this.budget = OPEN_AT_FIRST; // lines that may be open without having been opened
    this.marks = new Map(marks.map((each) => [keyOf(each.steps), each]));
    this.media = new Map(media.map((each) => [keyOf(each.steps), each]));
    this.ways = new Set(); // what is shown at once, and its ancestors
    for (const steps of shown) {
      for (let length = 0; length <= steps.length; length += 1) this.ways.add(keyOf(steps.slice(0, length)));
    }
  }

  node(name, value, steps) {
    const key = keyOf(steps);
    const mark = this.marks.get(key);
    const line = value !== null && typeof value === "object" ? this.branch(name, value, steps, key) : this.leaf(name, value, mark, this.media.get(key));
    if (mark) {
      line.dataset.mark = mark.kind;
      line.dataset.place = key;
    }
    return line;
  }

  branch(name, value, steps, key) {
    const list = Array.isArray(value);
    const size = list ? value.length : Object.keys(value).length;
    if (size === 0) return h("div.json-leaf", {}, label(name), h("span.json-empty", {}, list ? "[ ]" : "{ }"), this.sign(key));
    const open = this.ways.has(key) || steps.length === 0 || (steps.length < this.depth && size <= this.budget);
    if (open) this.budget -= size;
    const inner = h("div.json-inner");
    const details = h(
      "details.json-branch",
      { open },
      h("summary", {}, label(name), h("span.json-size", {}, list ? `[ ${counted(size, "item")} ]` : `{ ${counted(size, "member")} }`), this.sign(key)),
      inner,
    );
    const build = () => inner.childElementCount === 0 && fill(inner, this.children(value, steps, list));
    if (open) build();
    details.addEventListener("toggle", () => details.open && build());
    return details;
  }

  children(value, steps, list) {
    const names = list ? value.map((_, at) => at) : Object.keys(value);
    const one = (name) => this.node(name, value[name], [...steps, name]);
    if (names.length <= LONG_LIST) return names.map(one);
    const wanted = (name, at) => at < LIST_HEAD || this.ways.has(keyOf([...steps, name]));
    const shown = [];
    let hidden = [];
    names.forEach((name, at) => {
      if (!wanted(name, at)) return hidden.push(name);
      if (hidden.length > 0) shown.push(gap(hidden, one));
      hidden = [];
      shown.push(one(name));
    });
    if (hidden.length > 0) shown.push(gap(hidden, one));
    return shown;
  }

  leaf(name, value, mark, media) {
    const shown = typeof value === "string" ? text(value, mark) : h(`span.json-${value === null ? "null" : typeof value}`, {}, sought(String(value)));
    const player = media && typeof value === "string" ? mediaElement(value, media) : null;
    return h("div.json-leaf", {}, label(name), player ?? shown, mark && sign(mark));
  }

  sign(key) {
    const mark = this.marks.get(key);
    return mark && sign(mark);
  }
}

function sign({ kind }) {
  return h("span.json-sign", { title: MARKS[kind].says }, MARKS[kind].sign, h("span.hidden-label", {}, MARKS[kind].says));
}

function label(name) {
  if (name === null) return null;
  return typeof name === "number" ? h("span.json-at", {}, `${name} `) : h("span.json-key", {}, sought(`${name}: `));
}

// Members that are not shown yet; a press shows the first of them.
function gap(hidden, one) {
  const button = h("button.quiet", { type: "button" }, `Show ${count(Math.min(hidden.length, MORE))} of ${count(hidden.length)} more`);
  button.addEventListener("click", () => {
    const [next, rest] = [hidden.slice(0, MORE), hidden.slice(MORE)];
    button.replaceWith(...next.map(one), ...(rest.length > 0 ? [gap(rest, one)] : []));
  });
  return button;
}

// A string, what differs in it marked, and only the parts around that where it is long.
function text(value, mark) {
  const span = h("span.json-string");
  const places = typeof mark?.other === "string" ? differences(value, mark.other) : [];
  const whole = () => fill(span, marked(value, places, value.length));
  if (value.length <= LONG_TEXT) return whole();
  const shown = places.length > 0 || hasSought(value) ? marked(value, places) : [value.slice(0, LONG_TEXT / 3), "…"];
  const all = h("button.quiet", { type: "button", on: { click: whole } }, `Show all ${count(value.length)} characters`);
  return fill(span, shown, " ", all);
}

// The steps to what is searched for.
function* soughtIn(value, steps) {
  if (value === null || typeof value !== "object") {
    if (hasSought(value)) yield steps;
  } else if (hasSought(value)) {
    const list = Array.isArray(value);
    for (const [name, each] of Object.entries(value)) {
      const below = [...steps, list ? Number(name) : name];
      if (!list && hasSought(name)) yield below;
      yield* soughtIn(each, below);
    }
  }
}

export function keyOf(steps) {
  return JSON.stringify(steps);
}
