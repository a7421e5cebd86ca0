// Messages of a model's call: newest in view, earlier ones folded and counted, tools by name.

import { h } from "../shell/dom.js";
import { counted, head, size } from "../shell/format.js";
import { hasSought } from "../shell/sought.js";
import { jsonTree } from "./json-tree.js";
import { differences, marked } from "./text-diff.js";

const LONG = 1500;
const FEW = 3;

// `messages` is [{role, parts}], the last of them the answer. Without `others` the ones before the
// last answer of the model are folded; with the messages of another call those that are equal are.
export function messageList(messages, others = null) {
  const names = toolNames(messages);
  if (others === null) return folded(messages, names);
  const [start, end] = [commonStart(messages, others), commonEnd(messages, others)];
  const last = messages.length - end;
  return [
    fold(messages.slice(0, start), "unchanged message", names),
    messages.slice(start, last).map((each, at) => messageBox(each, { names, other: others[start + at] ?? null, newest: true })),
    fold(messages.slice(last), "unchanged message", names),
  ];
}

function folded(messages, names) {
  const asked = messages.length - 1;
  const before = messages.slice(0, asked).findLastIndex((each) => each.role === "assistant" || each.role === "model") + 1;
  const first = messages.length <= FEW ? 0 : Math.max(before, asked > 0 && before === 0 ? asked - 1 : before);
  return [fold(messages.slice(0, first), "earlier message", names), messages.slice(first).map((each) => messageBox(each, { names, newest: true }))];
}

function fold(messages, noun, names) {
  if (messages.length === 0) return null;
  return lazy(h("summary", {}, counted(messages.length, noun)), () => messages.map((each) => messageBox(each, { names })), "details.fold", hasSought(messages.map((each) => each.parts)));
}

// What is inside is made when it is opened.
export function lazy(summary, make, tag = "details.tool", open = false) {
  const inner = h("div.fold-inner");
  const details = h(tag, { open }, summary, inner);
  const build = () => inner.childElementCount === 0 && inner.append(...[make()].flat(Infinity).filter(Boolean));
  if (open) build();
  details.addEventListener("toggle", () => details.open && build());
  return details;
}

function toolNames(messages) {
  const calls = messages.flatMap((each) => each.parts).filter((each) => each.kind === "call" && each.id);
  return new Map(calls.map((each) => [each.id, each.name]));
}

export function messageBox({ role, parts, error = "", notes = [] }, { names = new Map(), other = null, newest = false } = {}) {
  const result = parts.find((each) => each.kind === "result");
  const tool = result && (result.name || names.get(result.id));
  return h(
    "article.message-box",
    { data: { role } },
    h("p.role", {}, result ? `tool result${tool ? ` of ${tool}` : ""}` : role),
    parts.map((each, at) => partOf(each, other?.parts[at]?.kind === each.kind ? other.parts[at] : null, newest)),
    error && h("p.wrong", {}, marked(error, [], error.length)),
    notes.map((each) => h("p.small.muted", {}, each)),
  );
}

function partOf(part, other, newest) {
  const places = other === null ? [] : differences(part.text, other.text);
  switch (part.kind) {
    case "thinking":
      return lazy(h("summary", {}, "Thinking"), () => prose(part.text, places), "details.tool", hasSought(part.text));
    case "call":
      return lazy(h("summary", {}, "calls ", h("code", {}, part.name), " ", h("span.muted.mono.closed", {}, head(argumentsText(part.value), 90))), () => structured(part.value, "Arguments"), "details.tool", newest || hasSought(part.value));
    case "result":
      return lazy(h("summary", {}, h("span.mono.closed", {}, `${head(part.text, 100)} `), h("span.muted.small", {}, size(new Blob([part.text]).size))), () => (places.length > 0 ? prose(part.text, places) : structured(part.text, "Result")), "details.tool", (newest && part.text.length <= LONG) || hasSought(part.text));
    case "attachment":
      return h("p.small.muted", {}, typeof part.value === "string" ? part.value : JSON.stringify(part.value));
    default:
      if (part.text.length <= LONG) return prose(part.text, places);
      return places.length > 0 ? h("p.prose", {}, marked(part.text, places)) : lazy(h("summary", {}, h("span.closed", {}, `${head(part.text, 200)} `), h("span.muted.small", {}, size(new Blob([part.text]).size))), () => prose(part.text, []), "details.tool", (newest && part.text.length <= 4 * LONG) || hasSought(part.text));
  }
}

function argumentsText(value) {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

export function structured(value, label) {
  if (typeof value !== "string") return jsonTree(value, { label });
  try {
    const parsed = JSON.parse(value);
    if (parsed !== null && typeof parsed === "object") return jsonTree(parsed, { label });
  } catch {
    // It is a text.
  }
  return prose(value, []);
}

function prose(text, places) {
  return h("p.prose", {}, marked(text, places, text.length));
}

function same(one, two) {
  return JSON.stringify(one) === JSON.stringify(two);
}

function commonStart(one, two) {
  let at = 0;
  while (at < one.length && at < two.length && same(one[at], two[at])) at += 1;
  return at;
}

function commonEnd(one, two) {
  const most = Math.min(one.length, two.length) - commonStart(one, two);
  let at = 0;
  while (at < most && same(one[one.length - 1 - at], two[two.length - 1 - at])) at += 1;
  return at;
}
