"use strict";
// For Jest: `setupFiles: ["tapeway/jest"]`, and `useCassette()` in a test file.

const path = require("node:path");
const { TapewayError } = require("./admin.cjs");
const { namedTests } = require("./names.cjs");
const { connect, connected, withCassette } = require("./session.cjs");
const { TestCassette } = require("./test-cassette.cjs");

connect(process.env["JEST_WORKER_ID"] ?? String(process.pid));

/**
 * What jest-circus knows of a test and its suites. Jest tells hooks neither how a test ended nor
 * which others there are.
 *
 * @typedef {{ name: string, parent?: Suite, errors: unknown[], concurrent: boolean, type: "test" }} Test
 * @typedef {{ name: string, parent?: Suite, children: (Suite | Test)[], type: "describeBlock" }} Suite
 * @typedef {{ currentlyRunningTest?: Test, rootDescribeBlock: Suite }} State
 */

/** @type {import("./jest.cjs").useCassette} */
function useCassette(name, options = {}) {
  const session = connected();
  const { afterAll, afterEach, beforeEach, expect } = globals();
  /** @type {ReturnType<typeof namedTests<Test>> | undefined} */
  let tests;
  const named = () => {
    const { currentlyRunningTest: test, rootDescribeBlock: root } = state();
    const file = path.relative(session.connection.root, expect.getState().testPath ?? "");
    if (!tests) session.claim((tests = namedTests(file, [...testsOf(root, [])])).values());
    const found = test && tests.get(test);
    if (!found) throw new TapewayError("no test runs", "no_test");
    // Jest starts concurrent tests before the others of their file.
    return { ...found, test, concurrent: [...tests.keys()].some((each) => each.concurrent) };
  };
  beforeEach(() => {
    const { place, name: own, concurrent } = named();
    return session.begin(place, { name: name ?? own, shared: name !== undefined, concurrent, options });
  });
  afterEach(() => {
    const { place, test } = named();
    return session.end(place, test.errors.length > 0);
  });
  afterAll(() => session.checkStray());
  return new TestCassette();
}

function globals() {
  const found = /** @type {any} */ (globalThis);
  if (found.beforeEach) return found;
  throw new TapewayError("tapeway/jest needs Jest's globals: leave injectGlobals as it is", "no_globals");
}

/** @returns {State} */
function state() {
  const symbol = Object.getOwnPropertySymbols(globalThis).find(({ description }) => description === "JEST_STATE_SYMBOL");
  const found = symbol && /** @type {any} */ (globalThis)[symbol];
  if (found) return found;
  throw new TapewayError("tapeway/jest needs jest-circus, Jest's own test runner", "no_circus");
}

/** @param {Suite} suite @param {string[]} titles @returns {Generator<[Test, string[]]>} */
function* testsOf(suite, titles) {
  for (const child of suite.children) {
    const inner = [...titles, child.name];
    if (child.type === "describeBlock") yield* testsOf(child, inner);
    else yield [child, inner];
  }
}

module.exports = { useCassette, withCassette };
