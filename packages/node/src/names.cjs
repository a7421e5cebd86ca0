"use strict";
// The cassette names of tests: `src/chat.test/greets-by-name`, by the rules of the pytest plugin but for blanks.
//
// A name is the same on every machine and under every selection of tests. Blanks become `-`. Six digits
// are added where other characters had to be replaced or the name was cut, so that two tests never
// share one.

const { crc32 } = require("node:zlib");

const LONGEST = 120;
const MOST_FOLDERS = 7;
const WINDOWS_DEVICE = /^(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?$/i;

/**
 * A test: its file, relative to the root of the run, the titles of its suites and its own, and what
 * tells it from another test of these titles.
 *
 * @typedef {{ file: string, titles: string[], variant?: string }} TestPlace
 */

/** @param {TestPlace} place */
function testId({ file, titles, variant }) {
  return [file, ...titles].join("::") + (variant ? `[${variant}]` : "");
}

/** @param {TestPlace} place */
function cassetteName(place) {
  const file = place.file.replaceAll("\\", "/").replace(/\.[cm]?[jt]sx?$/, "");
  const folders = file.split("/").filter((each) => !["", ".", ".."].includes(each));
  const last = place.titles.join(".") + (place.variant ? `-${place.variant}` : "");
  return joined([...folders, last], testId(place));
}

/**
 * The places and cassettes of all tests of a file. Of those with the same titles all but the first
 * are numbered. Where names differ in case alone they get digits, since some disks ignore case.
 *
 * @template Test
 * @param {string} file
 * @param {[Test, string[]][]} tests Each with its titles.
 * @returns {Map<Test, { place: TestPlace, name: string }>}
 */
function namedTests(file, tests) {
  const seen = counter();
  const found = tests.map(([test, titles]) => {
    const number = seen(testId({ file, titles }));
    const place = number > 1 ? { file, titles, variant: String(number) } : { file, titles };
    return { test, place, name: cassetteName(place) };
  });
  return new Map(
    found.map(({ test, place, name }) => {
      const alike = found.filter((each) => each.name.toLowerCase() === name.toLowerCase());
      return [test, { place, name: alike.length > 1 ? numbered(name, testId(place)) : name }];
    }),
  );
}

function counter() {
  /** @type {Map<string, number>} */
  const counts = new Map();
  return (/** @type {string} */ key) => {
    const count = (counts.get(key) ?? 0) + 1;
    counts.set(key, count);
    return count;
  };
}

/** @param {string[]} segments @param {string} id */
function joined(segments, id) {
  const kept = segments.map(segment);
  if (kept.length > MOST_FOLDERS + 1) {
    const middle = kept.slice(MOST_FOLDERS - 1, -1).join(".");
    kept.splice(MOST_FOLDERS - 1, kept.length - MOST_FOLDERS, segment(middle));
  }
  const name = kept.join("/");
  return name === withoutBlanks(segments.join("/")) ? name : numbered(name, id);
}

/** @param {string} text */
function withoutBlanks(text) {
  return text.replaceAll(" ", "-");
}

/** @param {string} text */
function segment(text) {
  let found = withoutBlanks(text).replace(/[^A-Za-z0-9._-]/gu, "_").slice(0, LONGEST);
  if (found.endsWith(".")) found = `${found.slice(0, -1)}_`;
  if (!/^[A-Za-z0-9]/.test(found) || WINDOWS_DEVICE.test(found)) found = `x${found}`.slice(0, LONGEST);
  return found;
}

/** @param {string} name @param {string} id */
function numbered(name, id) {
  const digits = `-${String(crc32(id) % 1_000_000).padStart(6, "0")}`;
  const start = name.lastIndexOf("/") + 1;
  return name.slice(0, start) + name.slice(start, start + LONGEST - digits.length) + digits;
}

module.exports = { cassetteName, joined, namedTests, testId };
