"use strict";
// Starts a tapeway, or attaches to one that runs.

const { spawn } = require("node:child_process");
const { existsSync, readFileSync } = require("node:fs");
const { once } = require("node:events");
const { createInterface } = require("node:readline");
const { AdminClient, TapewayError } = require("./admin.cjs");

const STOP_MS = 30_000;
const LAST_LINES = 20;
const JOURNAL_SIZE = 100_000;
// Tells the variables that `tapeway run` sets, and holds it until this process closes the pipe or is
// gone, however it ended.
const HOLDER =
  'process.stdout.write(JSON.stringify(process.env) + "\\n"); process.stdin.on("close", () => process.exit()).resume();';
// Not for the processes below: they are about this one. Python sets LC_CTYPE for itself.
// Of these tapeway run and this program have defaults of their own, which come before variables.
const FLAGS = ["listen", "adminListen", "journalSize"];
const OWN_VARIABLES = ["NODE_OPTIONS", "NODE_V8_COVERAGE", "NODE_TEST_CONTEXT", "TAPEWAY_BIN", "LC_CTYPE"];

/** @typedef {import("./index.cjs").ServeOptions} ServeOptions */
/** @typedef {Record<string, string>} Variables */
/** @typedef {InstanceType<typeof RunningTapeway>} Tapeway */

/** @typedef {import("./index.cjs").Tapeway} PublicTapeway */

/** @implements {PublicTapeway} */
class RunningTapeway {
  /**
   * @param {Variables} environment
   * @param {InstanceType<typeof AdminClient>} admin
   * @param {() => Promise<void>} stop
   */
  constructor(environment, admin, stop) {
    this.environment = environment;
    this.url = withoutSlot(environment["TAPEWAY_URL"] ?? "");
    this.adminUrl = admin.url;
    this.admin = admin;
    this.stop = stop;
  }

  /** @param {import("./index.cjs").Mode} [mode] @returns {Promise<import("./index.cjs").Mode>} */
  async mode(mode) {
    const answer = await (mode ? this.admin.call("PUT", "mode", { body: { mode } }) : this.admin.call("GET", "mode"));
    return answer.mode;
  }

  /** @param {string} cassette @param {import("./index.cjs").Mode} [mode] */
  async insert(cassette, mode) {
    await this.admin.call("POST", "insert", { body: { cassette, mode: mode ?? null } });
  }

  /** @param {string} [cassette] @param {{ prune?: boolean }} [options] */
  async eject(cassette, { prune = false } = {}) {
    const answer = await this.admin.call("POST", "eject", { body: { cassette: cassette ?? null, prune } });
    return answer.cassettes[0];
  }

