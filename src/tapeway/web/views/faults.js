// Faults laid over replays: those in force, and a form that lays one more.

import { get, send } from "../shell/api.js";
import { fill, h } from "../shell/dom.js";
import { attempt, draftGuard, modal, notify } from "../parts/dialog.js";

const DOES = {
  429: "too many requests, in the provider's own form",
  500: "an error of the service",
  503: "the service is away",
  529: "the service is overloaded",
  error_event: "an error inside the stream",
  reset: "the connection is reset",
  end: "the answer ends too early",
  stall: "a pause",
  slow: "a pause before each chunk",
  repeat: "an event comes twice",
  corrupt: "an event that cannot be parsed",
  timeout: "no answer comes",
  close: "a WebSocket is closed",
};

export class FaultsPanel {
  constructor() {
    this.list = h("ul.facts-list", { "aria-label": "Faults in force" });
    this.element = h(
      "section.panel",
      {},
      h("h2", {}, "Faults"),
      h("p.muted", {}, "A fault is laid over replayed answers, so that you see what your client does. Recordings stay as they are."),
      this.list,
      h("div.buttons.changes", {}, h("button", { type: "button", on: { click: () => this.add() } }, "Lay a fault…")),
    );
  }

  async show(signal) {
    this.put((await get("faults", {}, signal)).faults);
  }

  put(faults) {
    this.faults = faults;
    fill(this.list, faults.length === 0 ? h("li.muted", {}, "None.") : faults.map((fault) => this.row(fault)));
  }

  row(fault) {
    const remove = h("button.quiet", { type: "button", "aria-label": `Take away ${fault.name}`, on: { click: (event) => this.change(event.currentTarget, this.faults.filter((each) => each !== fault)) } }, "Take away");
    return h("li", {}, h("strong.mono", {}, fault.name), ` ${said(fault)} `, remove);
  }

  async change(button, faults) {
    const now = await attempt(button, () => send("PUT", "faults", { faults }));
    if (now !== undefined) this.put(now.faults);
    return now !== undefined;
  }

  add() {
    const name = h("input.mono", { id: "fault-name", value: `fault-${this.faults.length + 1}`, autocomplete: "off" });
    const kind = h("select", { id: "fault-do" }, Object.entries(DOES).map(([value, says]) => h("option", { value }, `${value}: ${says}`)));
    const after = h("input.mono", { id: "fault-after", placeholder: "3 events", autocomplete: "off" });
    const times = h("input", { id: "fault-times", type: "number", min: 0, value: 1 });
    const seconds = h("input", { id: "fault-seconds", type: "number", min: 0, step: "any" });
    const match = h("input.mono", { id: "fault-path", placeholder: "/v1/**", autocomplete: "off" });
    const fields = [name, kind, after, times, seconds, match];
    const field = (label, input) => h("label.field.grow", { for: input.id }, label, input);
    const lay = h("button.primary", { type: "button", on: { click: () => this.lay(dialog, lay, fields) } }, "Lay it");
    const dialog = modal(
      "Lay a fault",
      [
        h("div.filters", {}, field("Name", name), field("What happens", kind)),
        h("div.filters", {}, field("After (events, bytes, tool_call or head)", after), field("Times in a take", times)),
        h("div.filters", {}, field("Seconds (of a pause, or Retry-After)", seconds), field("Path", match)),
      ],
      [h("button", { type: "button", on: { click: () => dialog.leave() } }, "Cancel"), lay],
      draftGuard(() => JSON.stringify(fields.map((each) => each.value))),
    );
  }

  async lay(dialog, button, [name, kind, after, times, seconds, match]) {
    const fault = { name: name.value, do: kind.value, times: Number(times.value) };
    if (after.value !== "") fault.after = after.value;
    if (match.value !== "") fault.match = { path: match.value };
    if (seconds.value !== "") fault[/^\d/.test(kind.value) ? "retry_after" : "seconds"] = Number(seconds.value);
    if (!(await this.change(button, [...this.faults, fault]))) return;
    dialog.close();
    notify(`Fault ${fault.name} is in force.`);
  }
}

function said({ do: kind, after, times, match }) {
  const where = after === undefined ? "" : ` after ${after}`;
  const which = match?.path === undefined ? "" : ` at ${match.path}`;
  const often = times === 0 ? "for requests that name it" : times === undefined || times === 1 ? "once in a take" : `${times} times in a take`;
  return `${kind}${where}${which}, ${often}`;
}
