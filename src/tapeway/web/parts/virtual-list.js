// A list of any length of which only the visible rows are elements.

import { h } from "../shell/dom.js";

const OVERSCAN = 6;

// `row(at)` builds the row at a position, `key(at)` names it so that it is built once, and
// `reach(first, last)` is called with the rows that are on the screen. A row that is a link leads to
// its address, and Back returns to it, unless `follow(at)` says that it did so; of any other row
// `open(at)` is called for Enter and a click. `moved(at)` is called where a key selected a row.
// The height of a row comes from `--row-height` of the list's style.
export class VirtualList {
  constructor({ label, row, key, open = () => {}, reach = () => {} }) {
    Object.assign(this, { row, key, open, reach, follow: () => false, moved: () => {} });
    this.left = history.state?.list ?? null; // where this list was left
    this.count = 0;
    this.selected = -1;
    this.shown = new Map();
    this.rows = h("div.rows", { role: "presentation" });
    this.element = h("div.virtual", { role: "listbox", tabindex: "0", "aria-label": label }, this.rows);
    this.element.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.press(event));
    this.element.addEventListener("click", (event) => {
      const row = event.target.closest("[data-at]");
      if (row === null) return;
      const at = Number(row.dataset.at);
      if (!row.href) this.open(at);
      else if (!(event.ctrlKey || event.metaKey || event.shiftKey) && this.follow(at)) event.preventDefault();
      else this.leave(at);
    });
    this.element.list = this;
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  // The position of a key, -1 where the list does not have it.
  find(key) {
    for (let at = 0; at < this.count; at += 1) if (this.key(at) === key) return at;
    return -1;
  }

  // Say how many rows there are. `added` of them are new in front: what is on the screen stays
  // where it is, unless that is the front.
  resize(count, added = 0) {
    const height = this.height;
    this.setCount(count);
    if (added > 0 && this.selected >= 0) this.selected = Math.min(this.selected + added, count - 1);
    if (added > 0 && this.element.scrollTop > height / 2) this.element.scrollTop += added * height;
    this.draw();
  }

  // Another list of so many rows, from its front.
  renew(count) {
    for (const each of this.shown.values()) each.remove();
    this.shown.clear();
    this.selected = -1;
    this.setCount(count);
    this.element.scrollTop = 0;
    this.draw();
  }

  // The style makes the height of it, so that it has its height before it is drawn.
  setCount(count) {
    this.count = count;
    this.element.style.setProperty("--count", count);
  }

  get height() {
    return Number.parseFloat(getComputedStyle(this.element).getPropertyValue("--row-height")) || 40;
  }

  schedule() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  // Note the row in the history, for who comes back.
  leave(at) {
    history.replaceState({ ...history.state, list: { at, key: this.key(at), top: this.element.scrollTop } }, "");
  }

  // Go back to the row from which the list was left.
  restore() {
    const { at, key, top } = this.left;
    this.left = null;
    const near = Math.min(at, this.count - 1);
    const found = this.key(near) === key ? near : Math.max(this.find(key), 0);
    this.element.scrollTop = top === null ? (found - 2) * this.height : top + (found - at) * this.height;
    this.selected = found;
    this.element.setAttribute("aria-activedescendant", `row-${found}`);
    this.element.dataset.restored = "true";
  }

  draw() {
    if (this.left !== null && this.count > 0 && this.element.clientHeight > 0) this.restore();
    const { height } = this;
    if (this.drawn && this.drawn.height !== height) {
      // In a narrower place rows are higher: what was on the screen stays there.
      this.element.scrollTop = (this.drawn.top * height) / this.drawn.height;
      if (this.selected >= 0) this.uncover(this.selected);
    }
    const { scrollTop, clientHeight } = this.element;
    this.drawn = { height, top: scrollTop };
    const visible = Math.ceil(clientHeight / height);
    const top = Math.floor(scrollTop / height);
    const first = Math.max(0, top - OVERSCAN);
    const last = Math.min(this.count, top + visible + OVERSCAN);
    const kept = new Map();
    for (let at = first; at < last; at += 1) {
      const key = this.key(at);
      let element = this.shown.get(key);
      if (element?.classList.contains("loading")) {
        // It may have come meanwhile.
        element.remove();
        element = undefined;
      }
      element ??= this.built(at);
      this.shown.delete(key);
      kept.set(key, element);
      this.place(element, at, height);
    }
    for (const each of this.shown.values()) each.remove();
    this.shown = kept;
    // Who hears the page is told the rows in the order of the document.
    let next = this.rows.firstElementChild;
    for (const each of kept.values()) {
      if (each === next) next = next.nextElementSibling;
      else this.rows.insertBefore(each, next);
    }
    if (last > first) this.reach(first, last);
  }

  built(at) {
    const element = this.row(at);
    element.setAttribute("role", "option");
    // The list has the focus, and Enter follows the row that is selected.
    if (element.href) element.tabIndex = -1;
    return element;
  }

  place(element, at, height) {
    element.style.transform = `translateY(${at * height}px)`;
    if (element.dataset.at === String(at) && element.ariaSetSize === String(this.count)) {
      element.ariaSelected = String(at === this.selected);
      return;
    }
    element.dataset.at = String(at);
    element.id = `row-${at}`;
    element.ariaSelected = String(at === this.selected);
    element.ariaPosInSet = String(at + 1);
    element.ariaSetSize = String(this.count);
  }

  press(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count };
    if (event.key === "Enter" && this.selected >= 0) this.rows.querySelector(`[data-at="${this.selected}"]`)?.click();
    if (steps[event.key] === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.select(Math.max(0, Math.min(this.count - 1, this.selected + steps[event.key])));
    this.moved(this.selected);
  }

  select(at) {
    if (this.count === 0) return;
    this.selected = at;
    if (this.element.clientHeight === 0) this.left = { at, key: this.key(at), top: null };
    this.uncover(at);
    this.draw();
    this.element.setAttribute("aria-activedescendant", `row-${at}`);
  }

  // Scroll as far as it takes to see a row.
  uncover(at) {
    const [height, { scrollTop, clientHeight }] = [this.height, this.element];
    if (at * height < scrollTop) this.element.scrollTop = at * height;
    if ((at + 1) * height > scrollTop + clientHeight) this.element.scrollTop = (at + 1) * height - clientHeight;
  }
}
