// The keys of the page, in a dialog.

import { h } from "../shell/dom.js";
import { modal } from "./dialog.js";

const KEYS = [
  ["j k ↓ ↑", "the next and the previous row; what is open changes with it"],
  ["Enter", "open the row"],
  ["Esc", "close what is open"],
  ["[ ]", "the call before and after"],
  ["r", "request and answer as they came"],
  ["/", "search"],
  ["?", "these keys"],
];

export function keyHelp() {
  const rows = KEYS.map(([keys, says]) => h("tr", {}, h("th", { scope: "row" }, keys.split(" ").map((each) => [h("kbd", {}, each), " "])), h("td", {}, says)));
  const dialog = modal("Keys", [h("table", {}, h("tbody", {}, rows))], [h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")]);
}
