"""One request as a provider's code sees it.

Reading a client's JSON without trusting its shape: a wrong type reads as absent.

The parts of an uploaded form.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

JsonObject = dict[str, object]
_ASKED_STATUS = re.compile(r"error-([45]\d\d)")
_CREDENTIAL_HEADERS = (
    "x-amz-security-token",  # beside it, Authorization is but a signature
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
)
_BOUNDARY = re.compile(r'boundary="?([^";,]+)"?', re.IGNORECASE)
_PARAMETER = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def at(value: object, *path: str | int) -> object:
    """What stands at the path, or None."""
    for step in path:
        if isinstance(step, str) and isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text_at(value: object, *path: str | int) -> str:
    """The string at the path, or an empty one."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def int_at(value: object, *path: str | int, default: int) -> int:
    """The integer at the path, or the default."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def list_at(value: object, *path: str | int) -> list[object]:
    """The list at the path, or an empty one."""
    found = at(value, *path)
    return list(found) if isinstance(found, list) else []


def objects_at(value: object, *path: str | int) -> Iterator[JsonObject]:
    """Those items of the list at the path that are objects."""
    for item in list_at(value, *path):
        if isinstance(item, dict):
            yield item


@dataclass(frozen=True, slots=True)
class StandInRequest:
    """The path is percent-decoded and the body content-decoded; `params` come from the route."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    json: JsonObject = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model that path or body names."""
        return self.params.get("model") or text_at(self.json, "model")

    @property
    def asked_status(self) -> int | None:
        """429 for a model named `error-429`: the failure this call asks for."""
        found = _ASKED_STATUS.fullmatch(self.model)
        return int(found[1]) if found else None

    @property
    def credential(self) -> str:
        """The key that came with the call, without its scheme; empty if there is none."""
        for name in _CREDENTIAL_HEADERS:
            if value := self.headers.get(name):
                return value.rpartition(" ")[2]
        return self.query.get("key", "")


@dataclass(frozen=True, slots=True)
class UploadedPart:
    """One field of a form; `filename` is empty for a plain value."""

    name: str
    filename: str
    content: bytes


def form_parts(call: StandInRequest) -> Iterator[UploadedPart]:
    """The call's form fields in order; none if the body is no form (RFC 7578)."""
    found = _BOUNDARY.search(call.headers.get("content-type", ""))
    if not found:
        return
    delimiter = b"\r\n--" + found[1].encode()
    for section in (b"\r\n" + call.body).split(delimiter)[1:-1]:
        head, _, content = section.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        yield _part(head.decode(), content)


def _part(head: str, content: bytes) -> UploadedPart:
    disposition = next(
        (line for line in head.split("\r\n") if line.lower().startswith("content-disposition:")), ""
    )
    parameters = dict(_PARAMETER.findall(disposition))
    return UploadedPart(parameters.get("name", ""), parameters.get("filename", ""), content)
