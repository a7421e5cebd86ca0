// One recording while it is made: its pieces and its text as they come, and whether it is durable.

import { checked, path } from "../shell/api.js";
import { emptyState, h, s, setText } from "../shell/dom.js";
import { serverEvents } from "../shell/events.js";
import { counted, duration, size } from "../shell/format.js";
import { address } from "../shell/router.js";
import { STATES } from "./recordings.js";

const WIDTH = 1000;
const HEIGHT = 56;

export async function open({ parts: [id], signal }) {
  let response;
  try {
    response = await checked("GET", path`recordings/${id}/events`, { signal, headers: { Accept: "text/event-stream" } });
  } catch (error) {
    if (error.status !== 404) throw error;
    return h("div", {}, h("h1", {}, "This recording has ended"), emptyState("It is in the journal now", h("a", { href: "#/journal?outcome=recorded" }, "Open the journal"), h("a", { href: "#/recordings" }, "Recordings under way")));
  }
  const view = new RecordingView();
  view.follow(response.body, signal);
  return view.element;
}

class RecordingView {
  constructor() {
    this.pieces = [];
    this.title = h("h1.mono.long", {}, "Recording");
    this.state = h("p.durability", { role: "status" });
    this.numbers = h("p.muted.small");
    this.where = h("p.crumbs");
    this.text = h("pre.text.growing", { tabindex: "0", role: "region", "aria-label": "What has come so far" });
    this.axis = s("svg.axis", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": "Pieces in time" });
    this.element = h(
      "div",
      {},
      h("div.heading", {}, h("p.crumbs", {}, h("a", { href: "#/recordings" }, "Recordings under way")), this.title, this.where),
      h("section.panel", {}, this.state, this.numbers, this.axis, this.text),
    );
  }

  async follow(body, signal) {
    try {
      for await (const events of serverEvents(body)) {
        for (const each of events) this.show(each);
      }
    } catch (error) {
      if (signal.aborted) return;
      setText(this.state, `The connection was lost: ${error.message}`);
      addEventListener("tapeway-back", () => dispatchEvent(new HashChangeEvent("hashchange")), { once: true, signal });
    }
  }

  show(now) {
    setText(this.title, `${now.method} ${now.path}`);
    const [label, says] = STATES[now.state] ?? [now.state, ""];
    setText(this.state, now.message ? `${label}: ${now.message}` : `${label}: ${says}`);
    this.state.dataset.state = now.state;
    const link = now.index === null ? "" : h("a", { href: address("cassettes", now.cassette, now.index) }, `Open #${now.index}`);
    this.where.replaceChildren(`cassette ${now.cassette} · `, link);
    setText(this.numbers, [now.status, `${size(now.bytes)} in ${counted(now.chunks, "piece")}`, duration(now.elapsed_ms), now.cut && "the text is not kept up beyond 1 MiB"].filter(Boolean).join(" · "));
    if (now.text !== null) {
      if (now.reset) this.text.textContent = now.text;
      else this.text.append(now.text);
      this.text.scrollTop = this.text.scrollHeight;
    }
    this.draw(now);
  }

  draw({ new_chunks: fresh, elapsed_ms: elapsed }) {
    this.pieces.push(...fresh);
    const end = Math.max(elapsed, 1);
    this.axis.replaceChildren(...this.pieces.slice(-2000).map(([at, bytes]) => s("rect.bar", { x: (at / end) * WIDTH, y: HEIGHT - 8 - Math.min(Math.log1p(bytes) * 5, HEIGHT - 12), width: 2.5, height: 8 + Math.min(Math.log1p(bytes) * 5, HEIGHT - 12) })));
  }
}
