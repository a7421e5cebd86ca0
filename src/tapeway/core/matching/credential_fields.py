"""Credential fields: parts of a request that have the name of a key, token or client secret.

A later run has a different key, a dummy or none. While a cassette holds one value of a credential
field, the value does not decide: requests are compared without these fields. A password counts, and
so does everything inside texts and in the input and output of tools.

Some names also mean other things: `key`, `token`, `code` … A field with such a name is a credential
field only where both the recorded and the asked value have the form of a key.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from functools import cache, lru_cache
from typing import Literal, NamedTuple

from tapeway.core.automata import Prefilter, compile_for_bytes
from tapeway.core.json_text import Json, canonical
from tapeway.core.matching.document import parsed_request, with_rules, without_ignored
from tapeway.core.matching.json_paths import Steps
from tapeway.core.matching.key import document_key
from tapeway.core.matching.placeholders import is_placeholder
from tapeway.core.matching.rules import Rules
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import (
    MIN_VALUE,
    is_credential_header,
    own_parameters,
)
from tapeway.core.redaction.patterns import is_known_key
from tapeway.core.redaction.secret_names import (
    CREDENTIAL_OBJECT,
    CREDENTIAL_TYPE,
    QUERY_NAMES,
    TYPE_NAME,
    is_ambiguous,
    is_key,
    name_kind,
)
from tapeway.core.redaction.spans import PLACEHOLDER

Role = Literal["credential", "ambiguous", ""]
"""What a name says of a field: `ambiguous` if its value has to have the form of a key."""

_KEY = "<credential>"
"""Stands for the value of an ambiguous field, which has to be there on both sides."""

_CREDENTIAL_KINDS = frozenset({"credential", "login", "word"})

_COUNTED = re.compile(
    r"(?:pass(?:word|wd|phrase|code)?|pwd|pin|otp|totp|mfa)(?:[-_ ]?(?:confirm|confirmation|[0-9]+))?$",
    re.IGNORECASE,
)
"""Names of what a user knows: another password is another request."""

_OBJECT = re.compile(rf".*{CREDENTIAL_OBJECT}", re.IGNORECASE)
_TYPE = re.compile(rf".*{TYPE_NAME}", re.IGNORECASE)
_TYPE_VALUE = re.compile(CREDENTIAL_TYPE, re.IGNORECASE)

_TOOL_DATA = frozenset({"args", "arguments", "input", "parameters", "response"})
_TOOL_NAMES = frozenset({"name", "tool_name", "toolName", "toolUseId"})

_OTHER_TOOLS = re.compile(
    r"[\W_]*|[\W_]*(?:dummy|fake|filtered|hidden|masked|none|null|omitted|placeholder|redacted"
    r"|removed|sanitized|scrubbed|secret|sensitive|test|x+)(?:[\W_]+\w+){0,3}[\W_]*",
    re.IGNORECASE,
)
"""What other tools, and people, write in the place of a secret."""

_CERTAIN_STAND_IN = re.compile(
    r"[\W_]*(?:[a-z]{1,12}[\W_]+){0,3}(?:dummy|filtered|redacted)(?:[\W_]+\w+){0,3}[\W_]*"
    r"|[\W_]*x{3,}[\W_]*|\*{3,}",
    re.IGNORECASE,
)
"""The part of these that is no value of anything else."""

_LOGIN = re.compile(r"(?:basic|bearer|bot|key|token) \S+", re.IGNORECASE)

_MAYBE = (
    r"(?i)(?:key|token|secret|sig|assertion|verifier|code|credential|auth|upload_id|sas|bearer"
    r'|appid|session|cookie|jwt|hook|dsn|connection|string|id_hint)[a-z0-9_.-]*(?:%5[bd]|\\)*["=\r]'
)


def compared_document(request: Request, rules: Rules, *, recorded: bool = False) -> dict[str, Json]:
    """The document of a request without its credential fields, with rules applied."""
    return with_rules(open_request(request, rules, recorded=recorded).document, rules)


def compared_key(request: Request, rules: Rules, *, recorded: bool = False) -> bytes:
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
    """A parsed request without credential fields, and the values of these fields."""

    document: dict[str, Json]
    fields: tuple[tuple[Steps, str], ...]

    @property
    def values(self) -> bytes:
        """What the fields held, as one text."""
        return canonical([[list(steps), value] for steps, value in self.fields])


def open_request(
    request: Request,
    rules: Rules,
    *,
    recorded: bool = False,
    wide: bool = False,
    parsed: dict[str, Json] | None = None,
) -> OpenedRequest:
    """The request without its credential fields and without what rules ignore.

    From a recorded request, only fields with a placeholder or a possible credential are removed;
    from a received request, all credential fields. Fields with ambiguous names must hold a key in
    both requests, unless `wide`. `parsed` is the parsed request, if known.
    """
    if parsed is None:
        parsed = parsed_request(request, rules)
    document = without_ignored(parsed, rules)
    if not may_have_credential_fields(request, once=recorded):
        # To look at each value of a large body takes a hundred times as long.
        return OpenedRequest(document, ())
    opening = _Opening(request, recorded=recorded, wide=wide)
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
    """Whether a request may have credential fields: a quick search that may err on yes.

    The result is remembered, unless many requests are searched `once` each.
    """
    _, _, query = request.target.partition("?")
    if query and _prefilter().search(query.encode("utf-8", "surrogateescape")):
        return True
    if once or len(request.body) > _REMEMBERED:
        return _prefilter().search(request.body)
    return _names_a_credential(request.body)


@lru_cache(maxsize=256)
def _names_a_credential(body: bytes) -> bool:
    # Asked several times while a request is recorded.
    return _prefilter().search(body)


@lru_cache(maxsize=2048)
def role_of(name: str, *, parameter: bool = False) -> Role:
    """The role of a JSON member of this name, or of a `parameter`, form field or part."""
    lower, kind = name.lower(), name_kind(name)
    if is_ambiguous(name):
        return "ambiguous"
    if _COUNTED.search(name) or kind == "password":
        return ""
    is_credential = kind in _CREDENTIAL_KINDS or (parameter and lower in QUERY_NAMES)
    return "credential" if is_credential else ""


class _Opening:
    """Removes credential fields and notes their values."""

    def __init__(self, request: Request, *, recorded: bool, wide: bool = False) -> None:
        self.fields: list[tuple[Steps, str]] = []
        self._recorded = recorded
        self._wide = wide
        self._own = own_parameters(request)

    def pairs(self, values: dict[str, Json], steps: Steps) -> dict[str, Json]:
        """A query or form without its credential fields."""
        kept: dict[str, Json] = {}
        for name, value in values.items():
            role = role_of(name, parameter=True)
            if name in self._own or _is_oauth(name, values):
                role = "credential"
            is_value = self._is_key if role == "ambiguous" else self._is_value
            texts = _texts_of(value)
            if not role or texts is None or not all(map(is_value, texts)):
                kept[name] = value
                continue
            self.fields.append(((*steps, name), "\n".join(texts)))
            if role == "ambiguous":
                kept[name] = _KEY
        return kept

    def json(self, value: Json, steps: Steps) -> Json:
        """A JSON value without its credential fields, at any depth."""
        if isinstance(value, list):
            return [self.json(item, (*steps, at)) for at, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kept: dict[str, Json] = {}
        for name, member in value.items():
            if isinstance(member, dict | list):
                if isinstance(member, dict) and _is_mcp_headers(name, value):
                    if left := self._headers(member, (*steps, name)):
                        kept[name] = left
                elif name in _TOOL_DATA and not _TOOL_NAMES.isdisjoint(value):
                    kept[name] = member
                else:
                    kept[name] = self.json(member, (*steps, name))
            else:
                self._member(name, member, steps, value, kept)
        return kept

    def _member(
        self,
        name: str,
        value: Json,
        steps: Steps,
        beside: dict[str, Json],
        kept: dict[str, Json],
    ) -> None:
        role = role_of(name)
        if not role or not (value is None or isinstance(value, str)):
            kept[name] = value
            return
        text = value or ""
        if role == "ambiguous":
            counts = not self._is_key(text) or not _tells_of_credential(steps, beside)
        else:
            # Prose is no secret, whatever the name of the field.
            prose = len(text.split()) > 1 and not _LOGIN.fullmatch(text)
            counts = prose or not self._is_value(text)
        if counts:
            kept[name] = value
            return
        self.fields.append(((*steps, name), text))
        if role == "ambiguous":
            kept[name] = _KEY

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

    def _is_key(self, text: str) -> bool:
        """Whether an ambiguous field holds a credential if it has this value."""
        octets = text.replace(" ", "+").encode("utf-8", "surrogatepass")
        if self._wide or is_placeholder(text) or is_key(octets) or is_known_key(octets):
            return True
        return self._recorded and len(text) <= 64 and _CERTAIN_STAND_IN.fullmatch(text) is not None


def _is_oauth(name: str, values: dict[str, Json]) -> bool:
    """Whether a form field is the code or the token of OAuth, by what stands beside it."""
    if name == "code":
        return values.get("grant_type") == "authorization_code" or "code_verifier" in values
    return name == "token" and "token_type_hint" in values


def _tells_of_credential(steps: Steps, members: dict[str, Json]) -> bool:
    """Whether a JSON object describes a credential, by the object's name or a type in it."""
    if steps and isinstance(steps[-1], str) and _OBJECT.fullmatch(steps[-1]):
        return True
    return any(
        isinstance(value, str) and _TYPE.fullmatch(name) and _TYPE_VALUE.match(value)
        for name, value in members.items()
    )


def _texts_of(value: Json) -> list[str] | None:
    """The texts under one name of a query or form, None where one of them is no text."""
    texts: list[str] = []
    for message in value if isinstance(value, list) else [value]:
        text = message.get("content") if isinstance(message, dict) else message
        if not isinstance(text, str):
            return None
        texts.append(text)
    return texts


def _is_mcp_headers(name: str, siblings: Collection[str]) -> bool:
    return name == "headers" and "server_url" in siblings


def _is_of_other_tool(text: str) -> bool:
    return len(text) <= 64 and _OTHER_TOOLS.fullmatch(text) is not None


@cache
def _prefilter() -> Prefilter:
    return Prefilter(compile_for_bytes(_MAYBE.encode()))
