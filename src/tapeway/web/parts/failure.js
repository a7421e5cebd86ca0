// What stands where something cannot be shown. The page tries again once the server is back.

import { h } from "../shell/dom.js";

export function failure(error, again) {
  const element = h("div.empty", { role: "alert" }, h("h1", {}, "This cannot be shown"), h("p", {}, error.message), h("button", { type: "button", on: { click: again } }, "Try again"));
  const back = () => element.isConnected && again();
  if (error.status === 0) addEventListener("tapeway-back", back, { once: true });
  return element;
}
