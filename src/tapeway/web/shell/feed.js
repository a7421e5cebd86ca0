// The journal live: server-sent events read by `fetch`, so that the token stays in a header.
//
// After a break it connects again, and fetches from the journal what came meanwhile.

import { checked, get } from "./api.js";
import { serverEvents } from "./events.js";

const RETRY_MS = [250, 1000, 2000, 5000];
const PAGE = 1000;
const MOST_PAGES = 20;

// Follows the journal until the signal is aborted.
//
// `since` is the id of the newest entry that is known, or null. `receive(entries, {missed, gap})`
// gets new entries, oldest first: `missed` says that they came during a break, `gap` that there
// were more, which have left the journal. `report(state)` gets "connecting", "live" or "broken".
export async function follow({ since, receive, report, signal }) {
  const position = { last: since };
  report("connecting");
  for (let failures = 0; !signal.aborted; failures += 1) {
    try {
      await connection(position, { receive, signal, live: () => ((failures = 0), report("live")) });
    } catch {
      // Whatever it was: the journal tells afterwards what was missed.
    }
    if (signal.aborted) return;
    report("broken");
    await pause(RETRY_MS[Math.min(failures, RETRY_MS.length - 1)], signal);
  }
}

async function connection(position, { receive, signal, live }) {
  const response = await checked("GET", "events", { query: { gist: true }, signal, headers: { Accept: "text/event-stream" } });
  const known = new Set();
  let caughtUp = false;
  for await (const entries of serverEvents(response.body)) {
    if (!caughtUp) {
      // From here on events come, so nothing falls between the journal and them.
      caughtUp = true;
      const { found, gap } = await meanwhile(position.last, signal);
      for (const each of found) known.add(each.id);
      if (found.length > 0 || gap) receive(found, { missed: true, gap });
      position.last = found.at(-1)?.id ?? position.last;
      live();
    }
    // An entry that came while the journal was read is in both.
    const fresh = entries.filter((each) => !known.delete(each.id));
    if (fresh.length === 0) continue;
    receive(fresh, { missed: false, gap: false });
    position.last = fresh.at(-1).id;
  }
}

// What the journal holds after an entry, oldest first.
async function meanwhile(last, signal) {
  const found = [];
  let after = null;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const page = await get("journal", { after, limit: PAGE, gist: true }, signal);
    for (const each of page.entries) {
      if (each.id === last) return { found: found.reverse(), gap: false };
      found.push(each);
    }
    after = page.next;
    if (after === null) return { found: found.reverse(), gap: last !== null };
  }
  return { found: found.reverse(), gap: true };
}

export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
