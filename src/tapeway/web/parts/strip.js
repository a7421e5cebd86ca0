// What every view shows above it: whether tapeway answers, its mode and cassette, where to send.

import { get } from "../shell/api.js";
import { copyButton, h, setText } from "../shell/dom.js";
import { address } from "../shell/router.js";
import { onStatus } from "../shell/status.js";

export function strip() {
  const dot = h("span.dot", { role: "img", "aria-label": "asking" });
  const mode = h("a.mode", { href: "#/deck", title: "The mode in force" });
  const active = h("a.mono", { title: "The active cassette" });
  const proxy = h("code");
  const copy = copyButton(() => proxy.textContent, "Copy address");
  copy.title = "Where the proxy listens";
  copy.hidden = true;
  const element = h("div.strip", { role: "region", "aria-label": "What tapeway does now" }, dot, mode, active, h("span.grow"), proxy, copy);
  let asked = false;
  onStatus((status) => {
    setText(mode, status.mode);
    mode.dataset.mode = status.mode;
    setText(active, status.cassette);
    active.href = address("cassettes", status.cassette);
    if (asked) return;
    asked = true;
    get("clients").then(
      (clients) => (setText(proxy, clients.proxy), (copy.hidden = false)),
      () => (asked = false),
    );
  });
  return {
    element,
    answers: (there) => {
      dot.dataset.state = there ? "live" : "broken";
      dot.ariaLabel = dot.title = there ? "tapeway answers" : "tapeway does not answer";
    },
  };
}
