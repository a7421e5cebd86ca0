// A recorded WebSocket session: who said what, and below it its messages as they came.

import { breakable, h } from "../shell/dom.js";
import { count, counted, duration, head, size } from "../shell/format.js";
import { hasSought, sought } from "../shell/sought.js";
import { mediaElement } from "./media.js";
import { lazy, structured } from "./messages.js";

const SHOWN = 200;
const LONG = 1500;
const ROLES = { you: "user", assistant: "assistant", instructions: "system" };

// What is said stands first where that is known, and the messages are folded then.
export function sessionView(session) {
  if (session.transcript.length === 0) return messagesOf(session);
  return [transcriptView(session), lazy(h("summary", {}, counted(session.messages.length, "protocol event")), () => messagesOf(session), "details.fold")];
}

export function transcriptView({ transcript, messages, close }) {
  return [transcript.map((line) => spokenLine(line, messages)), h("p.small.muted", {}, ending(close))];
}

function spokenLine({ who, at_ms: at, until_ms: until, text, name, failed, interrupted, sounds }, messages) {
  const tool = who === "tool call" || who === "tool result";
  return h(
    "article.message-box",
    { data: { role: ROLES[who] ?? "tool", failed: failed || who === "error" ? "true" : undefined } },
    h("p.role", {}, tool && name ? `${who === "tool call" ? "calls" : "tool result of"} ${name}` : who, failed && ", failed", " ", h("span.small.time", {}, until > at ? `${duration(at)} to ${duration(until)}` : duration(at)), interrupted && h("span.small.time", {}, ", interrupted")),
    text && (tool ? structured(text, name) : said(text)),
    sounds.map((place) => messages[place]?.sound && heard(messages[place].sound)),
  );
}

function messagesOf({ messages, left_out: leftOut, close }) {
  const rest = messages.slice(SHOWN);
  return [
    messages.slice(0, SHOWN).map(box),
    rest.length > 0 && lazy(h("summary", {}, counted(rest.length, "later message")), () => rest.map(box), "details.fold", hasSought(rest)),
    leftOut > 0 && h("p.small.muted", {}, `${count(leftOut)} more are not shown here.`),
    h("p.small.muted", {}, ending(close)),
  ];
}

function box({ by, type, at_ms: at, until_ms: until, pieces, text, sound, value }) {
  const time = pieces > 1 ? `${duration(at)} to ${duration(until)}, ${counted(pieces, "piece")}` : duration(at);
  const words = text || wordsOf(value);
  return h(
    "article.message-box",
    { data: { role: by === "client" ? "user" : "assistant" } },
    h("p.role", {}, by, " ", h("code", {}, breakable(type)), " ", h("span.small.time", {}, time)),
    words && said(words),
    sound && heard(sound),
    value !== null && lazy(h("summary", {}, words ? h("span.muted.small", {}, "the whole message") : h("span.mono.closed", {}, head(shortOf(value), 100) || "{ }")), () => structured(value, type), "details.tool", !hasSought(words) && hasSought(value)),
  );
}

// The words that a message brings as a whole: a transcript, a text, why something failed.
function wordsOf(value) {
  const found = [value?.transcript, value?.text, value?.error?.message, value?.message?.content];
  return found.find((each) => typeof each === "string" && each !== "") ?? "";
}

// A message without its type, which stands above it, and its own id.
function shortOf(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return JSON.stringify(value);
  const { type, event_id: id, ...rest } = value;
  return Object.keys(rest).length === 0 ? "" : JSON.stringify(rest);
}

function said(text) {
  const prose = () => h("p.prose", {}, sought(text));
  return text.length <= LONG ? prose() : lazy(h("summary", {}, head(text, 200), h("span.muted.small", {}, ` ${size(new Blob([text]).size)}`)), prose, "details.tool", hasSought(text));
}

function heard(sound) {
  const player = sound.data && mediaElement(sound.data, { media_type: sound.media_type, encoding: "base64", size: sound.size });
  return player ?? h("p.small.muted", {}, `${size(sound.size)} of sound, too long to be played here`);
}

function ending(close) {
  if (close === null) return "Nobody saw the end of this session.";
  if (close.code === 0) return "The connection was lost.";
  return `The ${close.by} closed the connection with code ${close.code}${close.reason ? `: ${close.reason}` : ""}.`;
}
