// Calls of the admin API. The token goes into a header, never into an address; it is asked for
// once and kept for the tab.

const KEY = `tapeway-token ${location.pathname}`;
const BASE = new URL("api/v1/", document.baseURI);

let there = true;
let reachable = () => {};
let asking = null;
let prompt = () => Promise.reject(new Error("no prompt for a token"));

// An answer of 400 or above: `code` is the stable code of the API.
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// `ask(wrong)` shows a prompt and resolves to the token.
export function setTokenPrompt(ask) {
  prompt = ask;
}

export function forgetToken() {
  sessionStorage.removeItem(KEY);
}

// A path below api/v1, its parts encoded: path`cassettes/${name}/interactions`.
export function path(strings, ...parts) {
  return strings.reduce((made, text, at) => made + text + (at < parts.length ? encodeURIComponent(parts[at]) : ""), "");
}

function address(where, query = {}) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

// The response to a call, whatever its status but 401, after which the token is asked for.
export async function request(method, where, { query, body, headers = {}, signal } = {}) {
  for (;;) {
    const used = sessionStorage.getItem(KEY);
    const sent = { ...headers };
    if (used !== null) sent.Authorization = `Bearer ${used}`;
    if (body !== undefined && sent["Content-Type"] === undefined) sent["Content-Type"] = "application/json";
    const response = await reach(address(where, query), {
      method,
      signal,
      headers: sent,
      body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
    });
    if (response.status !== 401) return response;
    await newToken(used);
  }
}

// `report(there)` is called when the server is gone, and when it answers again.
export function onReachable(report) {
  reachable = report;
}

async function reach(url, options) {
  try {
    const response = await fetch(url, options);
    if (!there) reachable((there = true));
    return response;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (there) reachable((there = false));
    throw new ApiError(0, "unreachable", "tapeway does not answer: it has stopped, or the network to it is down.");
  }
}

// Many calls may be refused at once: they share one prompt.
async function newToken(used) {
  if (sessionStorage.getItem(KEY) !== used) return;
  asking ??= prompt(used !== null).finally(() => (asking = null));
  sessionStorage.setItem(KEY, await asking);
}

// The response if it is a success. Throws ApiError otherwise.
export async function checked(method, where, options) {
  const response = await request(method, where, options);
  if (response.ok) return response;
  throw await refusal(response);
}

export async function refusal(response) {
  try {
    const { error } = await response.json();
    return new ApiError(response.status, error.code, error.message);
  } catch {
    return new ApiError(response.status, "http", `tapeway answered ${response.status}.`);
  }
}

export async function get(where, query, signal) {
  return (await checked("GET", where, { query, signal })).json();
}

export async function send(method, where, body, options = {}) {
  return (await checked(method, where, { ...options, body })).json();
}
