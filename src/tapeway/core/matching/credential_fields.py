"""Credential fields: parts of a request that have the name of a key, token or client secret.

Another run has another key, a dummy or none, so what a credential field holds does not decide while
a cassette holds one value of it: a request and a recording are compared without these fields. A
password counts, and so does everything inside texts and in the input and output of tools.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from tapeway.core.json_text import Json, canonical
from tapeway.core.matching.document import parsed_request, with_rules, without_ignored
from tapeway.core.matching.json_paths import Steps
from tapeway.core.matching.key import document_key
from tapeway.core.matching.placeholders import is_placeholder
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import (
    CREDENTIAL_PARAMETERS,
    MIN_VALUE,
    is_credential_header,
)
from tapeway.core.redaction.opaque import is_opaque
from tapeway.core.redaction.patterns import Prefilter, compile_for_bytes
from tapeway.core.redaction.secret_names import name_kind
from tapeway.core.redaction.spans import PLACEHOLDER

Role = Literal["credential", "both", ""]
"""What a name says of a field: `credential`, `both` if it must stand on both sides, or ""."""

_BOTH = frozenset({"key", "token"})
"""Names that also mean other things, such as a page or a place."""

_CREDENTIAL_KINDS = frozenset({"credential", "login", "word"})

_COUNTED = re.compile(
    r"(?:pass(?:word|wd|phrase|code)?|pwd|pin|otp|totp|mfa)(?:[-_ ]?(?:confirm|confirmation|[0-9]+))?$",
    re.IGNORECASE,
)
"""Names of what a user knows: another password is another request."""

_OAUTH = frozenset(
    {"client_id", "client_secret", "code_verifier", "grant_type", "redirect_uri", "state"}
)
"""Beside one of these, `code` is OAuth's (RFC 6749 section 4.1.3); elsewhere it is any code."""

_GOOGLE_ROUTES = frozenset({"gemini", "vertex"})
"""On these routes `key` is the API key."""

_TOOL_DATA = frozenset({"args", "arguments", "input", "parameters", "response"})
_TOOL_NAMES = frozenset({"name", "tool_name", "toolName", "toolUseId"})

_OTHER_TOOLS = re.compile(
    r"[\W_]*|[\W_]*(?:dummy|fake|filtered|hidden|masked|none|null|omitted|placeholder|redacted"
    r"|removed|sanitized|scrubbed|secret|sensitive|test|x+)(?:[\W_]+\w+){0,3}[\W_]*",
    re.IGNORECASE,
)
"""What other tools, and people, write in the place of a secret."""

_LOGIN = re.compile(r"(?:basic|bearer|bot|key|token) \S+", re.IGNORECASE)

_MAYBE = (
    r"(?i)(?:key|token|secret|sig|assertion|verifier|code|credential|auth|upload_id|sas|bearer"
    r'|appid|session|cookie|jwt|hook|dsn|connection|string|id_hint)[a-z0-9_.-]*(?:%5[bd]|\\)*["=\r]'
)


def compared_document(
    request: Request, rules: Rules = NO_RULES, *, recorded: bool = False
) -> dict[str, Json]:
    """The document of a request without its credential fields, with rules applied."""
    return with_rules(open_request(request, rules, recorded=recorded).document, rules)


def compared_key(request: Request, rules: Rules = NO_RULES, *, recorded: bool = False) -> bytes:
    """The match key of a request without its credential fields."""
    opened = open_request(request, rules, recorded=recorded)
    return document_key(request.route, opened.document, rules)


def without_digests(request: Request) -> Request:
    """A recorded request with all placeholders equal, to compare it with another cassette's."""
    target = request.target.encode("utf-8", "surrogateescape")
    return replace(
        request,
        target=PLACEHOLDER.sub(b"REDACTED", target).decode("utf-8", "surrogateescape"),
        body=PLACEHOLDER.sub(b"REDACTED", request.body),
    )


class OpenedRequest(NamedTuple):
    """A parsed request without its credential fields, and what these held."""

    document: dict[str, Json]
    fields: tuple[tuple[Steps, str], ...]

    @property
    def values(self) -> bytes:
        """What the fields held, as one text."""
        return canonical([[list(steps), value] for steps, value in self.fields])


def open_request(
    request: Request, rules: Rules = NO_RULES, *, recorded: bool = False
) -> OpenedRequest:
    """The request without its credential fields and without what rules ignore.

    Of a recorded request only those fields are left out that hold a placeholder, or what may be a
    credential; of a received one all, whatever they hold.
    """
    document = without_ignored(parsed_request(request, rules), rules)
    opening = _Opening(request, recorded=recorded)
    body, query = document.get("body"), document.get("query")
    changed: dict[str, Json] = {}
    if isinstance(query, dict):
        changed["query"] = opening.pairs(query, ("query",))
    if isinstance(body, dict | list) and document.get("content") == "json":
        changed["body"] = opening.json(body, ("body",))
    elif isinstance(body, dict) and document.get("content") in ("form", "parts"):
        changed["body"] = opening.pairs(body, ("body",))
    return OpenedRequest(document | changed, tuple(opening.fields))


def has_credential_fields(request: Request, value: Json) -> bool:
    """Whether a recorded request has any whose JSON body has this value, and no rule applies.

    One with a query is taken to have some.
    """
    opening = _Opening(request, recorded=True)
    opening.json(value, ("body",))
    return "?" in request.target or bool(opening.fields)