  async report() {
    return this.admin.call("GET", "report");
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}

/** @param {ServeOptions} [options] */
async function serve(options = {}) {
  // Without one, tapeway run would name its own line, which is about the process that holds it.
  const { command, folder, ...given } = { recordCommand: 'await tapeway.mode("auto")', ...options };
  // Other users can see arguments in the process list, and these may hold passwords.
  const { variables, flags } = handedOver(given);
  const names = Object.keys(variables);
  const replaced = names.flatMap((name) => [name, `${name}_FILE`, name.replace(/^TAPEWAY_/, "TAPEWAY_NO_")]);
  const kept = Object.entries(process.env).filter(([name]) => !OWN_VARIABLES.includes(name) && !replaced.includes(name));
  const [program = "", ...first] = commandLine(command ?? process.env["TAPEWAY_BIN"] ?? "tapeway");
  const child = spawn(
    program,
    [...first, "run", `--journal-size=${JOURNAL_SIZE}`, ...flags, "--", process.execPath, "-e", HOLDER],
    // Ctrl-C in a terminal is for the program, which then stops this process.
    { env: { ...Object.fromEntries(kept), ...variables }, stdio: ["pipe", "pipe", "pipe"], detached: true, ...(folder && { cwd: folder }) },
  );
  const environment = await variablesOf(child, program, names);
  letGo(child);
  const token = options.adminToken ?? adminTokenOf(process.env);
  const admin = new AdminClient(environment["TAPEWAY_ADMIN_URL"] ?? "", token);
  /** @type {Promise<void> | undefined} */
  let stopped;
  return new RunningTapeway(environment, admin, () => (stopped ??= stop(child)));
}

/** Attach to the tapeway that `TAPEWAY_URL` and `TAPEWAY_ADMIN_URL` name. */
function attach() {
  const { TAPEWAY_URL: url, TAPEWAY_ADMIN_URL: adminUrl } = process.env;
  if (!url || !adminUrl) throw new TapewayError("TAPEWAY_ADMIN_URL is set, but TAPEWAY_URL is not: set both", "no_url");
  const root = withoutSlot(url);
  const pointed = Object.entries(process.env).filter(([, value]) => value && isBelow(root, value));
  if (pointed.length < 2) {
    const how = `start the tests under tapeway run, or set what tapeway env prints`;
    throw new TapewayError(`no variable of an SDK leads to the tapeway at ${root}: ${how}`, "no_url");
  }
  const environment = /** @type {Variables} */ (Object.fromEntries(pointed));
  return new RunningTapeway(environment, new AdminClient(adminUrl, adminTokenOf(process.env)), async () => {});
}

/** @param {string} url */
function withoutSlot(url) {
  return url.replace(/\/@~[^/]*$/, "");
}

/** @param {string} root @param {string} url */
function isBelow(root, url) {
  return url === root || url.startsWith(`${root}/`);
}

/** @param {string | string[]} command */
function commandLine(command) {
  return Array.isArray(command) ? command : existsSync(command) ? [command] : command.split(" ").filter(Boolean);
}

/** @param {NodeJS.ProcessEnv} environment */
function adminTokenOf({ TAPEWAY_ADMIN_TOKEN: token, TAPEWAY_ADMIN_TOKEN_FILE: file }) {
  return token || !file ? token : readFileSync(file, "utf8").replace(/[\r\n]+$/, "");
}

/**
 * Options as variables, or as flags: a list with a comma in an item can be no variable.
 *
 * @param {Record<string, unknown>} options
 */
function handedOver(options) {
  /** @type {Variables} */
  const variables = {};
  /** @type {string[]} */
  const flags = [];
  for (const [name, value] of Object.entries(options)) {
    const words = name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
    if (value === undefined || value === null) continue;
    const all = Array.isArray(value) ? value : [value];
    if (FLAGS.includes(name) || (Array.isArray(value) && all.some((each) => String(each).includes(",")))) {
      flags.push(...all.map((each) => `--${words.toLowerCase().replaceAll("_", "-")}=${each}`));
    } else {
      variables[`TAPEWAY_${words}`] = String(value);
    }
  }
  return { variables, flags };
}

/**
 * The variables that a program needs to use the proxy, when it serves.
 *
 * @param {import("node:child_process").ChildProcessWithoutNullStreams} child
 * @param {string} program
 * @param {string[]} handed
 * @returns {Promise<Variables>}
 */
async function variablesOf(child, program, handed) {
  /** @type {string[]} */
  const said = [];
  createInterface(child.stderr).on("line", (line) => said.push(line) > LAST_LINES && said.shift());
  // A program that has ended reads nothing any more.
  child.stdin.on("error", () => {});
  /** @type {Promise<never>} */
  const failed = new Promise((_, reject) => {
    child.once("error", () => {
      const how = "install it (pip install tapeway), or name it in TAPEWAY_BIN, such as 'python3 -m tapeway'";
      reject(new TapewayError(`${program} cannot be started: ${how}`, "not_started"));
    });
    child.once("close", () => {
      reject(new TapewayError(`tapeway did not start: ${said.join("\n") || "it said nothing"}`, "not_started"));
    });
  });
  const line = createInterface(child.stdout);
  const [text] = await Promise.race([once(line, "line"), failed]);
  failed.catch(() => {});
  line.close();
  const found = Object.entries(variablesIn(text, child, program));
  const own = [...OWN_VARIABLES, ...handed];
  return Object.fromEntries(found.filter(([name, value]) => process.env[name] !== value && !own.includes(name)));
}

/**
 * @param {string} text
 * @param {import("node:child_process").ChildProcess} child
 * @param {string} program
 * @returns {Variables}
 */
function variablesIn(text, child, program) {
  try {
    return JSON.parse(text);
  } catch {
    child.kill("SIGKILL");
    throw new TapewayError(`${program} is not tapeway: it printed ${JSON.stringify(text.slice(0, 200))}`, "not_started");
  }
}

/**
 * Let this process end without waiting for the child, which ends with it.
 *
 * @param {import("node:child_process").ChildProcessWithoutNullStreams} child
 */
function letGo(child) {
  child.unref();
  for (const pipe of [child.stdin, child.stdout, child.stderr]) /** @type {import("node:net").Socket} */ (pipe).unref();
}

/** @param {import("node:child_process").ChildProcessWithoutNullStreams} child */
async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.ref();
  const ended = once(child, "exit");
  child.stdin.destroy();
  // Its own group, with what it started.
  const late = setTimeout(() => process.kill(-(child.pid ?? 0), "SIGKILL"), STOP_MS);
  await ended;
  clearTimeout(late);
}

module.exports = { attach, isBelow, serve, withoutSlot };
