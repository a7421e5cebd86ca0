"use strict";
// Calls the admin API of a tapeway.

// Taken now: what tests put in place of fetch is for the code under test.
const { fetch } = globalThis;

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
  async call(method, path, { body, query = {} } = {}) {
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json" };
    if (this._token) headers["Authorization"] = `Bearer ${this._token}`;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const search = new URLSearchParams(query).toString();
    const url = `${this.url}/api/v1/${path}${search && `?${search}`}`;
    const sent = body === undefined ? null : JSON.stringify(body);
    let response, text;
    try {
      response = await fetch(url, { method, headers, body: sent });
      text = await response.text();
    } catch (error) {
      const { cause = error } = /** @type {Error} */ (error);
      throw new TapewayError(`tapeway does not answer at ${this.url}: ${/** @type {Error} */ (cause).message}`);
    }
    if (response.ok) return JSON.parse(text);
    throw refusal(response.status, text);
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