_REMEMBERED = 4 * 1024
"""Bodies up to so many bytes are remembered as searched."""


def may_have_credential_fields(request: Request, *, once: bool = False) -> bool:
    """Whether a request may have any; a quick search in its bytes that is sometimes wrong.

    It is remembered, unless this is asked but `once` of many requests.
    """
    _, _, query = request.target.partition("?")
    if query and _maybe().search(query.encode("utf-8", "surrogateescape")):
        return True
    if once or len(request.body) > _REMEMBERED:
        return _maybe().search(request.body)
    return _names_a_credential(request.body)


@lru_cache(maxsize=256)
def _names_a_credential(body: bytes) -> bool:
    # Asked several times while a request is recorded.
    return _maybe().search(body)


@lru_cache(maxsize=2048)
def role_of(name: str, *, parameter: bool = False) -> Role:
    """The role of a JSON member of this name, or of a `parameter`, form field or part."""
    lower, kind = name.lower(), name_kind(name)
    if lower in _BOTH:
        return "both"
    if _COUNTED.search(name) or kind == "password":
        return ""
    is_credential = kind in _CREDENTIAL_KINDS or (parameter and lower in CREDENTIAL_PARAMETERS)
    return "credential" if is_credential else ""


class _Opening:
    """Leaves out credential fields and notes what they held."""

    def __init__(self, request: Request, *, recorded: bool) -> None:
        self.fields: list[tuple[Steps, str]] = []
        self._recorded = recorded
        self._owns_key = request.route in _GOOGLE_ROUTES or ".googleapis.com" in request.base

    def pairs(self, values: dict[str, Json], steps: Steps) -> dict[str, Json]:
        """A query or form without its credential fields."""
        is_oauth = not _OAUTH.isdisjoint(values)
        kept: dict[str, Json] = {}
        for name, value in values.items():
            role = role_of(name, parameter=True)
            if (name == "code" and is_oauth) or (name == "key" and self._owns_key):
                role = "credential"
            texts = _texts_of(value)
            if not role or texts is None or not all(map(self._is_value, texts)):
                kept[name] = value
                continue
            self.fields.append(((*steps, name), "\n".join(texts)))
            if role == "both":
                kept[name] = ""
        return kept

    def json(self, value: Json, steps: Steps) -> Json:
        """A JSON value without its credential fields, at any depth."""
        if isinstance(value, list):
            return [self.json(each, (*steps, at)) for at, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kept: dict[str, Json] = {}
        for name, each in value.items():
            if isinstance(each, dict | list):
                if isinstance(each, dict) and _is_mcp_headers(name, value):
                    if left := self._headers(each, (*steps, name)):
                        kept[name] = left
                elif name in _TOOL_DATA and not _TOOL_NAMES.isdisjoint(value):
                    kept[name] = each
                else:
                    kept[name] = self.json(each, (*steps, name))
            else:
                self._member(name, each, steps, kept)
        return kept

    def _member(self, name: str, value: Json, steps: Steps, kept: dict[str, Json]) -> None:
        role = role_of(name)
        if not role or not (value is None or isinstance(value, str)):
            kept[name] = value
            return
        text = value or ""
        # In JSON, `key` and `token` are names of anything: only what looks like a key is one.
        counts = role == "both" and self._recorded and not _looks_like_key(text)
        # Prose is no secret, whatever its field is called.
        prose = len(text.split()) > 1 and not _LOGIN.fullmatch(text)
        if counts or prose or not self._is_value(text):
            kept[name] = value
            return
        self.fields.append(((*steps, name), text))
        if role == "both":
            kept[name] = ""

    def _headers(self, headers: dict[str, Json], steps: Steps) -> dict[str, Json]:
        """The headers of a tool's server without those that carry a credential."""
        kept: dict[str, Json] = {}
        for name, value in headers.items():
            lower = name.lower().encode()
            is_credential = is_credential_header(lower) or lower == b"cookie" or role_of(name)
            if isinstance(value, str) and (is_credential or is_placeholder(value)):
                self.fields.append(((*steps, name), value))
            else:
                kept[name] = value
        return kept

    def _is_value(self, text: str) -> bool:
        """Whether a credential field may hold this text; one of a received request holds any."""
        if not self._recorded:
            return True
        bare = text if not _LOGIN.fullmatch(text) else text.rpartition(" ")[2]
        is_long = len(bare) >= MIN_VALUE and len(bare.split()) == 1
        return is_placeholder(bare) or is_long or _is_of_other_tool(text)


def _texts_of(value: Json) -> list[str] | None:
    """The texts under one name of a query or form, None where one of them is no text."""
    found: list[str] = []
    for each in value if isinstance(value, list) else [value]:
        text = each.get("content") if isinstance(each, dict) else each
        if not isinstance(text, str):
            return None
        found.append(text)
    return found


def _is_mcp_headers(name: str, siblings: Collection[str]) -> bool:
    return name == "headers" and "server_url" in siblings


def _looks_like_key(text: str) -> bool:
    return is_placeholder(text) or is_opaque(text.encode("utf-8", "surrogatepass"))


def _is_of_other_tool(text: str) -> bool:
    return len(text) <= 64 and _OTHER_TOOLS.fullmatch(text) is not None


@cache
def _maybe() -> Prefilter:
    return Prefilter(compile_for_bytes(_MAYBE.encode()))
