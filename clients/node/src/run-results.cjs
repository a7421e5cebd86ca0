"use strict";
// What the processes of a run found, for the summary at its end: each appends to a file of its own.

const { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");

const OWN_FOLDER = ".tapeway";
const LAST = `${OWN_FOLDER}/last.html`;
const MOST_NAMED = 20;

/** @typedef {{ report?: any, setAside?: string }} Result The report of an ejected cassette, or what was set aside. */

function resultsFolder() {
  return mkdtempSync(path.join(tmpdir(), "tapeway-run-"));
}

/** @param {string} folder @param {Result} result */
function addResult(folder, result) {
  appendFileSync(path.join(folder, `${process.pid}.jsonl`), `${JSON.stringify(result)}\n`);
}

/** @param {string} folder @returns {Result[]} All results; the folder is gone afterwards. */
function takeResults(folder) {
  const files = readdirSync(folder).map((name) => readFileSync(path.join(folder, name), "utf8"));
  rmSync(folder, { recursive: true });
  return files.flatMap((text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line)));
}

/**
 * The folder for what no repository should hold.
 *
 * @param {string} root
 */
function ownFolder(root) {
  const folder = path.join(root, OWN_FOLDER);
  mkdirSync(folder, { recursive: true });
  const ignored = path.join(folder, ".gitignore");
  if (!existsSync(ignored)) writeFileSync(ignored, "*\n");
  return folder;
}

/**
 * What there is to say of a run, a line each, after its page was left in the root.
 *
 * @param {import("./server.cjs").Tapeway["admin"]} admin
 * @param {Result[]} results
 * @param {string} root
 * @param {string} command The command that records what was missed.
 * @returns {Promise<string[]>}
 */
async function summary(admin, results, root, command) {
  const cassettes = results.flatMap(({ report }) => report ?? []);
  const lines = results.flatMap(({ setAside }) => (setAside ? [`set aside: ${setAside}`] : []));
  if (cassettes.length === 0) return lines;
  const { causes, gains, notices } = await admin.call("POST", "report/notes", { body: { cassettes } });
  const missed = cassettes.some(({ misses }) => misses.length > 0);
  const record = missed ? [`to record what was missed: ${command}`] : [];
  const page = await admin.text("POST", "report", { body: { cassettes }, query: { format: "html", brief: "true" } });
  ownFolder(root);
  writeFileSync(path.join(root, LAST), page);
  const shown = missed ? [`look at it in a browser: ${path.relative(process.cwd(), path.join(root, LAST))}`] : [];
  const more = causes.length > MOST_NAMED ? [`${causes.length - MOST_NAMED} more causes`] : [];
  return [...causes.slice(0, MOST_NAMED), ...more, ...gains, ...notices, ...lines, ...record, ...shown];
}

module.exports = { addResult, ownFolder, resultsFolder, summary, takeResults };
