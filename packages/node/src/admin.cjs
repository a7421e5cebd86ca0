"use strict";
// Calls the admin API of a tapeway.

// Taken now, and not fetch: what tests put in their place is for the code under test.
const { request: overHttp } = require("node:http");
const { request: overHttps } = require("node:https");
const { text: textOf } = require("node:stream/consumers");

/** A tapeway did not start or refused a call; `code` is that of its error, and stable. */
class TapewayError extends Error {
  /** @param {string} message @param {string} code @param {number} status */
  constructor(message, code = "unreachable", status = 0) {
    super(message);
    this.name = "TapewayError";
    this.code = code;
    this.status = status;
  }
}

class AdminClient {
  /** @param {string} url @param {string | undefined} token */
  constructor(url, token) {
    this.url = url.replace(/\/+$/, "");
    this._token = token;
  }

  /**
   * The parsed answer of a call below `/api/v1/`.
   *
   * @param {"GET" | "PUT" | "POST" | "DELETE"} method
   * @param {string} path
   * @param {{ body?: unknown, query?: Record<string, string> }} [sent]
   * @returns {Promise<any>}
   * @throws {TapewayError}
   */
  async call(method, path, sent = {}) {
    return JSON.parse(await this.text(method, path, sent));
  }

  /**
   * The answer of a call as a text.
   *
   * @param {"GET" | "PUT" | "POST" | "DELETE"} method
   * @param {string} path
   * @param {{ body?: unknown, query?: Record<string, string> }} [sent]
   * @returns {Promise<string>}
   * @throws {TapewayError}
   */
  async text(method, path, { body, query = {} } = {}) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json" };
    if (this._token) headers["Authorization"] = `Bearer ${this._token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const search = new URLSearchParams(query).toString();
    const url = `${this.url}/api/v1/${path}${search && `?${search}`}`;
    const [status, text] = await this._exchange(url, method, headers, body);
    if (status < 400) return text;
    throw refusal(status, text);
  }

  /**
   * @param {string} url @param {string} method @param {Record<string, string>} headers
   * @param {unknown} body
   * @returns {Promise<[number, string]>}
   */
  _exchange(url, method, headers, body) {
    const request = url.startsWith("https:") ? overHttps : overHttp;
    return new Promise((resolve, reject) => {
      const fail = (/** @type {Error} */ error) => {
        reject(new TapewayError(`tapeway does not answer at ${this.url}: ${error.message}`));
      };
      // A connection of its own: one that is kept may be closed by the other side just then.
      const sent = request(url, { method, headers, agent: false }, (response) => {
        textOf(response).then((text) => resolve([response.statusCode ?? 0, text]), fail);
      });
      sent.on("error", fail).end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

/** @param {number} status @param {string} text */
function refusal(status, text) {
  try {
    const { message, code } = JSON.parse(text).error;
    const hint = code === "unauthorized" ? ": set TAPEWAY_ADMIN_TOKEN to the token of its admin API" : "";
    return new TapewayError(`${message}${hint}`, code, status);
  } catch {
    return new TapewayError(`tapeway answered ${status}`, "http", status);
  }
}

module.exports = { AdminClient, TapewayError };
