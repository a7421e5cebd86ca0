"use strict";
// The tapeway of a test run: one server for all of its processes, and a slot for each of them.

const { randomBytes } = require("node:crypto");
const { TapewayError } = require("./admin.cjs");
const { recordCommand } = require("./record-command.cjs");
const { resultsFolder, summary, takeResults } = require("./run-results.cjs");
const { attach, isBelow, serve } = require("./server.cjs");

// Tells the processes of a run what the first one found out.
const RUN = "_TAPEWAY_NODE";

/** @typedef {import("./index.cjs").Mode} Mode */
/** @typedef {import("./server.cjs").Tapeway} Tapeway */
/** @typedef {import("./record-command.cjs").Runner} Runner */
/** @typedef {import("./names.cjs").TestPlace} TestPlace */
/** @typedef {{ root: string, mode: Mode, runner: Runner, recordCommand: string | null, results: string }} Run `recordCommand` holds for all tests. */
/** @typedef {Run & { tapeway: Tapeway, slot: string }} Connection A process of a run. */

/**
 * Start the tapeway of a run, or attach to the one in the environment, and set the variables that the
 * processes of the run inherit.
 *
 * @param {string} root The folder of tapeway.toml and the cassettes.
 * @param {Runner} runner
 * @returns {Promise<() => Promise<void>>} Ends it, and tells what became of its requests.
 */
async function startRun(root, runner) {
  const attached = process.env["TAPEWAY_ADMIN_URL"] ? attach() : undefined;
  const wanted = modeHere(modeOf(process.env["TAPEWAY_MODE"]) ?? (await attached?.mode()) ?? "replay");
  const given = process.env["TAPEWAY_RECORD_COMMAND"];
  const tapeway = attached ?? (await serve({ mode: wanted, folder: root, recordCommand: given || recordCommand(runner) }));
  const { record_command: known } = attached ? await attached.admin.call("GET", "clients") : { record_command: given };
  // What comes past the slots is never asked live.
  if (!attached && wanted !== "replay") await tapeway.mode("replay");
  /** @type {Run} */
  const run = { root, mode: wanted, runner, recordCommand: known || null, results: resultsFolder() };
  const restore = setVariables({ ...tapeway.environment, [RUN]: JSON.stringify(run) });
  const before = await counts(tapeway);
  return async () => {
    restore();
    const after = await counts(tapeway);
    const said = Object.keys(after).map((kind) => [(after[kind] ?? 0) - (before[kind] ?? 0), kind]);
    const told = said.filter(([count]) => count).map((each) => each.join(" "));
    process.stderr.write(`tapeway: ${told.join(", ") || "no requests"}\n`);
    const lines = await summary(tapeway.admin, takeResults(run.results), root, run.recordCommand ?? recordCommand(runner))
      .catch((error) => [`warning: no more can be said of this run: ${error.message}`]);
    for (const line of lines) process.stderr.write(`tapeway: ${line}\n`);
    await tapeway.stop();
  };
}

/** @param {Record<string, string>} variables @returns {() => void} Puts back what was there. */
function setVariables(variables) {
  const before = Object.keys(variables).map((name) => /** @type {const} */ ([name, process.env[name]]));
  Object.assign(process.env, variables);
  return () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
  };
}

/** @param {Tapeway} tapeway @returns {Promise<Record<string, number>>} Requests by outcome. */
async function counts(tapeway) {
  const { miss, error, ...found } = (await tapeway.admin.call("GET", "status")).counts;
  return { ...found, missed: miss, failed: error };
}

/**
 * Connect this process, by the slot of its worker; undefined where no run was started.
 *
 * @param {string} worker
 * @returns {Connection | undefined}
 */
function join(worker) {
  const text = process.env[RUN];
  if (!text) return undefined;
  /** @type {Run} */
  const run = JSON.parse(text);
  const tapeway = attach();
  // A slot is never used again: what came through it belongs to this process.
  const slot = `${worker}-${randomBytes(4).toString("hex")}`;
  for (const [name, value] of Object.entries(process.env)) {
    if (value && isBelow(tapeway.url, value)) {
      process.env[name] = `${tapeway.url}/@~${slot}${below(tapeway.url, value)}`;
    }
  }
  return { ...run, tapeway, slot };
}

/** @param {string} root @param {string} url */
function below(root, url) {
  return url.slice(root.length).replace(/^\/@~[^/]*/, "");
}

/** @param {string | undefined} text @returns {Mode | undefined} */
function modeOf(text) {
  if (!text) return undefined;
  if (["replay", "record", "auto", "passthrough"].includes(text)) return /** @type {Mode} */ (text);
  throw new TapewayError(`there is no mode '${text}': use replay, record, auto or passthrough`, "bad_mode");
}

/**
 * The mode that counts: nothing is recorded by accident where `CI` is true.
 *
 * @param {Mode} mode
 */
function modeHere(mode) {
  return mode === "auto" && /^(?:true|1)$/i.test(process.env["CI"] ?? "") ? "replay" : mode;
}

/**
 * The command that records what a test missed, or any of a run.
 *
 * @param {Connection} connection
 * @param {TestPlace} [place]
 */
function recordCommandOf({ runner, recordCommand: known }, place) {
  return known ?? recordCommand(runner, place);
}

module.exports = { join, modeHere, modeOf, recordCommandOf, startRun };
