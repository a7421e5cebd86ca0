"use strict";
// For Playwright's test runner: `test = base.extend(fixtures)`.

const path = require("node:path");
const { cassetteName } = require("./names.cjs");
const { connect, connected, withCassette } = require("./session.cjs");
const { TestCassette } = require("./test-cassette.cjs");

// The process that only lists the tests is no worker.
const { TEST_WORKER_INDEX } = process.env;
if (TEST_WORKER_INDEX !== undefined) connect(TEST_WORKER_INDEX);

/** @typedef {import("@playwright/test").TestInfo} TestInfo */

/** @type {import("./playwright.cjs").fixtures} */
const fixtures = {
  cassetteName: [undefined, { option: true }],
  cassetteOptions: [{}, { option: true }],
  tapeway: [
    async ({}, use) => {
      const { slot, tapeway } = connected().connection;
      await use({ url: `${tapeway.url}/@~${slot}`, adminUrl: tapeway.adminUrl, slot });
    },
    { scope: "worker" },
  ],
  cassette: [
    async ({ cassetteName: given, cassetteOptions: options }, use, info) => {
      const session = connected();
      const place = placeOf(info);
      await session.begin(place, { name: given ?? cassetteName(place), shared: given !== undefined, options });
      await use(new TestCassette());
      await session.end(place, info.status !== info.expectedStatus);
      await session.checkStray();
    },
    { auto: true },
  ],
};

/** @param {TestInfo} info */
function placeOf({ file, titlePath, project }) {
  const place = { file: path.relative(connected().connection.root, file), titles: titlePath.slice(1) };
  return project.name ? { ...place, variant: project.name } : place;
}

module.exports = { fixtures, withCassette };
