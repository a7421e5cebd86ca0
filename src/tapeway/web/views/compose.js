// A new interaction by hand: what is asked, and what answers it.

import { path, send } from "../shell/api.js";
import { h } from "../shell/dom.js";
import { attempt, draftGuard, modal, notify } from "../parts/dialog.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];

// Asks for an interaction for the cassette; `done(index)` is called once it is stored.
export function compose(name, route, done) {
  const method = h("select", { id: "new-method" }, METHODS.map((each) => h("option", { value: each }, each)));
  const target = h("input.mono", { id: "new-path", value: "/", autocomplete: "off" });
  const origin = h("input.mono", { id: "new-route", value: route, autocomplete: "off" });
  const status = h("input", { id: "new-status", type: "number", min: 200, max: 599, value: 200 });
  const [asked, answered] = ["new-body", "new-answer"].map((id) => h("textarea.mono.editor", { id, spellcheck: "false", rows: 8 }));
  const wrong = h("p.wrong", { role: "alert" });
  const field = (label, input) => h("label.field.grow", { for: input.id }, label, input);
  const fields = [method, target, origin, status, asked, answered];
  const save = h("button.primary", { type: "button", on: { click: () => store() } }, "Store it");
  const dialog = modal(
    `A new interaction of ${name}`,
    [
      h("p.muted", {}, "A body that is JSON is stored as JSON, any other as text. Equal requests are answered by it."),
      h("div.filters", {}, field("Method", method), field("Path", target), field("Route", origin)),
      field("Body of the request", asked),
      h("div.filters", {}, field("Status", status)),
      field("Body of the answer", answered),
      wrong,
    ],
    [h("button", { type: "button", on: { click: () => dialog.leave() } }, "Cancel"), save],
    draftGuard(() => JSON.stringify(fields.map((each) => each.value))),
  );
  dialog.classList.add("wide");

  async function store() {
    if (!target.value.startsWith("/")) {
      wrong.textContent = "The path begins with a slash: /v1/models?limit=2";
      return;
    }
    const request = { method: method.value, url: target.value, ...bodyOf(asked.value), route: origin.value };
    const response = { status_code: Number(status.value), ...bodyOf(answered.value) };
    const added = await attempt(save, () => send("POST", path`cassettes/${name}/interactions`, { interactions: [{ kind: "http", request, response }] }));
    if (added === undefined) return;
    const [{ index }] = added.interactions;
    dialog.close();
    notify(`It is stored as #${index}.`);
    done(index);
  }
}

function bodyOf(text) {
  if (text.trim() === "") return {};
  try {
    return { headers: { "Content-Type": "application/json" }, json: JSON.parse(text) };
  } catch {
    return { headers: { "Content-Type": "text/plain; charset=utf-8" }, text };
  }
}
