// A recorded answer in time: when its pieces came, its events and the text they add up to.

import { fill, h, s, setText } from "../shell/dom.js";
import { count, counted, duration, head, size } from "../shell/format.js";
import { jsonTree } from "./json-tree.js";
import { textOf } from "./messages.js";
import { VirtualList } from "./virtual-list.js";

const WIDTH = 1000;
const HEIGHT = 56;

export function timelineView(timeline, answers) {
  return new TimelineView(timeline, answers).element;
}

class TimelineView {
  constructor(timeline, answers) {
    this.timeline = timeline;
    this.end = Math.max(timeline.last_byte_ms ?? 0, 1);
    this.events = timeline.events;
    this.whole = answers.map(textOf).filter(Boolean).join("\n\n");
    this.texts = textsUpTo(this.events);
    this.build();
  }

  build() {
    this.now = s("line.now", { x1: 0, x2: 0, y1: 0, y2: HEIGHT, visibility: "hidden" });
    this.at = h("span.number.mono", {}, "");
    this.play = h("button.primary", { type: "button", on: { click: () => this.toggle() } }, "▶ Play");
    this.text = h("pre.text.assembled", { tabindex: "0", role: "region", "aria-label": "Assembled text" }, this.whole || "This answer adds up to no text.");
    this.detail = h("div");
    this.list = new VirtualList({
      label: "Events, in the order they came",
      key: (at) => at,
      row: (at) => h("div.row", {}, h("span.number.muted", {}, duration(this.events[at].at_ms)), h("span.mono", {}, this.added(at))),
      open: (at) => this.open(at),
    });
    this.element = h(
      "div.timeline",
      {},
      h("dl.numbers", {}, this.facts().map(([term, value]) => h("div", {}, h("dt", {}, term), h("dd", {}, value)))),
      this.axis(),
      h("div.buttons", {}, this.play, this.at),
      h("div.sides", {}, h("div", {}, h("h3", {}, "Assembled text"), this.text), h("div", {}, h("h3", {}, counted(this.events.length, "event"), this.timeline.events_left_out > 0 && `, and ${count(this.timeline.events_left_out)} more`), h("div.list.events", {}, this.list.element), this.detail)),
    );
    this.list.resize(this.events.length);
  }

  // What an event adds: its text, or where it has none what of it is not in the one before.
  added(at) {
    const text = delta(this.events[at].text);
    if (text !== "") return h("span.prose", {}, head(JSON.stringify(text).slice(1, -1), 200));
    const [own, before] = [this.events[at].text, this.events[at - 1]?.text ?? ""];
    let start = 0;
    while (start < own.length && own[start] === before[start]) start += 1;
    return h("span.muted", {}, head(`${start > 20 ? "… " : ""}${own.slice(start > 20 ? start - 8 : 0)}`, 200));
  }

  // What is not known is left out.
  facts() {
    const { chunks, chunks_left_out: more, first_byte_ms: first, last_byte_ms: last, longest_gap_ms: gap, longest_gap_at_ms: gapAt, tokens_per_second: rate } = this.timeline;
    return [
      ["First byte", duration(first)],
      ["Last byte", duration(last)],
      ["Longest gap", gap === null ? "–" : `${duration(gap)} at ${duration(gapAt)}`],
      ["Pieces", count(chunks.length + more)],
      ["Tokens a second", rate === null ? "–" : rate.toFixed(1)],
    ].filter(([, value]) => value !== "–");
  }

  axis() {
    const { chunks, longest_gap_ms: gap, longest_gap_at_ms: gapAt } = this.timeline;
    const largest = Math.max(...chunks.map((each) => each.size), 1);
    const bars = chunks.map((each) => {
      const height = 8 + (Math.log1p(each.size) / Math.log1p(largest)) * (HEIGHT - 12);
      const bar = s("rect.bar", { x: this.x(each.at_ms) - 1, y: HEIGHT - height, width: 2.5, height });
      bar.append(s("title", {}, `${duration(each.at_ms)}: ${size(each.size)}`));
      return bar;
    });
    const pause = gap > 0 && s("rect.gap", { x: this.x(gapAt), y: 0, width: Math.max(this.x(gapAt + gap) - this.x(gapAt), 1), height: HEIGHT });
    const label = `${counted(chunks.length, "piece")} from ${duration(this.timeline.first_byte_ms)} to ${duration(this.timeline.last_byte_ms)}`;
    const drawn = s("svg.axis", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label }, pause, bars, this.now);
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((each) => h("span", {}, duration(each * this.end)));
    return h("div.axis-frame", {}, drawn, h("div.ticks", { "aria-hidden": "true" }, ticks));
  }

  x(milliseconds) {
    return (milliseconds / this.end) * WIDTH;
  }

  toggle() {
    if (this.frame !== undefined) return this.stop();
    const start = performance.now();
    this.play.textContent = "■ Stop";
    // It grows while it plays, and nothing below it moves.
    this.text.style.height = `${this.text.offsetHeight}px`;
    this.now.setAttribute("visibility", "visible");
    const step = () => {
      const passed = performance.now() - start;
      if (passed >= this.end || !this.element.isConnected) return this.stop();
      this.show(passed);
      this.frame = requestAnimationFrame(step);
    };
    this.frame = requestAnimationFrame(step);
  }

  show(passed) {
    const x = this.x(passed);
    this.now.setAttribute("x1", x);
    this.now.setAttribute("x2", x);
    setText(this.at, duration(passed));
    let reached = -1;
    while (reached + 1 < this.events.length && this.events[reached + 1].at_ms <= passed) reached += 1;
    setText(this.text, reached < 0 ? "" : this.texts[reached]);
    if (reached >= 0 && reached !== this.list.selected) this.list.select(reached);
  }

  stop() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    this.play.textContent = "▶ Play";
    this.now.setAttribute("visibility", "hidden");
    setText(this.at, "");
    setText(this.text, this.whole || "This answer adds up to no text.");
  }

  open(at) {
    this.list.select(at);
    const { text } = this.events[at];
    let shown;
    try {
      shown = jsonTree(JSON.parse(text), { label: `Event ${at + 1}` });
    } catch {
      shown = h("pre.text", {}, text);
    }
    fill(this.detail, h("h3", {}, `Event ${at + 1}, after ${duration(this.events[at].at_ms)}`), shown);
  }
}

// The text that the events up to each of them add up to, for the play. What an answer really adds
// up to comes from the API.
function textsUpTo(events) {
  let text = "";
  return events.map((each) => (text += delta(each.text)));
}

function delta(event) {
  let found;
  try {
    found = JSON.parse(event);
  } catch {
    return "";
  }
  const parts = [
    found?.choices?.[0]?.delta?.content,
    found?.choices?.[0]?.text,
    found?.type === "response.output_text.delta" ? found.delta : undefined,
    found?.delta?.text,
    found?.candidates?.[0]?.content?.parts?.map((each) => (each.thought ? "" : (each.text ?? ""))).join(""),
    found?.message?.content,
    found?.contentBlockDelta?.delta?.text,
    found?.response,
  ];
  return parts.find((each) => typeof each === "string") ?? "";
}
