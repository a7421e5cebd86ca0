// Builds elements. Text becomes text nodes and nothing else: no string ever becomes markup here.

// Whether this is a file with a journal in it, where nothing comes and nothing can be changed.
export const IS_REPORT = document.getElementById("recorded") !== null;

// Whether an address leads somewhere: a report holds a part of what there was.
export function leads(hash) {
  if (!IS_REPORT || !hash.startsWith("#/")) return true;
  const [view, name, index] = hash.slice(2).split("?")[0].split("/").map(decodeURIComponent);
  if (["compare", "recordings"].includes(view)) return false;
  if (name === undefined) return true;
  if (view === "journal") return globalThis.reportHolds(`journal/${name}`);
  if (view === "conversation") return globalThis.reportHolds(`cassettes/${name}/turns`);
  return globalThis.reportHolds(index === undefined ? `cassettes/${name}/titles` : `cassettes/${name}/interactions/${index}/view`);
}

const SVG = "http://www.w3.org/2000/svg";

// h("button.primary", { on: { click }, disabled: true }, "Eject") is a button with that text.
// A null, undefined or false child is left out; a list of children is taken apart.
export function h(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElement(name), classes, properties, children);
}

// The same for SVG.
export function s(tag, properties = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  return filled(document.createElementNS(SVG, name), classes, properties, children);
}

function filled(element, classes, properties, children) {
  if (classes.length > 0) element.classList.add(...classes);
  for (const [name, value] of Object.entries(properties)) set(element, name, value);
  append(element, children);
  return element;
}

function set(element, name, value) {
  if (value === undefined || value === null || value === false) return;
  if (name === "href" && !leads(value)) return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "data") {
    for (const [key, each] of Object.entries(value)) if (each !== undefined) element.dataset[key] = each;
  } else if (name === "class") {
    element.classList.add(...String(value).split(" ").filter(Boolean));
  } else if (name === "value" || name === "checked" || name === "indeterminate") {
    element[name] = value;
  } else {
    element.setAttribute(name, value === true ? "" : String(value));
  }
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

// Put other children in place of those there are.
export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Change a text only where it differs, so that nothing is drawn and read out for nothing.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const OUTCOMES = {
  replayed: { sign: "▶", label: "replayed", says: "answered from the cassette" },
  recorded: { sign: "●", label: "recorded", says: "asked upstream and recorded" },
  live: { sign: "⇄", label: "live", says: "passed on, not recorded" },
  miss: { sign: "✕", label: "miss", says: "not in the cassette" },
  error: { sign: "!", label: "error", says: "failed" },
};

// The outcome of a request by sign, word and colour.
export function outcomeBadge(outcome) {
  const known = OUTCOMES[outcome] ?? { sign: "?", label: outcome, says: outcome };
  return h(
    "span.outcome",
    { data: { outcome }, title: known.says },
    h("span.sign", { "aria-hidden": "true" }, known.sign),
    h("span.label", {}, known.label),
  );
}

// A text with paths in it, which may be broken after their separators and not inside their words.
export function breakable(text) {
  return text.split(/(?<=[./\\\]_=&?])|(?=\[)/).map((each, at) => [at > 0 && h("wbr"), each]);
}

// What a view shows where there is nothing yet: what that means, and what to do first.
export function emptyState(title, ...says) {
  return h("div.empty", {}, h("h2", {}, title), says.map((each) => (each instanceof Node ? each : h("p", {}, each))));
}

// A command to copy, with its button.
export function command(text) {
  return h("div.command", {}, h("code", {}, text), copyButton(() => text));
}

export function copyButton(text, label = "Copy") {
  const button = h("button.quiet", { type: "button" }, label);
  button.addEventListener("click", async () => {
    const copied = await copy(text());
    button.textContent = copied ? "Copied" : "Not allowed";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// One pane open, the others a click away. `panes` is [[label, () => element], ...].
export function tabs(panes, { label, selected = 0, onSelect } = {}) {
  const pane = h("div.pane", { role: "tabpanel", tabindex: "0" });
  const buttons = panes.map(([name], at) =>
    h("button", { type: "button", role: "tab", on: { click: () => select(at) } }, name),
  );
  function select(at) {
    buttons.forEach((each, number) => {
      each.setAttribute("aria-selected", String(number === at));
      each.tabIndex = number === at ? 0 : -1;
    });
    pane.setAttribute("aria-label", panes[at][0]);
    fill(pane, panes[at][1]());
    onSelect?.(panes[at][0]);
  }
  const list = h("div.tabs", { role: "tablist", "aria-label": label }, buttons);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    const at = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
    select(at);
    buttons[at].focus();
  });
  select(Math.min(selected, panes.length - 1));
  return h("div.tabbed", {}, list, pane);
}
