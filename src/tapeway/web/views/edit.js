// Edits the answer of a recording. Somebody else's change meanwhile is shown beside one's own.

import { checked, refusal, request } from "../shell/api.js";
import { fill, h } from "../shell/dom.js";
import { attempt, draftGuard, modal, notify } from "../parts/dialog.js";

const EDITED = ["response", "error", "latency_ms", "usage", "tags"];

// Opens the editor for the interaction at this path of the API; `done()` is called once it is stored.
export async function edit(button, where, done) {
  const stored = await attempt(button, () => read(where));
  if (stored !== undefined) new EditView(where, stored, done);
}

async function read(where) {
  const response = await checked("GET", where);
  return { document: await response.json(), etag: response.headers.get("ETag") };
}

class EditView {
  constructor(where, { document, etag }, done) {
    Object.assign(this, { where, document, etag, done });
    this.field = h("textarea.mono.editor", { id: "answer", spellcheck: "false", rows: 22 });
    this.field.value = answerOf(document);
    this.wrong = h("p.wrong", { role: "alert" });
    this.theirs = h("div");
    this.save = h("button.primary", { type: "button", on: { click: () => attempt(this.save, () => this.store()) } }, "Save");
    this.dialog = modal(
      "Edit the answer",
      [
        h("p.muted", {}, "Status, headers, body, usage and tags, in the form of the cassette. The next replay has them."),
        h("div.sides", {}, h("label.field", { for: "answer" }, "Answer", this.field), this.theirs),
        this.wrong,
      ],
      [h("button", { type: "button", on: { click: () => this.dialog.leave() } }, "Cancel"), this.save],
      draftGuard(() => this.field.value),
    );
    this.dialog.classList.add("wide");
    this.field.setSelectionRange(0, 0);
    this.field.scrollTop = 0;
    this.field.addEventListener("input", () => this.check());
  }

  // The edited document, null where the text is no JSON object.
  check() {
    let edited;
    try {
      edited = JSON.parse(this.field.value);
    } catch (error) {
      this.wrong.textContent = `This is no JSON: ${error.message}`;
      return null;
    }
    if (edited === null || typeof edited !== "object" || Array.isArray(edited)) {
      this.wrong.textContent = "The answer must be a JSON object.";
      return null;
    }
    this.wrong.textContent = "";
    const others = Object.fromEntries(Object.entries(this.document).filter(([name]) => !EDITED.includes(name)));
    return { ...others, ...edited };
  }

  async store() {
    const body = this.check();
    if (body === null) return;
    const response = await request("PUT", this.where, { body, headers: { "If-Match": this.etag } });
    if (response.status === 412) return this.conflict();
    if (!response.ok) {
      this.wrong.textContent = (await refusal(response)).message;
      return;
    }
    const { repeated = [] } = await response.json();
    this.dialog.close();
    notify(["The answer is stored.", ...repeated].join(" "));
    this.done();
  }

  // Both are shown; what is saved next replaces what the other one stored, knowingly.
  async conflict() {
    const now = await read(this.where);
    this.document = now.document;
    this.etag = now.etag;
    const theirs = h("textarea.mono.editor", { id: "theirs", readonly: true, rows: 22 });
    theirs.value = answerOf(now.document);
    fill(this.theirs, h("label.field", { for: "theirs" }, "Stored meanwhile by somebody else", theirs), h("button.quiet", { type: "button", on: { click: () => (this.field.value = theirs.value) } }, "Take over this one"));
    this.wrong.textContent = "Somebody changed this recording meanwhile. Nothing was stored. Compare both; Save now replaces theirs.";
    this.save.textContent = "Save over theirs";
  }
}

function answerOf(document) {
  return JSON.stringify(Object.fromEntries(EDITED.filter((name) => name in document).map((name) => [name, document[name]])), null, 2);
}
