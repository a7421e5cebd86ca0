// For node:test: `node --import tapeway/node-test --test`, and `useCassette()` in a test file.

import path from "node:path";
import { after, afterEach, beforeEach } from "node:test";
import { startRun } from "./connection.cjs";
import { cassetteName } from "./names.cjs";
import { connect, connected, withCassette } from "./session.cjs";
import { TestCassette } from "./test-cassette.cjs";

export { withCassette };

// There is no set-up before the process of a test file that could have started one.
if (!connect(String(process.pid))) {
  await startRun(process.cwd(), "node");
  connect(String(process.pid));
}

/** @typedef {import("node:test").TestContext} TestContext */
/** @typedef {TestContext & { passed: boolean, filePath?: string }} Told What node tells beyond its types. */

/** @type {import("./node-test.d.mts").useCassette} */
export function useCassette(name, options = {}) {
  const session = connected();
  beforeEach((test) => {
    const place = placeOf(/** @type {Told} */ (test));
    const shared = name !== undefined;
    return session.begin(place, { name: name ?? cassetteName(place), shared, once: true, options });
  });
  afterEach((test) => {
    const told = /** @type {Told} */ (test);
    return session.end(placeOf(told), !told.passed);
  });
  after(() => session.checkStray());
  return new TestCassette();
}

/** @param {Told} test @returns {import("./names.cjs").TestPlace} */
function placeOf(test) {
  const file = path.relative(connected().connection.root, test.filePath ?? process.argv[1] ?? "");
  return { file, titles: test.fullName.split(" > ") };
}
