"""One call for every route, as it has to be sent to be carried out."""

import hashlib
import json
from dataclasses import dataclass

from tapeway.admin.operation import Operation
from tapeway.core.model.cassette import CassetteHead
from tapeway.formats.jsonl import CopyWriter

BODY = b"a body that is brought in"
DIGEST = hashlib.sha256(BODY).hexdigest()
INTERACTION = {
    "kind": "http",
    "request": {"method": "GET", "url": "http://service.invalid/v1/more", "route": "default"},
    "response": {"status_code": 200, "headers": {}, "text": "more"},
}
_CASSETTE: dict[str, object] = {
    "version": "1",
    "created_at": "2026-01-02T03:04:05+00:00",
    "run_id": "a-run",
    "meta": {},
    "interactions": [],
}

ABSENT = frozenset(
    {
        *(
            "accept",
            "get_body",
            "get_call",
            "get_entry",
            "get_record",
            "record_missed",
            "get_slot",
            "delete_slot",
            "list_slot_requests",
        ),
        "recording_events",
    }
)
"""What these are about is not there in a world where one thing was asked for."""


@dataclass(frozen=True, slots=True)
class Example:
    """What a call carries."""

    body: bytes = b""
    type: str = "application/json"


def example(operation: Operation) -> Example:
    """What a call of this route carries so that it succeeds."""
    return _EXAMPLES.get(operation.name, Example())


QUERIES = {"delete_rule": "?rule=ignore+%3D+%5B%22body.x%22%5D"}
"""What a call cannot do without in its query."""


def filled(path: str) -> str:
    """A path of the table with what is there put in."""
    for name, value in {
        "name": "default",
        "index": "0",
        "id": "x",
        "number": "1",
        "slot": "w0",
        "sha256": DIGEST,
    }.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def copy() -> bytes:
    """A cassette without interactions, line by line."""
    writer = CopyWriter(CassetteHead("2026-01-02T03:04:05+00:00", "a-run"))
    return writer.first() + writer.last()


def _json(value: object) -> Example:
    return Example(json.dumps(value).encode())


_EXAMPLES = {
    "put_mode": _json({"mode": "replay"}),
    "insert": _json({"cassette": "other"}),
    "eject": _json({}),
    "rewind": _json({}),
    "check": _json({"cassette": "other", "rules": {"ignore": ["body.id"]}}),
    "put_faults": _json({"faults": [{"name": "busy", "do": "503"}]}),
    "put_slot": _json({"cassette": "other"}),
    "report_of_run": _json({"cassettes": []}),
    "notes_of_run": _json({"cassettes": []}),
    "put_cassette": _json(_CASSETTE),
    "append_interactions": _json({"interactions": [INTERACTION]}),
    "put_interaction": _json(INTERACTION),
    "put_copy": Example(copy(), "application/jsonl"),
    "put_body": Example(BODY, "application/octet-stream"),
}
