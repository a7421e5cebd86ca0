// A body of a recording: JSON as a tree, text, an image, a sound, bytes. Of a large one the head.

import { copyButton, fill, h, tabs } from "../shell/dom.js";
import { size as sizeText } from "../shell/format.js";
import { sought } from "../shell/sought.js";
import { attempt } from "./dialog.js";
import { bytesOf, hexView } from "./hex.js";
import { jsonTree } from "./json-tree.js";
import { bytesElement, isImage, isSound, mediaElement, pictureElement } from "./media.js";
import { parseJson } from "./parse.js";

const MOST_TEXT = 200_000;

// `body` is one of the API's readable bodies. `whole()` resolves to all of its bytes, which a
// large body is asked for. `name` is the name of its download.
export function bodyView(body, { whole, name }) {
  if (body.kind === "empty") return h("p.muted", {}, "No body.");
  const element = h("div.body");
  const held = { ...body, bytes: body.base64 === null ? null : bytesOf(body.base64) };
  show(element, held, { whole, name });
  return element;
}

function show(element, body, { whole, name }) {
  fill(element, toolbar(element, body, { whole, name }), panes(body));
}

function toolbar(element, body, { whole, name }) {
  const download = h("button.quiet", { type: "button" }, "Download");
  download.addEventListener("click", () => attempt(download, async () => save(await bytes(body, whole), body.media_type, name)));
  const all = h("button.quiet", { type: "button" }, "Show all");
  all.addEventListener("click", () =>
    attempt(all, async () => {
      const found = await whole();
      const text = decoded(found);
      const kind = text === null ? "bytes" : body.kind;
      show(element, { ...body, kind, text, bytes: found, cut: false }, { whole, name });
    }),
  );
  return h(
    "div.buttons.body-bar",
    {},
    h("span.muted.small", {}, [body.media_type, sizeText(body.size), body.cut && "only the start is shown"].filter(Boolean).join(" · ")),
    body.cut && all,
    body.text !== null && copyButton(() => body.text),
    download,
  );
}

async function bytes(body, whole) {
  if (body.cut) return whole();
  return body.bytes ?? new TextEncoder().encode(body.text);
}

function decoded(found) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(found);
  } catch {
    return null;
  }
}

function panes(body) {
  const shown = [];
  if (body.parts?.length > 0) shown.push(["Parts", () => body.parts.map(partOf)]);
  if (body.kind === "json" && !body.cut) shown.push(["Tree", () => treeOf(body)]);
  if (body.kind === "form" && !body.cut) shown.push(["Fields", () => fields(body.text)]);
  const of = body.bytes;
  if (of !== null && !body.cut && (isImage(body.media_type) || isSound(body.media_type))) {
    shown.push([isImage(body.media_type) ? "Image" : "Sound", () => bytesElement(of, body.media_type)]);
  }
  if (body.text !== null) shown.push(["Text", () => textOf(body.text)]);
  if (of !== null || body.text !== null) shown.push(["Hex", () => hexView(of ?? new TextEncoder().encode(body.text))]);
  return tabs(shown, { label: "How to show the body" });
}

// A part of a multipart body: what it is called, and as much of it as can be shown.
function partOf({ name, filename, media_type: type, size, text, cut, base64 }) {
  const medium = base64 && (pictureElement(`data:${type};base64,${base64}`, "") ?? mediaElement(base64, { media_type: type, encoding: "base64", size }));
  return h(
    "section.part",
    {},
    h("p", {}, h("strong", {}, name ?? "part"), filename && [" ", h("code", {}, filename)], h("span.muted.small", {}, ` ${[type, sizeText(size)].filter(Boolean).join(" · ")}`)),
    medium,
    text && h("pre.text", { tabindex: "0", role: "region", "aria-label": name ?? "Part" }, text, cut && h("span.muted", {}, " …")),
  );
}

function treeOf(body) {
  const place = h("div", {}, h("p.muted", {}, "Reading…"));
  parseJson(body.text).then(
    (value) => fill(place, jsonTree(value, { media: body.media, label: "Body" })),
    (error) => fill(place, h("p", {}, `This is no JSON: ${error.message}`), textOf(body.text)),
  );
  return place;
}

function textOf(text) {
  const shown = text.slice(0, MOST_TEXT);
  const pre = h("pre.text", { tabindex: "0", role: "region", "aria-label": "Text" }, sought(shown));
  if (shown.length === text.length) return pre;
  const more = h("button.quiet", { type: "button", on: { click: () => (fill(pre, sought(text)), more.remove()) } }, "Show the rest");
  return [pre, more];
}

function fields(text) {
  const rows = [...new URLSearchParams(text)].map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, name), h("td.mono", {}, sought(value))));
  return h("table", {}, h("tbody", {}, rows));
}

function save(content, type, name) {
  // Never as HTML: a file that is opened from the disk would run what is in it.
  const address = URL.createObjectURL(new Blob([content], { type: type?.startsWith("image/") ? type : "application/octet-stream" }));
  const link = h("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
