"""The page as one file without a server: modules, styles and the collected answers.

The policy allows the scripts and styles in the file by their hashes, and nothing from outside.
Recorded content is a block of data, which no browser runs.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from posixpath import dirname, join, normpath
from typing import Any, Protocol

from tapeway.core.json_text import Json, dump
from tapeway.embedded.admin_client import DeckError
from tapeway.errors import TapewayError
from tapeway.html_report.collection import CollectedRun, ReportLimits, collect
from tapeway.web.files import START, PageFile, page_files

_IMPORT = re.compile(r"""(\bfrom |\bimport |\bimport\()"(\.{1,2}/[^"]+\.js)\"""")
_STYLE = re.compile(r'<link rel="stylesheet" href="web/([^"]+)">')
_SCRIPT = re.compile(r'<script type="module" src="web/([^"]+)"></script>')
_ICON = "web/icon.svg"
_NOWHERE = '"https://report.invalid/web/"'
_NAMESPACE = "tapeway/"

_ANSWERS = """\
const recorded = JSON.parse(document.getElementById("recorded").textContent);
const held = new Map(Object.entries(recorded.answers).map(([path, answer]) => [decodeURIComponent(path), answer]));
// The page makes no link to what is not here.
globalThis.reportHolds = (path) => held.has(path);
const answer = (value, status = 200) =>
  new Response(JSON.stringify(value), { status, headers: { "Content-Type": "application/json" } });
