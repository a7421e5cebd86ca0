// A list and what is opened of it: side by side, or on a narrow screen one over the other.

import { fill, h } from "../shell/dom.js";
import { replace } from "../shell/router.js";
import { failure } from "./failure.js";

const SETTLED_MS = 60; // a key that is held down opens only where it stops
const SLOW_MS = 400;

// `master` is the element around `list`, a VirtualList. `open(key, signal)` resolves to {element,
// title} of what has that key, and may tell `before` and `after`, the keys beside it, for where the
// list does not have it. `address(key)` leads there, and without a key to the list alone. `down` is
// how far from one row to the row after it in time.
export class Split {
  constructor({ master, list, label, title, address, open, signal, down = 1 }) {
    Object.assign(this, { list, title, address, open, down });
    this.key = null;
    this.near = {};
    const step = (name, key, to) => h("button.quiet", { type: "button", "aria-keyshortcuts": key, data: { key }, on: { click: () => this.go(this.near[to]) } }, name, " ", h("kbd", { "aria-hidden": "true" }, key));
    this.before = step("previous", "[", "before");
    this.after = step("next", "]", "after");
    const close = h("button.quiet.close", { type: "button", data: { key: "Escape" }, "aria-keyshortcuts": "Escape", on: { click: () => this.close() } }, "Back to the list ", h("kbd", { "aria-hidden": "true" }, "Esc"));
    this.shown = h("div.opened-part");
    this.pane = h("section.side-pane", { "aria-label": label, tabindex: "-1", hidden: true }, h("div.pane-bar", {}, this.before, this.after, close), this.shown);
    this.element = h("div.split", {}, h("div.master", {}, master), this.pane);
    list.follow = (at) => this.key !== null && this.go(list.key(at));
    list.moved = (at) => {
      clearTimeout(this.settling);
      if (this.key !== null) this.settling = setTimeout(() => this.go(list.key(at)), SETTLED_MS);
    };
    signal.addEventListener("abort", () => (clearTimeout(this.settling), this.loading?.abort()));
  }

  // Another one in the place of what is open: Back still leads to the list.
  go(key) {
    if (key === null || key === undefined || key === this.key) return true;
    replace(this.address(key));
    return true;
  }

  close() {
    if (history.state?.opened) history.back();
    else replace(this.address());
  }

  // Show what has this key as it is now, or the list alone for none.
  async show(key = null) {
    this.loading?.abort();
    if (this.key === null && key !== null && this.element.isConnected) history.replaceState({ ...history.state, opened: true }, "");
    const closes = key === null && this.key !== null;
    this.key = key;
    this.element.classList.toggle("opened", key !== null);
    this.pane.hidden = key === null;
    if (key === null) {
      fill(this.shown);
      document.title = this.title;
      if (closes) this.list.element.focus({ preventScroll: true });
      return;
    }
    this.mark();
    const loading = (this.loading = new AbortController());
    const slow = setTimeout(() => loading.signal.aborted || fill(this.shown, h("p.muted", { role: "status" }, "Loading …")), SLOW_MS);
    const found = await this.open(key, loading.signal).catch((error) => ({ element: failure(error, () => this.show(key)) }));
    clearTimeout(slow);
    if (loading.signal.aborted) return;
    this.found = found;
    if (found.title) document.title = `${found.title} · tapeway`;
    fill(this.shown, found.element);
    this.mark();
    this.pane.scrollTop = 0;
    requestAnimationFrame(() => this.pane.querySelector("mark.found")?.scrollIntoView({ block: "center" }));
    if (getComputedStyle(this.list.element).visibility === "hidden") {
      this.pane.focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }

  // Select the row of what is open, and tell the ones beside it: also after the list has changed.
  mark() {
    if (this.key === null) return;
    const { list } = this;
    const at = list.find(this.key);
    // Who has scrolled away from it stays there.
    if (at >= 0 && at !== list.selected) list.select(at);
    const there = (place) => (place >= 0 && place < list.count ? list.key(place) : null);
    this.near = at >= 0 ? { before: there(at - this.down), after: there(at + this.down) } : { before: this.found?.before, after: this.found?.after };
    this.before.disabled = !keyed(this.near.before);
    this.after.disabled = !keyed(this.near.after);
  }
}

function keyed(key) {
  return key !== null && key !== undefined;
}
