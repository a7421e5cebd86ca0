// Numbers and times as people read them, in their own locale and zone.

const NUMBER = new Intl.NumberFormat(undefined);
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const PRECISE = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });
const DATED = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

export function count(value) {
  return value === null || value === undefined ? "–" : NUMBER.format(value);
}

// "1 interaction", "2 interactions".
export function counted(value, noun) {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let [value, at] = [bytes, 0];
  while (value >= 1024 && at < UNITS.length - 1) [value, at] = [value / 1024, at + 1];
  if (at === 0) return counted(bytes, "byte");
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${UNITS[at]}`;
}

export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds === 0) return "0 ms";
  if (milliseconds < 10) return `${milliseconds.toFixed(1)} ms`;
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  if (milliseconds < 10_000) return `${(milliseconds / 1000).toFixed(2)} s`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}

// The time of day; the date is in `full`. Of requests with milliseconds: a run may take a second.
export function clock(iso, format = CLOCK) {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? "–" : format.format(date);
}

export function preciseClock(iso) {
  return clock(iso, PRECISE);
}

// "137 tokens"; nothing for a call that is not counted in tokens.
export function tokens(value) {
  return value === null || value === undefined ? "" : counted(value, "token");
}

// The day alone, for lists.
export function day(iso) {
  const date = new Date(iso ?? "");
  return Number.isNaN(date.getTime()) ? "–" : DAY.format(date);
}

export function full(iso) {
  if (!iso) return "–";
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? String(iso) : DATED.format(date);
}

export function money(usd) {
  if (usd === null || usd === undefined) return "–";
  return usd !== 0 && Math.abs(usd) < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

// What JSON writes as escapes as the characters, but for those that nobody sees.
function readable(text) {
  if (!/^\s*["[{]/.test(text)) return text;
  return text.replace(/(?<!\\)(?:\\u[0-9a-fA-F]{4})+/g, (escapes) => {
    const characters = JSON.parse(`"${escapes}"`);
    return /[\p{C}\p{Z}]/u.test(characters) ? escapes : characters;
  });
}

// The start of a text in one line.
export function head(text, most = 120) {
  const line = readable(String(text)).replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