const refusal = (status, code, message) => answer({ error: { code, message }, message }, status);
function journal(query) {
  const has = (name, value) => !query.get(name) || query.get(name) === value;
  const text = query.get("text")?.toLowerCase();
  const says = (entry) => {
    const details = held.get("journal/" + entry.id);
    const view = entry.interaction === null ? null
      : held.get(`cassettes/${entry.cassette}/interactions/${entry.interaction}/view`);
    return JSON.stringify([entry, details, view]).toLowerCase().includes(text);
  };
  const start = query.get("after") ? recorded.entries.findIndex((each) => each.id === query.get("after")) + 1 : 0;
  const older = start || !query.get("after") ? recorded.entries.slice(start) : [];
  const found = older.filter((each) => has("outcome", each.outcome) && has("cassette", each.cassette)
    && has("route", each.route)
    && has("slot", each.slot) && has("take", String(each.take)) && (!text || says(each) !== (query.get("negate") === "true")));
  const limit = Number(query.get("limit") ?? 100);
  const entries = found.slice(0, limit);
  const next = found.length > limit ? entries.at(-1).id : null;
  return { entries, next, searched: text ? older.length : null, left: text ? 0 : null };
}
// What is asked of an answer that is a list.
const LISTS = { titles, turns, messages };
const numbered = (query, name, none) => (query.get(name) ? Number(query.get(name)) : none);
const saying = (query) => (each) => !query.get("text") || JSON.stringify(each).toLowerCase().includes(query.get("text").toLowerCase());
function titles(found, query) {
  const shows = { failed: (each) => each.failure !== null || each.status >= 400, unused: (each) => each.unused, streamed: (each) => each.streamed, unmarked: (each) => each.unmarked };
  const sizes = { slowest: (each) => each.latency_ms ?? 0, tokens: (each) => each.usage?.total_tokens ?? 0, largest: (each) => each.response_bytes ?? 0 };
  const [show, size] = [shows[query.get("show")], sizes[query.get("order")]];
  const all = found.titles.filter(saying(query)).filter(show ?? (() => true));
  if (size) all.sort((one, two) => size(two) - size(one));
  const plain = !query.get("text") && !show && !size;
  const after = numbered(query, "after", null);
  const start = after === null ? 0 : plain ? all.filter((each) => each.index <= after).length : all.findIndex((each) => each.index === after) + 1;
  const page = all.slice(start, start + numbered(query, "limit", 100));
  const next = start + page.length < all.length ? page.at(-1).index : null;
  return { titles: page, total: found.titles.length, found: plain || after !== null ? null : all.map((each) => each.index), unsearched: 0, next };
}
function turns(found, query) {
  if (query.get("index")) return found;
  const later = found.turns.filter((each) => each.number > numbered(query, "after", -1));
  const page = later.slice(0, numbered(query, "limit", 100));
  return { ...found, turns: page, next: page.length < later.length ? page.at(-1).number : null };
}
function messages(found, query) {
  const [first, last] = [numbered(query, "first", 0), numbered(query, "last", Infinity)];
  const all = found.messages.filter((each) => each.interaction >= first && each.interaction <= last).filter(saying(query));
  return { ...found, messages: all.slice(0, numbered(query, "limit", 100)), found: all.length };
}
globalThis.fetch = async (input, options = {}) => {
  const url = new URL(input.url ?? input, document.baseURI);
  const place = decodeURIComponent(url.pathname.split("/api/v1/")[1] ?? "");
  if ((options.method ?? "GET") !== "GET") {
    return refusal(405, "report", "This is a report: it changes nothing.");
  }
  if (place === "journal") return answer(journal(url.searchParams));
  if (place === "events") {
    const hold = (control) => options.signal?.addEventListener("abort", () => control.error(options.signal.reason));
    return new Response(new ReadableStream({ start: hold }), { headers: { "Content-Type": "text/event-stream" } });
  }
  if (held.has(place)) {
    const list = place.startsWith("cassettes/") ? LISTS[place.slice(place.lastIndexOf("/") + 1)] : undefined;
    return answer(list ? list(held.get(place), url.searchParams) : held.get(place));
  }
  return refusal(404, "not_in_report", "The report does not hold this: see the cassette itself.");
};
if (!location.hash) location.hash = "#/summary";
// A script that a trusted one adds is trusted, and so are its imports ('strict-dynamic').
const start = document.createElement("script");
start.type = "module";
start.src = JSON.parse(document.querySelector("script[type=importmap]").textContent).imports["tapeway/%s"];
document.head.append(start);
"""


class Caller(Protocol):
    """Calls the admin API; `embedded.admin_client.AdminClient` does."""

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any: ...


def collected_page(
    client: Caller, limits: ReportLimits, reports: Sequence[Mapping[str, Any]] | None = None
) -> str:
    """The page with the present answers of the admin API, or with these reports. Raises TapewayError."""

    def call(path: str, query: dict[str, object]) -> Json:
        try:
            answer: Json = client.call("GET", path, None, **query)
        except DeckError as exc:
            raise TapewayError(str(exc), code=exc.code) from exc
        return answer

    return html_report(collect(call, limits, reports))


def html_report(run: CollectedRun) -> str:
    """The file; it shows the collected answers, and sends no request."""
    files = page_files()
    start = files[START].content.decode()
    entry = _single(_SCRIPT.findall(start))
    modules = {
        f"{_NAMESPACE}{path}": _data_url("text/javascript", _module(path, file, files))
        for path, file in files.items()
        if file.content_type == "text/javascript"
    }
    styles = [files[path].content.decode() for path in _STYLE.findall(start)]
    imports = dump({"imports": {**modules}}).decode()
    script = _ANSWERS % entry
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src 'strict-dynamic' {_hash(imports)} {_hash(script)}",
            f"style-src {' '.join(map(_hash, styles))}",
            "img-src data: blob:",
            "media-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<meta name="referrer" content="no-referrer">',
        "<title>tapeway</title>",
        *[f"<style>{style}</style>" for style in styles],
        f'<script type="importmap">{imports}</script>',
    ]
    body = [
        f'<script type="application/json" id="recorded">{_data(run)}</script>',
        f"<script>{script}</script>",
    ]
    lines = [
        *("<!doctype html>", '<html lang="en">', "<head>", *head, "</head>"),
        *("<body>", *body, "</body>", "</html>", ""),
    ]
    return "\n".join(lines)


def _module(path: str, file: PageFile, files: Mapping[str, PageFile]) -> bytes:
    """A module with its icon inside, and with names of the import map as imports."""

    def named(match: re.Match[str]) -> str:
        return f'{match[1]}"{_NAMESPACE}{normpath(join(dirname(path), match[2]))}"'

    text = _IMPORT.sub(named, file.content.decode())
    icon = files[_ICON.removeprefix("web/")]
    text = text.replace(_ICON, _data_url(icon.content_type, icon.content))
    return text.replace("import.meta.url", _NOWHERE).encode()


def _data(run: CollectedRun) -> str:
    """The data as JSON; recorded text never ends a block of HTML."""
    text = dump({"answers": run.answers, "entries": run.entries, "left_out": run.left_out}).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _data_url(content_type: str, content: bytes) -> str:
    return f"data:{content_type};base64,{b64encode(content).decode()}"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _single(items: list[str]) -> str:
    (one,) = items
    return one
