"use strict";
// The global set-up of vitest, Jest and Playwright: the tapeway of the run serves before any test
// module is loaded.

const path = require("node:path");
const { startRun } = require("./connection.cjs");

const RUNNING = Symbol.for("tapeway.running");

/** @typedef {{ [RUNNING]?: import("./server.cjs").Tapeway }} Place */

/**
 * @param {import("./global-setup.cjs").RunnerConfig} [runner]
 * @returns {Promise<() => Promise<void>>} Stops it.
 */
async function globalSetup(runner = {}) {
  const root = runner.config?.root ?? (runner.configFile && path.dirname(runner.configFile)) ?? runner.rootDir;
  const tapeway = await startRun(root ?? process.cwd());
  /** @type {Place} */ (globalThis)[RUNNING] = tapeway;
  return () => tapeway.stop();
}

async function globalTeardown() {
  await /** @type {Place} */ (globalThis)[RUNNING]?.stop();
}

module.exports = globalSetup;
module.exports.globalTeardown = globalTeardown;
