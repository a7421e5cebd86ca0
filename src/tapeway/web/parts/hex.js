// Bytes as hexadecimal numbers beside what of them is text: sixteen in a row, on a phone eight.

import { h } from "../shell/dom.js";
import { count } from "../shell/format.js";
import { VirtualList } from "./virtual-list.js";

const ROW = matchMedia("(max-width: 760px)").matches ? 8 : 16;

export function hexView(bytes) {
  const list = new VirtualList({
    label: `${count(bytes.length)} bytes in hexadecimal`,
    key: (at) => at,
    row: (at) => h("div.hex-row.mono", {}, line(bytes, at * ROW)),
    open: () => {},
  });
  list.element.classList.add("hex");
  list.resize(Math.ceil(bytes.length / ROW));
  return list.element;
}

function line(bytes, start) {
  const part = bytes.subarray(start, start + ROW);
  const numbers = Array.from(part, (each) => each.toString(16).padStart(2, "0")).join(" ");
  const letters = Array.from(part, (each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "·")).join("");
  return `${start.toString(16).padStart(8, "0")}  ${numbers.padEnd(ROW * 3 - 1)}  ${letters}`;
}

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}
