"""Chooses the values that share a line in a cassette's file in JSON.

With the usual indent each parameter of a tool has four lines, and each chunk of a stream too. The
functions replace such values by texts, which `dump` copies unchanged.
"""

from typing import Any, cast

import orjson

from tapeway.core import loose_json
from tapeway.core.json_text import Json, dump
from tapeway.formats.fields import Document

_LINE = 100
"""Longer objects and lists have several lines."""
_MEMBERS = 12
_LEVELS = 4
"""How many objects and lists within each other share a line."""
_KEPT_OBJECTS = frozenset({"headers"})
_KEPT_LISTS = frozenset({"text", "text_lines"})
"""Members with a line for each header, or for each event of a stream: a diff shows the changed one."""


def short_lines(document: Document) -> Document:
    """An interaction's document with each short object and list on one line."""
    return {
        name: _laid_out(member, name)[0] if member and type(member) in (dict, list) else member
        for name, member in document.items()
    }


def chunk_line(document: Document) -> Document:
    """An interaction's document with all chunks on one line: hundreds would bury the answer."""
    for name in ("response", "partial"):
        message = loose_json.fields(document.get(name))
        match message.get("chunks"):
            case [[int() | float(), int()], *_] as chunks:
                line = _text(dump(chunks).replace(b",", b", "))
                return {**document, name: {**message, "chunks": line}}
    return document


def rule_lines(meta: Document) -> Document:
    """A head's `meta` with each rule on one line, the path beside the pattern."""
    match meta.get("rules"):
        case dict(rules):
            return {**meta, "rules": {name: _each_rule(kind) for name, kind in rules.items()}}
    return meta


def _each_rule(rules: Json) -> Json:
    if isinstance(rules, dict):
        return {name: _rule(rule) for name, rule in rules.items()}
    return [*map(_rule, rules)] if isinstance(rules, list) else rules


def _rule(rule: Json) -> Json:
    if isinstance(rule, list):
        return _text(b"[%b]" % b", ".join(map(dump, rule)))
    return _text(dump(rule))


def _laid_out(value: Any, name: str) -> tuple[Json, bytes | None, int]:
    """The object or list to write; the line of a short one, or None; the levels on the line."""
    is_object, written, levels = type(value) is dict, value.copy(), 0
    # The texts of all members, or None for several lines.
    texts: list[bytes] | None = []
    if len(value) > _MEMBERS or name in (_KEPT_OBJECTS if is_object else _KEPT_LISTS):
        texts = None
    for key, member in value.items() if is_object else enumerate(value):
        if member and type(member) in (dict, list):
            written[key], text, inner = _laid_out(member, str(key) if is_object else "")
            levels = inner if inner > levels else levels
        elif texts is None:
            continue
        else:
            text = None if type(member) is str and len(member) > _LINE else dump(member)
        if text is None or texts is None:
            texts = None
        else:
            texts.append(b"%b: %b" % (_name(key), text) if is_object else text)
    if texts is not None and levels < _LEVELS:
        text = b", ".join(texts)
        # Messages in a list keep separate lines: a diff shows the changed message.
        if len(text) <= _LINE and text[:1] not in b"{[":
            line = b"{%b}" % text if is_object else b"[%b]" % text
            return _text(line), line, levels + 1
    return written, None, 0


def _name(name: object) -> bytes:
    """The name of a member as text. Raises TypeError for what is no name in JSON."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name")
    return dump(name)


def _text(text: bytes) -> Json:
    return cast("Json", orjson.Fragment(text))
