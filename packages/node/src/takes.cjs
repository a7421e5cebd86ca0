"use strict";
// Points slots at the cassettes of tests, and keeps what passed.

const { mkdir, writeFile } = require("node:fs/promises");
const path = require("node:path");
const { isDeepStrictEqual } = require("node:util");
const { TapewayError } = require("./admin.cjs");
const { modeHere, modeOf } = require("./connection.cjs");
const { addResult, ownFolder } = require("./run-results.cjs");

const FAILED_FOLDER = "failed";
const MOST_MISSES = 1000;
const MOST_DIFFERENCES = 5;
const MOST_SHOWN = 10;

/** @typedef {import("./connection.cjs").Connection} Connection */
/** @typedef {import("./index.cjs").CassetteOptions} CassetteOptions */
/** @typedef {import("./index.cjs").SentRequest} SentRequest */
/**
 * @typedef {{ id: string, method: string, path: string, message: string, suggestion: string | null, record_command: string | null, match_key: string | null,
 *   nearest: { differences: { path: string, recorded?: unknown, requested?: unknown }[], more: number }[] }} Miss
 */

/** A test missed, or sent a request past its cassette: the message says what and why. */
class CassetteError extends TapewayError {
  /** @param {string} message @param {string} code */
  constructor(message, code) {
    super(message, code);
    this.name = "CassetteError";
  }
}

/** @typedef {InstanceType<typeof TestTake>} OpenTake */

/** One test while it runs: a slot that points at its cassette. */
class TestTake {
  /**
   * @param {Connection} connection @param {string} slot @param {string} cassette
   * @param {boolean} shared Whether other tests may use the same cassette.
   * @param {CassetteOptions} options
   * @param {Set<string>} told Ids of the misses through this slot that a test was told of.
   * @param {string | null} recordCommand The command that records what is missed.
   * @param {string} test What people call it.
   */
  constructor(connection, slot, cassette, shared, options, told, recordCommand, test) {
    this._connection = connection;
    this._admin = connection.tapeway.admin;
    this.slot = slot;
    this.cassette = cassette;
    this.shared = shared;
    this.mode = modeHere(modeOf(options.mode) ?? connection.mode);
    this._rules = options.rules ?? null;
    this._faults = options.faults;
    this._told = told;
    this._recordCommand = recordCommand;
    this._test = test;
    // The take that began with the test. A rewind, or a change of mode, begins further ones.
    this._first = 0;
    /** @type {unknown} */
    this._before = undefined;
  }

  /** Point the slot at the cassette. */
  async begin() {
    if (this._records && !this.shared) this._before = await this._exported();
    const body = { cassette: this.cassette, mode: this.mode, rules: this._rules, record_command: this._recordCommand, faults: this._faults };
    this._first = (await this._admin.call("PUT", this._place, { body })).take;
  }

  /**
   * Let go of the slot; keep or restore the cassette.
   *
   * @param {boolean} failed
   * @throws {CassetteError} For what was missed.
   */
  async end(failed) {
    const misses = await this._misses();
    const { take } = await this._admin.call("GET", this._place);
    await this._admin.call("DELETE", this._place);
    // What was used before a rewind or the like is not known any more.
    if (!this.shared) await this._settle(failed || misses.length > 0, take === this._first);
    if (misses.length === 0) return;
    const keys = misses.flatMap(({ match_key: key }) => key ?? []);
    if (!this.shared) addResult(this._connection.results, { missed: { cassette: this.cassette, keys } });
    throw new CassetteError(missText(misses), "replay_miss");
  }

  /** @returns {Promise<SentRequest[]>} */
  async requests() {
    const query = { since: String(this._first) };
    return (await this._admin.call("GET", `${this._place}/requests`, { query })).requests;
  }

  get _records() {
    return this.mode === "record" || this.mode === "auto";
  }

  get _place() {
    return `slots/${this.slot}`;
  }

  get _stored() {
    return `cassettes/${encodeURIComponent(this.cassette)}`;
  }

  /**
   * What came through the slot, whatever the take: somebody else may have begun another one.
   *
   * @returns {Promise<Miss[]>} Oldest first.
   */
  async _misses() {
    const query = { slot: this.slot, outcome: "miss", limit: String(MOST_MISSES) };
    /** @type {Miss[]} */
    const entries = (await this._admin.call("GET", "journal", { query })).entries;
    const found = entries.filter(({ id }) => !this._told.has(id)).reverse();
    for (const { id } of found) this._told.add(id);
    return found;
  }

  /** @param {boolean} failed @param {boolean} prunes Whether what was not used is known. */
  async _settle(failed, prunes) {
    try {
      const report = await this._connection.tapeway.eject(this.cassette, { prune: prunes && this.mode === "record" && !failed });
      addResult(this._connection.results, { report });
    } catch (error) {
      // Nothing was asked, or the test has ejected it.
      if (codeOf(error) !== "not_inserted") throw error;
    }
    if (!failed || !this._records) return;
    const now = await this._exported();
    if (!isDeepStrictEqual(now, this._before)) await this._setAside(now);
  }

  /**
   * Move what a failed test recorded out of the store, and put back what was there.
   *
   * @param {unknown} now
   */
  async _setAside(now) {
    const folder = path.join(ownFolder(this._connection.root), FAILED_FOLDER);
    const file = path.join(folder, `${this.cassette}.json`);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, JSON.stringify(now, null, 2));
    const setAside = `what ${this._test} recorded is in ${path.relative(process.cwd(), file)}`;
    addResult(this._connection.results, { setAside });
    if (this._before === undefined) await this._admin.call("DELETE", this._stored);
    else await this._admin.call("PUT", this._stored, { body: this._before, query: { secrets: "keep" } });
  }

  async _exported() {
    try {
      return await this._admin.call("GET", this._stored);
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw error;
    }
  }
}

/** @param {unknown} error */
function codeOf(error) {
  return error instanceof TapewayError ? error.code : undefined;
}

/** @param {unknown} error */
function statusOf(error) {
  return error instanceof TapewayError ? error.status : undefined;
}

/**
 * What was missed: message, difference and suggestion of each, as `tapeway run` shows them.
 *
 * @param {Miss[]} misses
 */
function missText(misses) {
  const lines = misses.slice(0, MOST_SHOWN).flatMap((miss) => [miss.message, ...details(miss).map((line) => `  ${line}`)]);
  const commands = new Set(misses.map((miss) => miss.record_command));
  for (const command of commands) if (command && !lines.some((line) => line.includes(command))) lines.push(`record with: ${command}`);
  if (misses.length > MOST_SHOWN) lines.push(`${misses.length - MOST_SHOWN} more misses`);
  return lines.join("\n");
}

/** @param {Miss} miss */
function details({ message, nearest: [nearest], suggestion }) {
  const differences = nearest?.differences ?? [];
  // The message has the values of the first one, and the rule where there is room.
  const said = message.includes(" → ") ? 1 : 0;
  const shown = differences.slice(said, MOST_DIFFERENCES).map((each) => {
    const sides = /** @type {const} */ (["recorded", "requested"]).map(
      (side) => `${side} ${side in each ? JSON.stringify(each[side]) : "nothing"}`,
    );
    return `${each.path.replace(/^body\./, "")}: ${sides.join(", ")}`;
  });
  const more = differences.length - said - shown.length + (nearest?.more ?? 0);
  if (more) shown.push(`${more} more differences`);
  if (message.includes("rule that would match")) return shown;
  return [...shown, ...(suggestion?.split("\n").map((line) => `rule that would match: ${line}`) ?? [])];
}

module.exports = { CassetteError, MOST_MISSES, TestTake };
