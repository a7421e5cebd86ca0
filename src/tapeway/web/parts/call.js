// A call for reading, whatever became of it: as messages where a model was asked, and as it came.

import { h } from "../shell/dom.js";
import { hasSought, sought } from "../shell/sought.js";
import { bodyView } from "./body.js";
import { lazy, messageList, textOf } from "./messages.js";
import { sessionView } from "./session.js";
import { timelineView } from "./timeline.js";

const VERDICTS = {
  marked: ["complete, with its end mark", "good"],
  complete: ["complete", "good"],
  unmarked: ["ended without its end mark", "warn"],
  error: ["an error inside a success", "warn"],
  truncated: ["truncated", "warn"],
};

// `whole(body, side)` resolves to all bytes of a body; `name` is what downloads are called.
export function callView(view, { name, whole }) {
  // The messages of a session have their times.
  const inTime = view.timeline?.events.length > 1 && !view.session;
  const said = messagesOf(view);
  const raw = h("div.sides", {}, sideOf("Request", [h("p.mono.address", {}, view.method, " ", sought(view.url)), message(view.request, "request")]), sideOf("Answer", [failure(view), view.response && [statusOf(view.response), message(view.response, "response")]]));

  function message({ headers, body }, side) {
    const rows = headers.map(([field, value]) => h("tr", {}, h("th", { scope: "row" }, field), h("td.mono", {}, sought(value))));
    return [
      h("details.headers", { open: hasSought(headers) }, h("summary", {}, `Headers (${headers.length})`), h("table", {}, h("tbody", {}, rows))),
      bodyView(body, { name: `${name}-${side}${suffix(body.media_type)}`, whole: () => whole(body, side) }),
    ];
  }

  return [
    view.session && h("section.panel.messages", {}, h("h2", {}, "Messages"), sessionView(view.session)),
    said.length > 0 && !view.session && h("section.panel.messages", {}, h("h2", {}, "Messages"), messageList(said)),
    inTime && h("section.panel", {}, h("h2", {}, "In time"), timelineView(view.timeline, view.answers ?? [])),
    said.length > 0 || view.session ? rawOf("Request and answer as they came", () => raw, !hasSought(said.map((each) => each.parts)) && hasSought([view.request, view.response])) : raw,
  ];
}

// What a call of a model says: the messages of its request, and its answers as the last ones.
export function messagesOf(view) {
  const asked = view.messages ?? [];
  const answers = (view.answers ?? []).map((each) => ({
    role: each.error && !textOf(each) ? `answer ${view.response?.status ?? ""}` : each.role || "assistant",
    parts: each.parts,
    error: each.error,
    notes: [each.stop_reason && `Stopped because of ${each.stop_reason}.`].filter(Boolean),
  }));
  const refused = asked.length > 0 && answers.length === 0 && view.response?.body.text;
  if (refused) answers.push({ role: `answer ${view.response.status ?? ""}`, parts: [{ kind: "result", text: view.response.body.text, name: "" }] });
  return [...asked, ...answers];
}

// The trees are one key away.
export function rawOf(title, make, open = false) {
  return lazy(h("summary", { data: { key: "r" } }, `${title} `, h("kbd", {}, "r")), make, "details.raw", open);
}

function sideOf(title, ...children) {
  return h("section.panel", {}, h("h2", {}, title), children);
}

function failure({ failure: found }) {
  return found && h("p", {}, h("span.tag", { data: { kind: "warn" } }, found.kind), " ", found.message);
}

export function statusOf({ status, reason, verdict }) {
  const [says, kind] = VERDICTS[verdict] ?? [verdict, ""];
  return h("p", {}, h("span.status.mono", { data: { bad: status >= 400 ? "true" : undefined } }, status === null ? "no answer came" : `${status} ${reason ?? ""}`), " ", verdict && !(status >= 400 && kind === "good") && h("span.tag", { data: { kind } }, says));
}

function suffix(type) {
  const known = { "application/json": ".json", "text/event-stream": ".txt", "text/plain": ".txt", "image/png": ".png", "image/jpeg": ".jpg", "audio/mpeg": ".mp3", "audio/wav": ".wav" };
  return known[(type ?? "").split(";")[0]] ?? "";
}
