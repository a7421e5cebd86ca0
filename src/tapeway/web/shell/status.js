// What tapeway does now, asked for once a second for all who show it.

import { get } from "./api.js";
import { pause } from "./feed.js";

const EVERY_MS = 1000;

const listeners = new Set();
let known = null;

// Calls `listener(status)` with what is known, and with what comes, until the signal is aborted.
export function onStatus(listener, signal) {
  listeners.add(listener);
  signal?.addEventListener("abort", () => listeners.delete(listener));
  if (known !== null) listener(known);
}

export async function refreshStatus() {
  known = await get("status");
  for (const each of listeners) each(known);
  return known;
}

export async function watchStatus() {
  const forever = new AbortController().signal;
  for (;;) {
    // The page says that the server does not answer.
    if (document.visibilityState === "visible") await refreshStatus().catch(() => null);
    await pause(EVERY_MS, forever);
  }
}
