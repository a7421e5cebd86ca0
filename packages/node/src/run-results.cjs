"use strict";
// What the processes of a run found, for the summary at its end: each appends to a file of its own.

const { appendFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const path = require("node:path");

const OWN_FOLDER = ".tapeway";
const LAST = `${OWN_FOLDER}/last.html`;
const MOST_NAMED = 20;

/**
 * What one process tells of a run: the report of an ejected cassette, what was set aside, the match
 * keys that a test's cassette missed, or the cassettes of all tests of a file.
 *
 * @typedef {{ report?: any, setAside?: string, missed?: { cassette: string, keys: string[] }, claimed?: string[] }} Result
 */

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
  const { missing, unclaimed } = await compared(admin, results);
  const { causes, gains, notices, renamed } = await admin.call("POST", "report/notes", { body: { cassettes, missing, unclaimed } });
  const found = new Set(Object.values(renamed));
  const moved = Object.entries(renamed).map(
    ([name, old]) => `${name}: its recordings are in ${old}, which no test names: tapeway cassette mv ${old} ${name}`,
  );
  const orphans = unclaimed.filter((name) => !found.has(name)).map((name) => `no test names ${name}: tapeway cassette rm ${name}`);
  const missed = cassettes.some(({ misses }) => misses.length > 0);
  const record = missed ? [`to record what was missed: ${command}`] : [];
  const page = await admin.text("POST", "report", { body: { cassettes }, query: { format: "html", brief: "true" } });
  ownFolder(root);
  writeFileSync(path.join(root, LAST), page);
  const shown = missed ? [`look at it in a browser: ${path.relative(process.cwd(), path.join(root, LAST))}`] : [];
  const more = causes.length > MOST_NAMED ? [`${causes.length - MOST_NAMED} more causes`] : [];
  const named = [...causes.slice(0, MOST_NAMED), ...more, ...moved, ...orphans.slice(0, MOST_NAMED)];
  return [...named, ...gains, ...notices, ...lines, ...record, ...shown];
}

/**
 * The cassettes that a run missed since they do not exist, and those in the folders of its files that
 * none of their tests names.
 *
 * @param {import("./server.cjs").Tapeway["admin"]} admin
 * @param {Result[]} results
 */
async function compared(admin, results) {
  const claimed = new Set(results.flatMap((result) => result.claimed ?? []));
  const used = new Set(results.flatMap(({ report }) => report?.name ?? []));
  const stored = await storedNames(admin);
  const folders = new Set([...claimed].map(path.posix.dirname));
  const unclaimed = stored.filter((name) => folders.has(path.posix.dirname(name)) && !claimed.has(name) && !used.has(name));
  const absent = results.flatMap(({ missed }) => (missed && !stored.includes(missed.cassette) ? [missed] : []));
  return { missing: Object.fromEntries(absent.map(({ cassette, keys }) => [cassette, keys])), unclaimed };
}

/** @param {import("./server.cjs").Tapeway["admin"]} admin @returns {Promise<string[]>} */
async function storedNames(admin) {
  /** @type {string[]} */
  const names = [];
  /** @type {string | null} */
  let after = "";
  while (after !== null) {
    /** @type {{ cassettes: { name: string, size_bytes: number | null }[], next: string | null }} */
    const page = await admin.call("GET", "cassettes", { query: { limit: "1000", counts: "false", ...(after && { after }) } });
    names.push(...page.cassettes.filter(({ size_bytes: size }) => size !== null).map(({ name }) => name));
    after = page.next;
  }
  return names;
}

module.exports = { addResult, ownFolder, resultsFolder, summary, takeResults };
