// What the address searches for: it is marked wherever it is shown, and what is folded over it opens.

import { h } from "./dom.js";

const MOST_MARKS = 500;

let pattern = null;

export function seek(text) {
  pattern = text === "" ? null : new RegExp(text.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"), "giu");
}

// The places of a text that were searched for, as [start, end] in order.
export function soughtPlaces(text) {
  if (pattern === null || typeof text !== "string") return [];
  return [...text.matchAll(pattern)].slice(0, MOST_MARKS).map((each) => [each.index, each.index + each[0].length]);
}

// Whether a value, or a value in it, has what is searched for.
export function hasSought(value) {
  if (pattern === null || value === null || value === undefined) return false;
  if (typeof value !== "object") return String(value).search(pattern) >= 0;
  return Object.entries(value).some(([name, each]) => name.search(pattern) >= 0 || hasSought(each));
}

// A text with what is searched for marked.
export function sought(text) {
  const places = soughtPlaces(text);
  if (places.length === 0) return text;
  let at = 0;
  const parts = places.map(([start, end]) => {
    const before = text.slice(at, start);
    at = end;
    return [before, h("mark.found", {}, text.slice(start, end))];
  });
  return [parts, text.slice(at)];
}
