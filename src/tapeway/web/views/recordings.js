// Recordings under way: calls that the upstream has not answered to their end.

import { get } from "../shell/api.js";
import { emptyState, fill, h, setText } from "../shell/dom.js";
import { counted, duration, size } from "../shell/format.js";
import { address } from "../shell/router.js";

const EVERY_MS = 500;

export const STATES = {
  asking: ["waiting for the upstream", "nothing is recorded yet"],
  receiving: ["receiving", "not durable yet"],
  storing: ["storing", "all has come, and is being written"],
  durable: ["durable", "in the store, whatever happens now"],
  passed_on: ["passed on", "not recorded"],
  failed: ["failed", "not recorded"],
};

export async function open({ signal }) {
  const list = h("ul.underway", { "aria-label": "Recordings under way" });
  const nothing = h("div");
  const said = h("span.muted.small", { role: "status" });
  const rows = new Map();
  async function refresh() {
    const { recordings } = await get("recordings", {}, signal);
    const ids = new Set(recordings.map((each) => each.id));
    for (const [id, row] of rows) if (!ids.has(id)) (row.element.remove(), rows.delete(id));
    for (const each of recordings) {
      if (!rows.has(each.id)) {
        rows.set(each.id, newRow(each));
        list.append(rows.get(each.id).element);
      }
      rows.get(each.id).show(each);
    }
    setText(said, counted(recordings.length, "recording"));
    if (list.childElementCount === 0 && nothing.childElementCount === 0) {
      fill(nothing, emptyState("Nothing is being recorded now", "A call to the upstream appears here until its answer is stored. Open it to watch its answer come."));
    } else if (list.childElementCount > 0) fill(nothing);
  }
  await refresh();
  const timer = setInterval(() => document.visibilityState === "visible" && refresh().catch((error) => signal.aborted || setText(said, error.message)), EVERY_MS);
  signal.addEventListener("abort", () => clearInterval(timer));
  return h("div", {}, h("div.heading", {}, h("h1", {}, "Recordings under way"), said), nothing, list);
}

function newRow(recording) {
  const state = h("span.tag");
  const numbers = h("span.muted.small");
  const link = h("a.mono", { href: address("recordings", recording.id) }, `${recording.method} ${recording.path}`);
  const element = h("li.panel", {}, link, " ", state, h("br"), h("span.small", {}, `cassette ${recording.cassette}`), " ", numbers);
  return {
    element,
    show: (now) => {
      setText(state, STATES[now.state]?.[0] ?? now.state);
      setText(numbers, `${size(now.bytes)} in ${counted(now.chunks, "piece")}, ${duration(now.elapsed_ms)}`);
    },
  };
}
