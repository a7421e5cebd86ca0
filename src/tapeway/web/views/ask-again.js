// Asks the upstream again and shows its answer beside the recorded one. Nothing is replaced by it.

import { checked, get, path, send } from "../shell/api.js";
import { h } from "../shell/dom.js";
import { count, duration, head, money } from "../shell/format.js";
import { attempt, confirm, modal, notify } from "../parts/dialog.js";
import { bodyView } from "../parts/body.js";
import { textOf } from "../parts/messages.js";

// `done()` is called once the live answer was kept.
export async function askAgain(button, name, index, done) {
  const where = path`cassettes/${name}/interactions/${index}/live`;
  const can = await attempt(button, () => get(where));
  if (can === undefined) return;
  if (!can.possible) {
    notify(can.reason, "failed");
    return;
  }
  const agreed = await confirm({
    title: "Ask the upstream again?",
    body: [
      h("p", {}, "The recorded request, ", h("code", {}, `${can.method} ${can.path}`), `, is sent to the upstream of route ${can.route}`, can.credential && [" with the key in ", h("code", {}, can.credential)], "."),
      h("p", {}, cost(can)),
      h("p.muted", {}, "The recording stays as it is. The live answer is shown beside it, and stored only if you keep it then."),
    ],
    action: "Ask live",
  });
  if (!agreed) return;
  const found = await attempt(button, () => send("POST", where, {}));
  if (found !== undefined) show(found, path`cassettes/${name}/interactions/${index}`, index, done);
}

function cost({ usd, prompt_tokens: prompt, completion_tokens: completion }) {
  const tokens = prompt === null || prompt === undefined ? "" : `The recorded call took ${count(prompt)} tokens in and ${count(completion)} out. `;
  return `${tokens}${usd === null || usd === undefined ? "What it costs is not known: its model has no listed price." : `It costs about ${money(usd)}.`}`;
}

const STATES = {
  equal: "The live answer is equal to the recorded one.",
  alike: "The live answer is equal but for ids and times.",
  different: "The live answer differs.",
};

function show({ recorded, live, state, drift, document: kept }, where, index, done) {
  const rows = drift.map((each) =>
    h("tr", {}, h("td", {}, h("span.tag", { data: { kind: each.level === "info" ? "" : "warn" } }, each.level)), h("td.mono", {}, each.path), h("td", {}, h("code", {}, head(JSON.stringify(each.recorded) ?? "nothing", 120))), h("td", {}, h("code", {}, head(JSON.stringify(each.live) ?? "nothing", 120)))),
  );
  const table = h("div.scroll", { tabindex: "0", role: "region", "aria-label": "What changed in its form" }, h("table", {}, h("thead", {}, h("tr", {}, ["Level", "Place", "Recorded", "Live"].map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, rows)));
  const dialog = modal(
    "Recorded and live",
    [h("p", {}, STATES[state] ?? state), rows.length > 0 && table, h("div.sides", {}, side(`Recorded, #${index}`, recorded), side("Live, now", live))],
    [h("button", { type: "button", on: { click: () => dialog.close() } }, "Close"), h("button", { type: "button", on: { click: (event) => keep(event.currentTarget) } }, "Keep this answer")],
  );
  dialog.classList.add("wide");
  async function keep(button) {
    const stored = await attempt(button, async () => {
      const etag = (await checked("GET", where)).headers.get("ETag");
      return send("PUT", where, { ...kept, index }, { headers: { "If-Match": etag } });
    });
    if (stored === undefined) return;
    dialog.close();
    notify(`The live answer is in the place of the recorded one, as #${index}.`);
    done();
  }
}

function side(title, { response, answers, latency_ms: latency }) {
  const text = answers.map(textOf).filter(Boolean).join("\n\n");
  return h(
    "section",
    {},
    h("h3", {}, title),
    h("p.mono", {}, `${response.status} ${response.reason ?? ""}, ${duration(latency)}`),
    text && h("pre.text.prose", { tabindex: "0", role: "region", "aria-label": `${title}: text` }, text),
    bodyView(response.body, { name: "answer", whole: () => Promise.reject(new Error("Only its start was sent.")) }),
  );
}
