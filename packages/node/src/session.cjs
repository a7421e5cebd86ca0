"use strict";
// The tests of one process: which of them has the process's slot, and which have one of their own.

const { AsyncLocalStorage } = require("node:async_hooks");
const { CassetteError, MOST_MISSES, TestTake } = require("./takes.cjs");
const { TapewayError } = require("./admin.cjs");
const { join, recordCommandOf } = require("./connection.cjs");
const { testId } = require("./names.cjs");
const { addResult } = require("./run-results.cjs");

/** @typedef {import("./index.cjs").CassetteOptions} CassetteOptions */
/** @typedef {import("./names.cjs").TestPlace} TestPlace */
/** @typedef {import("./takes.cjs").OpenTake} OpenTake */

/** @type {AsyncLocalStorage<OpenTake>} */
const inside = new AsyncLocalStorage();

class TestSession {
  /** @param {import("./connection.cjs").Connection} connection */
  constructor(connection) {
    this._connection = connection;
    /** @type {Map<string, OpenTake | undefined>} Tests that run, by id; without a take those that run concurrently. */
    this._running = new Map();
    /** @type {Map<string, string>} The test that had a cassette, by the cassette's name in lower case. */
    this._owners = new Map();
    /** @type {Map<string, number>} How many calls of `withCassette` use a cassette now. */
    this._inUse = new Map();
    /** @type {Set<string>} Misses, and requests past the cassettes, that were told of: their ids in the journal. */
    this._told = new Set();
    /** @type {Map<string, unknown>} Why tests that lost the slot fail. */
    this._lost = new Map();
    this._count = 0;
    /** @type {string | undefined} The file of the test that began last. */
    this._file = undefined;
    /** @type {Promise<unknown>} Settled when nobody changes which test has the slot. */
    this._turn = Promise.resolve();
    sendThroughOwnSlots(connection.tapeway.url);
  }

  get connection() {
    return this._connection;
  }

  /** The take of the test that alone has the slot. */
  get current() {
    return [...this._running.values()].find((take) => take !== undefined);
  }

  /**
   * Point the slot at a test's cassette. Where several tests run at the same time it points nowhere:
   * they use `withCassette`.
   *
   * @param {TestPlace} place
   * @param {{ name: string, shared: boolean, concurrent?: boolean, once?: boolean, options?: CassetteOptions }} wanted
   *   `once`: no test runs again, so that a second one of this name is another one.
   */
  begin(place, wanted) {
    return this._inTurn(() => this._begin(place, wanted));
  }

  /**
   * Tell the summary which cassettes the tests of a file have, those that do not run among them.
   *
   * @param {Iterable<{ name: string }>} tests
   */
  claim(tests) {
    addResult(this._connection.results, { claimed: [...tests].map(({ name }) => name) });
  }

  /**
   * Let go of a test that ended.
   *
   * @param {TestPlace} place
   * @param {boolean} failed
   * @throws {CassetteError} For what it missed or sent past its cassette.
   */
  end(place, failed) {
    return this._inTurn(() => this._end(testId(place), failed));
  }

  /**
   * Run a function whose requests go to a cassette of their own.
   *
   * @template T
   * @param {string} name
   * @param {() => T | Promise<T>} run
   * @param {CassetteOptions} options
   * @returns {Promise<T>}
   */
  async within(name, run, options) {
    const take = await this._inTurn(() => this._enter(name, options));
    const [result] = await Promise.allSettled([inside.run(take, async () => run())]);
    const failed = result.status === "rejected";
    try {
      await this._inTurn(() => this._leave(take, failed));
    } catch (error) {
      if (failed && error instanceof CassetteError) error.cause = result.reason;
      throw error;
    }
    if (failed) throw result.reason;
    return result.value;
  }

  /** @throws {CassetteError} For requests of this process that came while its slot pointed nowhere. */
  async checkStray() {
    const query = { slot: this._connection.slot, outcome: "error", limit: String(MOST_MISSES) };
    const { entries } = await this._connection.tapeway.admin.call("GET", "journal", { query });
    /** @type {{ id: string, method: string, path: string, message: string | null }[]} */
    const strays = entries.filter((/** @type {any} */ each) => each.message?.startsWith("no_slot") && !this._told.has(each.id));
    if (strays.length === 0) return;
    for (const each of strays) this._told.add(each.id);
    const named = [...new Set(strays.map((each) => `${each.method} ${each.path}`))].join(", ");
    const what = `${named} was sent while no test had a cassette for it, maybe by another test that ran at the same time`;
    throw new CassetteError(`${what}: concurrent tests, and hooks such as beforeAll, ask inside withCassette()`, "no_slot");
  }

