// Dialogs that ask before something is done, and notes that say what was done.

import { fill, h } from "../shell/dom.js";

// Resolves to true where it was confirmed. `body` is a list of nodes and texts. What cannot be
// undone is not what Enter does at once.
export function confirm({ title, body, action, danger = false }) {
  return new Promise((resolve) => {
    const dialog = modal(title, body, [
      h("button", { type: "button", autofocus: danger, on: { click: () => close(false) } }, "Cancel"),
      h(`button.${danger ? "danger" : "primary"}`, { type: "button", autofocus: !danger, on: { click: () => close(true) } }, action),
    ]);
    function close(answer) {
      dialog.returnValue = answer ? "yes" : "";
      dialog.close();
    }
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
  });
}

// A dialog that is shown until it is closed, and removed then. `mayLeave()` resolves to whether it may
// be closed without its work having been done; `leave()` of the dialog asks it.
export function modal(title, body, buttons, mayLeave = () => true) {
  const dialog = h(
    "dialog",
    { "aria-label": title },
    h("h2", {}, title),
    h("div.dialog-body", {}, body),
    h("div.buttons", {}, buttons),
  );
  document.body.append(dialog);
  dialog.leave = async () => (await mayLeave()) && dialog.close();
  dialog.addEventListener("cancel", (event) => {
    event.preventDefault();
    dialog.leave();
  });
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

// The browser asks too, before the page with a draft is left.
addEventListener("beforeunload", (event) => document.querySelector("dialog[open] textarea:not([readonly])") && event.preventDefault());

// For `mayLeave`: asks before a draft is thrown away. `draft()` is what was written so far.
export function draftGuard(draft) {
  const first = draft();
  return async () => draft() === first || confirm({ title: "Throw the draft away?", body: [h("p", {}, "What you have written is stored nowhere.")], action: "Throw it away", danger: true });
}

// Leave all dialogs: what they are about is no longer on the page.
export function leaveDialogs() {
  for (const each of document.querySelectorAll("dialog[open]")) each.leave();
}

// Asks for the token until there is one.
export function askToken(wrong) {
  return new Promise((resolve) => {
    const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true });
    const submit = () => {
      if (field.value === "") return;
      resolve(field.value);
      dialog.close("token");
    };
    field.addEventListener("keydown", (event) => event.key === "Enter" && submit());
    const dialog = modal(
      "This tapeway needs its token",
      [
        h("p", {}, wrong ? "That token was not accepted. Try again." : "It is the value of --admin-token or TAPEWAY_ADMIN_TOKEN. It stays in this tab."),
        h("label.field", { for: "token" }, "Token", field),
      ],
      [h("button.primary", { type: "button", on: { click: submit } }, "Continue")],
      // There is nothing to see without it.
      () => false,
    );
  });
}

// Say in a corner, and to screen readers, what was done.
export function notify(text, kind = "done") {
  const note = h("div.note", { data: { kind } }, text);
  fill(document.getElementById("notes"), note);
  setTimeout(() => note.remove(), kind === "failed" ? 12_000 : 5000);
}

// Run what a button does; say what failed. The button is off meanwhile.
export async function attempt(button, action) {
  if (button) button.disabled = true;
  try {
    return await action();
  } catch (error) {
    if (error.name !== "AbortError") notify(error.message, "failed");
    return undefined;
  } finally {
    if (button) button.disabled = false;
  }
}
