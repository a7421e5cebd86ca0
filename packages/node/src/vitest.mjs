// For vitest: `setupFiles: ["tapeway/vitest"]`, and `useCassette()` in a test file.

import path from "node:path";
import { afterAll, afterEach, beforeEach } from "vitest";
import { namedTests } from "./names.cjs";
import { connect, connected, withCassette } from "./session.cjs";
import { TestCassette } from "./test-cassette.cjs";

export { withCassette };

const { VITEST_POOL_ID, VITEST_WORKER_ID } = process.env;
connect(VITEST_POOL_ID ?? VITEST_WORKER_ID ?? String(process.pid));

/** @typedef {import("vitest").RunnerTestCase} Test */
/** @typedef {import("vitest").RunnerTestSuite["tasks"]} Tasks */

/** @type {import("./vitest.d.mts").useCassette} */
export function useCassette(name, options = {}) {
  const session = connected();
  beforeEach(({ task }) => {
    const own = named(task);
    const wanted = { name: name ?? own.name, shared: name !== undefined, options };
    return session.begin(own.place, { ...wanted, concurrent: task.concurrent === true });
  });
  afterEach(({ task }) => session.end(named(task).place, task.result?.state === "fail"));
  afterAll(() => session.checkStray());
  return new TestCassette();
}

/** @type {WeakMap<object, ReturnType<typeof namedTests<Test>>>} */
const files = new WeakMap();

/** @param {Test} task */
function named(task) {
  const { file } = task;
  const known = files.get(file) ?? claimed(file);
  const found = known.get(task);
  if (!found) throw new Error(`${task.name} is no test of ${file.name}`);
  return found;
}

/** @param {Test["file"]} file */
function claimed(file) {
  const session = connected();
  const tests = namedTests(path.relative(session.connection.root, file.filepath), [...testsOf(file.tasks, [])]);
  files.set(file, tests);
  session.claim(tests.values());
  return tests;
}

/** @param {Tasks} tasks @param {string[]} titles @returns {Generator<[Test, string[]]>} */
function* testsOf(tasks, titles) {
  for (const task of tasks) {
    const inner = [...titles, task.name];
    if (task.type === "suite") yield* testsOf(task.tasks, inner);
    else yield [task, inner];
  }
}