  /** @template T @param {() => Promise<T>} work @returns {Promise<T>} */
  _inTurn(work) {
    const done = this._turn.then(work);
    this._turn = done.catch(() => {});
    return done;
  }

  /** @param {TestPlace} place @param {Parameters<TestSession["begin"]>[1]} wanted */
  async _begin(place, { name, shared, concurrent = false, once = false, options = {} }) {
    const id = testId(place);
    this._file = place.file;
    const others = [...this._running.keys()].filter((each) => each !== id);
    // A subtest belongs to its test.
    if (others.some((each) => id.startsWith(`${each}::`))) return;
    if (concurrent || others.length > 0) {
      for (const other of others) await this._letGo(other);
      this._running.set(id, undefined);
      return;
    }
    // A cassette for a suite takes the place of that for the whole file.
    const outer = this._running.get(id);
    if (outer) await outer.end(false);
    else if (!shared) this._claim(name, id, once);
    const command = recordCommandOf(this._connection, place);
    const take = new TestTake(this._connection, this._connection.slot, name, shared, options, this._told, command, id);
    await take.begin();
    this._running.set(id, take);
  }

  /** @param {string} id @param {boolean} failed */
  async _end(id, failed) {
    if (!this._running.has(id)) return;
    const take = this._running.get(id);
    const lost = this._lost.get(id);
    this._running.delete(id);
    this._lost.delete(id);
    if (take) await take.end(failed);
    else if (lost) throw lost;
    else await this.checkStray();
  }

  /** @param {string} name @param {CassetteOptions} options */
  async _enter(name, options) {
    const users = this._inUse.get(name) ?? 0;
    const slot = `${this._connection.slot}-${++this._count}`;
    // Of tests that run at the same time nobody knows which one this is.
    const command = recordCommandOf(this._connection, this._file === undefined ? undefined : { file: this._file, titles: [] });
    const take = new TestTake(this._connection, slot, name, users > 0, options, new Set(), command, name);
    await take.begin();
    this._inUse.set(name, users + 1);
    return take;
  }

  /** @param {OpenTake} take @param {boolean} failed */
  async _leave(take, failed) {
    const users = this._inUse.get(take.cassette) ?? 1;
    this._inUse.set(take.cassette, users - 1);
    // Also where a call that began later still uses it.
    take.shared ||= users > 1;
    await take.end(failed);
  }

  /** @param {string} name @param {string} id @param {boolean} once */
  _claim(name, id, once) {
    const owner = this._owners.get(name.toLowerCase());
    if (owner !== undefined && (owner !== id || once)) {
      const whose = owner === id ? "two tests have this name" : `of '${owner}' and '${id}' the cassettes would be called alike`;
      throw new CassetteError(`${whose}: rename one, or give it a cassette with withCassette()`, "ambiguous_name");
    }
    this._owners.set(name.toLowerCase(), id);
  }

  /** @param {string} id */
  async _letGo(id) {
    const take = this._running.get(id);
    if (take === undefined) return;
    this._running.set(id, undefined);
    // What it has sent went to its own cassette; what is to come fails.
    await take.end(true).catch((/** @type {unknown} */ error) => this._lost.set(id, error));
  }
}

// Bundlers may load this module twice.
const SESSION = Symbol.for("tapeway.session");

const shared = /** @type {{ [SESSION]?: TestSession }} */ (/** @type {unknown} */ (globalThis));

/**
 * The session of this process, which begins here where a run was started.
 *
 * @param {string} worker
 */
function connect(worker) {
  const connection = shared[SESSION] ? undefined : join(worker);
  if (connection) shared[SESSION] = new TestSession(connection);
  return shared[SESSION];
}

/** The session of this process. */
function connected() {
  if (shared[SESSION]) return shared[SESSION];
  throw new TapewayError("no tapeway serves these tests: add tapeway/global-setup to the global set-up of the runner", "not_started");
}

/**
 * Have what is fetched from the proxy inside `withCassette` go through a slot of its own.
 *
 * @param {string} root
 */
function sendThroughOwnSlots(root) {
  const original = globalThis.fetch;
  if (typeof original !== "function") return;
  globalThis.fetch = function fetch(/** @type {RequestInfo | URL} */ input, init) {
    const take = inside.getStore();
    const url = input instanceof Request ? input.url : String(input);
    if (!take || !url.startsWith(`${root}/`)) return original(input, init);
    const headers = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    headers.set("Tapeway-Cassette", `~${take.slot}`);
    return original(input, { ...init, headers });
  };
}

/**
 * @template T
 * @param {string} name
 * @param {() => T | Promise<T>} run
 * @param {CassetteOptions} [options]
 * @returns {Promise<T>}
 */
async function withCassette(name, run, options = {}) {
  return connected().within(name, run, options);
}

module.exports = { TestSession, connect, connected, withCassette };
