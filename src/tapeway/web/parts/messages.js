// Messages of a model's call: newest in view, earlier ones folded and counted, tools by name.

import { h } from "../shell/dom.js";
import { counted, head, size } from "../shell/format.js";
import { hasSought } from "../shell/sought.js";
import { jsonTree } from "./json-tree.js";
import { pictureElement } from "./media.js";
import { differences, marked } from "./text-diff.js";

// The words of a message, or of an answer.
export function textOf({ parts }) {
  return parts.map((each) => (each.kind === "text" ? each.text : "")).join("");
}

const LONG = 1500;
const FEW = 3;

// `messages` is [{role, parts}], the last of them the answer. Without `others` the ones before the
// last answer of the model are folded; with the messages of another call those that are equal are.
export function messageList(messages, others = null) {
  if (others === null) return folded(messages);
  const [start, end] = [commonStart(messages, others), commonEnd(messages, others)];
  const last = messages.length - end;
  return [
    fold(messages.slice(0, start), "unchanged message"),
    messages.slice(start, last).map((each, at) => messageBox(each, { other: others[start + at] ?? null, newest: true })),
    fold(messages.slice(last), "unchanged message"),
  ];
}

function folded(messages) {
  const asked = messages.length - 1;
  const before = messages.slice(0, asked).findLastIndex((each) => each.role === "assistant" || each.role === "model") + 1;
  const first = messages.length <= FEW ? 0 : Math.max(before, asked > 0 && before === 0 ? asked - 1 : before);
  return [fold(messages.slice(0, first), "earlier message"), messages.slice(first).map((each) => messageBox(each, { newest: true }))];
}

function fold(messages, noun) {
  if (messages.length === 0) return null;
  return lazy(h("summary", {}, counted(messages.length, noun)), () => messages.map((each) => messageBox(each)), "details.fold", hasSought(messages.map((each) => each.parts)));
}

// What is inside is made when it is opened.
export function lazy(summary, make, tag = "details.tool", open = false, data = {}) {
  const inner = h("div.fold-inner");
  const details = h(tag, { open, data }, summary, inner);
  const build = () => inner.childElementCount === 0 && inner.append(...[make()].flat(Infinity).filter(Boolean));
  if (open) build();
  details.addEventListener("toggle", () => details.open && build());
  return details;
}

// `picture(sha256)` resolves to the data: URL of a picture that a part only names.
export function messageBox({ role, parts, error = "", notes = [] }, { other = null, newest = false, picture = null } = {}) {
  const result = parts.find((each) => each.kind === "result");
  return h(
    "article.message-box",
    { data: { role, failed: result?.failed ? "true" : undefined } },
    h("p.role", {}, result ? `tool result${result.name ? ` of ${result.name}` : ""}${result.failed ? ", failed" : ""}` : role),
    parts.map((each, at) => partOf(each, other?.parts[at]?.kind === each.kind ? other.parts[at] : null, newest, picture)),
    error && h("p.wrong", {}, marked(error, [], error.length)),
    notes.map((each) => h("p.small.muted", {}, each)),
  );
}

function partOf(part, other, newest, picture) {
  const places = other === null ? [] : differences(part.text, other.text);
  switch (part.kind) {
    case "thinking":
      return lazy(h("summary", {}, "Thinking"), () => prose(part.text, places), "details.tool", hasSought(part.text));
    case "call":
      return lazy(h("summary", {}, "calls ", h("code", {}, part.name), " ", h("span.muted.mono.closed", {}, head(argumentsText(part.value), 90))), () => structured(part.value, "Arguments"), "details.tool", newest || hasSought(part.value), { call: "true" });
    case "result":
      return lazy(h("summary", {}, h("span.mono.closed", {}, `${head(part.text, 100)} `), h("span.muted.small", {}, size(new Blob([part.text]).size))), () => (places.length > 0 ? prose(part.text, places) : structured(part.text, "Result")), "details.tool", (newest && part.text.length <= LONG) || hasSought(part.text));
    case "attachment":
      return attachment(part, picture);
    default:
      if (part.text.length <= LONG) return prose(part.text, places);
      return places.length > 0 ? h("p.prose", {}, marked(part.text, places)) : lazy(h("summary", {}, h("span.closed", {}, `${head(part.text, 200)} `), h("span.muted.small", {}, size(new Blob([part.text]).size))), () => prose(part.text, []), "details.tool", (newest && part.text.length <= 4 * LONG) || hasSought(part.text));
  }
}

// A picture where its data is at hand, or what is known of the part.
function attachment({ value, data }, picture) {
  const says = typeof value === "string" ? value : [value?.type, value?.name, value?.media_type, value?.bytes && size(value.bytes), value?.url, value?.id].filter(Boolean).join(" · ");
  const shown = h("div", {}, pictureElement(data, says) ?? h("p.small.muted", {}, says));
  if (!data && picture && value?.type === "image" && value.sha256) {
    picture(value.sha256).then((found) => {
      const element = pictureElement(found, says);
      if (element !== null) shown.replaceChildren(element);
    }, () => null);
  }
  return shown;
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
