"""Every page of an admin API, found by way of the description of its routes."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from urllib.parse import quote

from tapeway.admin.openapi import document
from tapeway.admin.routes import TABLE

Get = Callable[[str], bytes]

_DIGEST = re.compile(rb'"sha256": ?"([0-9a-f]{64})"')
STREAMS = ("/api/v1/events", "/api/v1/recordings/{number}/events")
"""Pages without an end, or of what is under way; who wants them follows them."""


def pages(get: Get) -> dict[str, bytes]:
    """What every GET route answers, for every cassette, interaction, journal entry and format."""
    # Of all routes: the document that is served leaves out those of the page.
    described: Any = document(TABLE, "", locked=False)["paths"]
    found: dict[str, bytes] = {}
    for path, methods in described.items():
        if "get" not in methods or path in STREAMS or "{slot}" in path:
            continue
        for filled in _filled(path, get):
            for query in _queries(methods["get"].get("parameters", [])):
                found[f"admin {filled}{query}"] = get(filled + query)
    return found


def _filled(path: str, get: Get) -> Iterator[str]:
    names = [_cassette(cassette) for cassette in json.loads(get("/api/v1/cassettes"))["cassettes"]]
    if "{id}" in path:
        entries = json.loads(get("/api/v1/journal"))["entries"]
        # Only what was missed can be recorded now.
        missed = path.endswith("/record")
        yield from (
            path.replace("{id}", entry["id"])
            for entry in entries
            if not missed or entry["outcome"] == "miss"
        )
    elif "{name}" not in path:
        yield path
    elif "{sha256}" in path:
        for name in names:
            listed = get(f"/api/v1/cassettes/{name}/interactions")
            for digest in sorted(set(_DIGEST.findall(listed))):
                yield path.replace("{name}", name).replace("{sha256}", digest.decode())
    elif "{index}" not in path:
        yield from (path.replace("{name}", name) for name in names)
    else:
        for name in names:
            listed = json.loads(get(f"/api/v1/cassettes/{name}/interactions"))["interactions"]
            for interaction in listed:
                yield path.replace("{name}", name).replace("{index}", str(interaction["index"]))


def _cassette(listed: Any) -> str:
    return quote(listed["name"] if isinstance(listed, dict) else listed, safe="")


def _queries(parameters: list[Any]) -> Iterator[str]:
    choices = [
        [f"{parameter['name']}={value}" for value in _values(parameter["schema"])] or [""]
        for parameter in parameters
        if parameter["in"] == "query"
    ]
    for chosen in product(*choices):
        query = "&".join(part for part in chosen if part)
        yield f"?{query}" if query else ""


def _values(schema: Any) -> list[str]:
    if "enum" in schema:
        return [str(value) for value in schema["enum"]]
    return [value for part in schema.get("anyOf", []) for value in _values(part)]
