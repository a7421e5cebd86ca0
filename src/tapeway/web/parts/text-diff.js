// Where two texts differ, word by word, and a text with these places marked.

import { h } from "../shell/dom.js";
import { sought, soughtPlaces } from "../shell/sought.js";

// Bounds of the work: beyond them, all between the common start and end counts as different.
const MOST_LETTERS = 50_000;
const MOST_EDITS = 600;

const AROUND = 90; // letters shown on either side of a mark
const WORD = /[\p{L}\p{N}_]/u;
const TOKENS = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;

// The places of `text` that are not in `other`, as [start, end] in order.
export function differences(text, other) {
  // The same alignment from both sides.
  const [one, two] = text < other ? [text, other] : [other, text];
  const [start, oneEnd, twoEnd] = middle(one, two);
  const [first, second] = [one.slice(start, oneEnd), two.slice(start, twoEnd)];
  const own = text === one ? first : second;
  const whole = own === "" ? [] : [[start, start + own.length]];
  if (first === "" || second === "" || first.length + second.length > MOST_LETTERS) return whole;
  const edits = shortestEdits(first.match(TOKENS), second.match(TOKENS));
  if (edits === null) return whole;
  return joined(text, edits[text === one ? 0 : 1].map(([from, to]) => [start + from, start + to]));
}

// The text with these places marked, and what is searched for. `most` says how many letters a text may
// have to be shown whole; of a longer one only what is around the marks is.
export function marked(text, places, most = 0) {
  const marks = text.length <= most ? [] : [...places, ...soughtPlaces(text)].sort(([one], [two]) => one - two);
  if (marks.length === 0) return pieces(text, 0, text.length, places);
  const shown = [];
  for (const [from, to] of marks) {
    const last = shown.at(-1);
    if (last && from - AROUND <= last[1]) last[1] = Math.min(text.length, Math.max(last[1], to + AROUND));
    else shown.push([Math.max(0, from - AROUND), Math.min(text.length, to + AROUND)]);
  }
  const parts = shown.map(([from, to]) => [from > 0 && "…", pieces(text, from, to, places)]);
  return [parts, shown.at(-1)[1] < text.length && "…"];
}

function pieces(text, from, to, places) {
  const found = [];
  let at = from;
  for (const [start, end] of places) {
    if (start < from || end > to) continue;
    found.push(sought(text.slice(at, start)), h("mark", {}, sought(text.slice(start, end))));
    at = end;
  }
  found.push(sought(text.slice(at, to)));
  return found;
}

// Where the common start ends, and where the common end begins in each; never inside a word.
function middle(one, two) {
  let start = 0;
  while (start < one.length && start < two.length && one[start] === two[start]) start += 1;
  while (start > 0 && WORD.test(one[start - 1]) && (inWord(one, start) || inWord(two, start))) start -= 1;
  let [oneEnd, twoEnd] = [one.length, two.length];
  while (oneEnd > start && twoEnd > start && one[oneEnd - 1] === two[twoEnd - 1]) [oneEnd, twoEnd] = [oneEnd - 1, twoEnd - 1];
  while (oneEnd < one.length && WORD.test(one[oneEnd]) && (inWord(one, oneEnd) || inWord(two, twoEnd))) [oneEnd, twoEnd] = [oneEnd + 1, twoEnd + 1];
  return [start, oneEnd, twoEnd];
}

function inWord(text, at) {
  return at > 0 && at < text.length && WORD.test(text[at - 1]) && WORD.test(text[at]);
}

// The tokens only in the first list and those only in the second, each as [start, end] in letters;
// null where there are too many. E. W. Myers, "An O(ND) Difference Algorithm", Algorithmica 1986.
function shortestEdits(first, second) {
  const most = Math.min(MOST_EDITS, first.length + second.length);
  const reach = new Int32Array(2 * most + 3); // how far each diagonal has come
  const trace = [];
  for (let edits = 0; edits <= most; edits += 1) {
    trace.push(reach.slice(most + 1 - edits - 1, most + 1 + edits + 2));
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const at = most + 1 + diagonal;
      const down = diagonal === -edits || (diagonal !== edits && reach[at - 1] < reach[at + 1]);
      let x = down ? reach[at + 1] : reach[at - 1] + 1;
      while (x < first.length && x - diagonal < second.length && first[x] === second[x - diagonal]) x += 1;
      reach[at] = x;
      if (x >= first.length && x - diagonal >= second.length) return walkedBack(trace, first, second);
    }
  }
  return null;
}

function walkedBack(trace, first, second) {
  const [removed, added] = [[], []];
  let [x, y] = [first.length, second.length];
  for (let edits = trace.length - 1; edits > 0; edits -= 1) {
    const before = trace[edits]; // diagonals from -edits - 1 on
    const diagonal = x - y;
    const at = diagonal + edits + 1;
    const down = diagonal === -edits || (diagonal !== edits && before[at - 1] < before[at + 1]);
    x = down ? before[at + 1] : before[at - 1];
    y = x - (down ? diagonal + 1 : diagonal - 1);
    if (down) added.push(y);
    else removed.push(x);
  }
  return [letters(first, removed.reverse()), letters(second, added.reverse())];
}

// Positions of tokens as [start, end] in letters.
function letters(tokens, positions) {
  const wanted = new Set(positions);
  const found = [];
  let start = 0;
  tokens.forEach((token, at) => {
    if (wanted.has(at)) found.push([start, start + token.length]);
    start += token.length;
  });
  return found;
}

// Places that touch, or that only blanks are between, as one.
function joined(text, places) {
  const found = [];
  for (const [start, end] of places) {
    const last = found.at(-1);
    if (last && text.slice(last[1], start).trim() === "") last[1] = end;
    else found.push([start, end]);
  }
  return found;
}
