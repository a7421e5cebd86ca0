"use strict";
// The command that records what tests missed.

/** @typedef {import("./names.cjs").TestPlace} TestPlace */
/** @typedef {keyof typeof COMMANDS} Runner */

// The command of each runner, the option that picks tests by a pattern of their titles, and the end of
// the pattern: Playwright has tags behind the titles.
const COMMANDS = {
  vitest: ["npx vitest run", "-t", "$"],
  jest: ["npx jest", "-t", "$"],
  playwright: ["npx playwright test", "-g", ""],
  node: ["node --import tapeway/node-test --test", "--test-name-pattern", "$"],
};

/**
 * The command for a test, for all tests of a file, which has no titles, or for a whole run.
 *
 * @param {Runner} runner
 * @param {TestPlace} [place]
 */
function recordCommand(runner, place) {
  const [command = "", pick = "", end = ""] = COMMANDS[runner];
  const whole = `TAPEWAY_MODE=record ${command}`;
  if (place === undefined) return whole;
  const file = quoted(place.file.replaceAll("\\", "/"));
  if (place.titles.length === 0) return `${whole} ${file}`;
  // node:test compares the pattern with each title alone.
  const titles = runner === "node" ? place.titles.slice(0, 1) : place.titles;
  const title = quoted(titles.join(" ").replace(/[\\^$.*+?()[\]{}|]/g, "\\$&") + end);
  // Node takes everything after a file for arguments of its own.
  return runner === "node" ? `${whole} ${pick}=${title} ${file}` : `${whole} ${file} ${pick} ${title}`;
}

/** @param {string} text A word of a shell's command. */
function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

module.exports = { recordCommand };
