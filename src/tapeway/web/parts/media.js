// Images and sounds, shown by the browser from bytes that a recording holds.

import { h } from "../shell/dom.js";
import { size as sizeText } from "../shell/format.js";

const IMAGES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const SOUNDS = /^audio\/(mpeg|mp3|wav|x-wav|wave|ogg|opus|webm|mp4|aac|flac|x-flac)$/;
const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*$/;
const BASE64 = /^[A-Za-z0-9+/_=\s-]*$/;

export function isImage(type) {
  return IMAGES.test(bare(type));
}

export function isSound(type) {
  return SOUNDS.test(bare(type));
}

function bare(type) {
  return (type ?? "").split(";")[0].trim().toLowerCase();
}

// A raster image of a message, which the API has found to be one; null for any other data: URL.
export function pictureElement(url, says) {
  if (!PICTURE.test(url ?? "")) return null;
  return h("figure.media", {}, h("img", { src: url, alt: "recorded image" }), says && h("figcaption.muted.small", {}, says));
}

// An image or a player for a string of JSON, null where the browser shows no such thing.
export function mediaElement(value, { media_type: type, encoding, size }) {
  const data = encoding === "data_url" ? value.slice(value.indexOf(",") + 1) : value;
  if (!["base64", "data_url"].includes(encoding) || !BASE64.test(data)) return null;
  return player(`data:${bare(type)};base64,${data.replace(/-/g, "+").replace(/_/g, "/")}`, type, size);
}

// The same for bytes. The address of the blob is given back when the page is left.
export function bytesElement(bytes, type) {
  return player(URL.createObjectURL(new Blob([bytes], { type: bare(type) })), type, bytes.length);
}

// An SVG is an image here: as one it loads nothing and runs nothing.
function player(address, type, size) {
  const caption = h("figcaption.muted.small", {}, `${bare(type)}, ${sizeText(size)}`);
  if (isImage(type)) return h("figure.media", {}, h("img", { src: address, alt: `recorded image, ${bare(type)}` }), caption);
  if (isSound(type)) return h("figure.media", {}, h("audio", { src: address, controls: true, "aria-label": `recorded sound, ${bare(type)}` }), caption);
  return null;
}
