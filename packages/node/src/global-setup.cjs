"use strict";
// The global set-up of vitest, Jest and Playwright: the tapeway of the run serves before any test
// module is loaded.

const path = require("node:path");
const { startRun } = require("./connection.cjs");

const END = Symbol.for("tapeway.end");

/** @typedef {{ [END]?: () => Promise<void> }} Place Where Jest's teardown finds it. */

/**
 * @param {import("./global-setup.cjs").RunnerConfig} [runner]
 * @returns {Promise<() => Promise<void>>} Stops it.
 */
async function globalSetup(runner = {}) {
  const root = runner.config?.root ?? (runner.configFile && path.dirname(runner.configFile)) ?? runner.rootDir;
  const name = runner.config ? "vitest" : runner.configFile ? "playwright" : "jest";
  const end = await startRun(root ?? process.cwd(), name);
  /** @type {Place} */ (globalThis)[END] = end;
  return end;
}

async function globalTeardown() {
  await /** @type {Place} */ (globalThis)[END]?.();
}

module.exports = globalSetup;
module.exports.globalTeardown = globalTeardown;
