// Cells of rows: what was asked and what came, and when, on an axis that the rows in view share.

import { h, s } from "../shell/dom.js";
import { duration } from "../shell/format.js";
import { sought } from "../shell/sought.js";

const WIDTH = 1000;
const LEAST = 6;
const TOGETHER_MS = -0.5; // times come as whole milliseconds, and most replays take less

// A request in a row: what it asked, then method and path, which most rows share; below it what came
// of it. Of a GET the path says what was asked.
export function requestCell(each, title, ...more) {
  const asked = each.method === "GET" ? "" : each.asked;
  const way = [each.method && [h("span.method", {}, each.method), " "], h("span.mono", {}, sought(each.path ?? each.summary))];
  return h(
    "span.what",
    { title: [title, each.asked, each.answered].filter(Boolean).join("\n") },
    h("span.line", {}, h("span.asked", {}, asked ? sought(asked) : way), more, asked && h("span.way.muted.small", {}, way)),
    each.answered && h("span.line.answered", {}, each.outcome === "miss" ? "≠ " : "→ ", sought(each.answered)),
  );
}

// A cell of two lines, the second of them small.
export function twoLines(tag, first, second, properties) {
  return h(tag, properties, h("span.line", {}, first), second && h("span.line.muted.small", {}, second));
}

// The cell of a row in which `drawWaterfall` draws.
export function waterfallCell(outcome) {
  return h("span.fall", { "aria-hidden": "true", data: { outcome } }, s("svg", { viewBox: `0 0 ${WIDTH} 16`, preserveAspectRatio: "none" }));
}

// Draw when the calls of these rows of a list began, waited and streamed; returns how long they took
// together. `call(at)` is {at, real, took, waited} in milliseconds, null for a row without times.
export function drawWaterfall(list, first, last, call) {
  const rows = [];
  for (let at = first; at < last; at += 1) {
    const found = call(at);
    if (found !== null) rows.push({ ...found, key: list.key(at) });
  }
  rows.sort((one, two) => one.at - two.at);
  const end = place(rows);
  for (const each of rows) list.shown.get(each.key)?.querySelector(".fall")?.replaceChildren(drawn(each, WIDTH / end));
  return end;
}

// Where each call begins on the axis. A replay is drawn as long as its recording was, and what came
// after it comes after that. Nothing is shorter for a pause that is longer than every call.
function place(calls) {
  const longest = Math.max(...calls.map((each) => each.took), 1);
  let [real, end, before] = [0, 0, null];
  for (const each of calls) {
    const idle = each.at - real;
    each.cut = before !== null && idle > longest;
    if (before === null) each.start = 0;
    else if (idle < TOGETHER_MS) each.start = before.start + each.at - before.at;
    else each.start = end + Math.min(idle, longest);
    each.idle = before === null ? 0 : idle;
    real = Math.max(real, each.at + each.real);
    end = Math.max(end, each.start + each.took);
    before = each;
  }
  return Math.max(end, 1);
}

function drawn({ start, took, waited, cut, idle }, scale) {
  const first = Math.min(waited ?? took, took);
  const says = [cut && `after a pause of ${duration(idle)}`, first > 0 && `waited ${duration(first)}`, took - first >= 1 && `streamed ${duration(took - first)}`];
  const bar = (kind, from, length, least) => s("rect", { class: kind, x: Math.min(from * scale, WIDTH - LEAST), y: kind === "waited" ? 6 : 3, width: Math.max(length * scale, least), height: kind === "waited" ? 4 : 10 });
  return s(
    "svg",
    { viewBox: `0 0 ${WIDTH} 16`, preserveAspectRatio: "none" },
    s("title", {}, says.filter(Boolean).join(", ")),
    cut && s("line", { class: "pause", x1: 0, x2: start * scale, y1: 8, y2: 8 }),
    bar("waited", start, first, 0),
    bar("streamed", start + first, took - first, LEAST),
  );
}
