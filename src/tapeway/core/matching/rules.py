"""Matching rules: which differences between two requests do not count, and which headers do.

They are written alike below `[rules]` in tapeway.toml and in a cassette's `meta.rules`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import Any
from urllib.parse import unquote

from tapeway.core import loose_json
from tapeway.core.http.headers import CASSETTE_HEADER, FAULT_HEADER, HOP_BY_HOP, HOPS_HEADER
from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths, normalisers
from tapeway.core.matching.headers.conditions import ANY_NAME, HANDSHAKE
from tapeway.core.matching.json_paths import ANY_DEPTH, Having, Path, PathFault
from tapeway.core.matching.normalisers import NORMALISERS, PatternFault
from tapeway.core.matching.presets import PRESETS
from tapeway.core.model.messages import Request
from tapeway.core.redaction.credentials import is_credential_header
from tapeway.core.text import nearest_names

ROOTS = ("body", "query", "headers")
"""The first step of an `ignore` path."""

AUDIO = ("exact", "length")
"""How audio in WebSocket sessions is compared: byte for byte, or by format and length."""

_ANY = (ANY_NAME,)
_NOT_COUNTED = frozenset(
    [name.decode() for name in HOP_BY_HOP] + ["content-length", "expect", HOPS_HEADER.decode()]
)
"""Fields of a connection or of its framing: they may differ between equal requests."""

_REUSED = re.compile(r"[A-Z][A-Z-]* /[^\s?#]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class RulesFault(ValueError):
    """A rule is unusable: names the place, the fault and the correction."""

    def __init__(self, where: str, what: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}; {remedy}")
        self.where = where
        self.what = what
        self.remedy = remedy

    @property
    def pointer(self) -> tuple[str | int, ...]:
        """The steps of `where`."""
        return tuple(
            [step for step in json_paths.parse_path(self.where) if isinstance(step, str | int)]
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """Matching rules, as they were written.

    `ignore` are paths into the request document, `ignore_in` are patterns of what is left out of the
    texts at a path, `normalise` names built-in normalisers, `patterns` are people's own by name,
    `match` names request headers that count, `rewrite` replaces parts of the URL path, and `presets`
    names rules of `core/matching/presets.py`.

    No key depends on five of them. `reuse` names requests that the take that made their recording
    answers again (`GET /v1/models/*`), `addresses` are paths into response bodies where addresses lead back to the proxy, `ignore_vary` are names of
    headers that do not decide although an answer's `Vary` names them (`*` for all), and
    `agenttape_ignore` are the names that AgentTape left out of the keys it stored, None for its
    defaults. `audio` is how the audio of WebSocket sessions is compared.
    """

    ignore: tuple[str, ...] = ()
    ignore_in: tuple[tuple[str, tuple[str, ...]], ...] = ()
    normalise: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    match: tuple[str, ...] = ()
    rewrite: tuple[tuple[str, str], ...] = ()
    addresses: tuple[str, ...] = ()
    presets: tuple[str, ...] = ()
    reuse: tuple[str, ...] = ()
    ignore_vary: tuple[str, ...] = ()
    agenttape_ignore: tuple[str, ...] | None = None
    audio: str = ""

    def __bool__(self) -> bool:
        """Whether there is any rule, `agenttape_ignore` aside."""
        return any(getattr(self, key) for key in self.__slots__ if key != "agenttape_ignore")

    @property
    def address_paths(self) -> tuple[Path, ...]:
        """`addresses`, each as the steps from the body on."""
        return tuple([json_paths.parse_path(address)[1:] for address in self.addresses])


_FORMER = "pending"
"""A rule of cassettes from before 1.0.0 that decides nothing any more."""

NO_RULES = Rules()
"""Without rules every part of a request counts, except its headers."""


def parse_rules(document: Json) -> Rules:
    """Read rules from their document. Raises RulesFault for the first that is wrong."""
    if not isinstance(document, dict):
        raise RulesFault("rules", "must be a table", f"its keys are {_listed(RULE_NAMES)}")
    for key in document:
        if key not in RULE_NAMES:
            raise RulesFault(f"rules.{key}", "there is no such rule", _nearest(key, RULE_NAMES))
    return Rules(**{rule.name: rule.read(document) for rule in _RULES})


def rules_document(rules: Rules) -> dict[str, Json]:
    """The document of these rules; `parse_rules` reads it back."""
    document = {rule.name: rule.write(rules) for rule in _RULES}
    return {name: value for name, value in document.items() if value is not None}


def is_reused(rules: Rules, request: Request) -> bool:
    """Whether a rule `reuse` names a request; `*` stands for a segment of a path, `**` for several."""
    if not rules.reuse:
        return False
    asked = f"{request.method} {unquote(request.target.partition('?')[0])}"
    return any(pattern.fullmatch(asked) for pattern in map(wildcard_pattern, rules.reuse))


@lru_cache(maxsize=256)
def wildcard_pattern(text: str) -> re.Pattern[str]:
    """The expression of a text in which `*` stands for a segment of a path, `**` for several."""
    parts = re.split(r"(\*\*|\*)", text)
    kinds = {"*": "[^/]*", "**": ".*"}
    return re.compile("".join([kinds.get(part) or re.escape(part) for part in parts]))


def rules_of_meta(meta: Mapping[str, Json]) -> Rules:
    """The rules in a cassette's `meta`. Raises RulesFault."""
    rules = meta.get("rules", {})
    if isinstance(rules, dict) and _FORMER in rules:
        rules = {name: value for name, value in rules.items() if name != _FORMER}
    return parse_rules(rules) if rules != {} else NO_RULES


def meta_with_rules(meta: Mapping[str, Json], rules: Rules) -> dict[str, Json]:
    """A copy of `meta` with these rules; kinds of rules that were there keep their places."""
    document, before = rules_document(rules), loose_json.fields(meta.get("rules"))
    kept = {name: document[name] for name in before if name in document}
    return {**meta, "rules": kept | document}


def merged_rules(first: Rules, second: Rules) -> Rules:
    """The rules of both; where both define one pattern or rewrite, the second's counts."""
    return Rules(
        **{
            rule.name: rule.merge(getattr(first, rule.name), getattr(second, rule.name))
            for rule in _RULES
        }
    )


RuleChange = Callable[[Rules], Rules]
"""Makes other rules of those that are in force."""


def adding(more: Rules) -> RuleChange:
    """The rules that are in force and these."""
    return lambda held: merged_rules(held, more)


def removing(rules: Rules) -> RuleChange:
    """The rules that are in force without these."""
    return lambda held: _without(held, rules)


def single_rules(rules: Rules) -> Iterator[Rules]:
    """Each of the rules alone; together they are the rules."""
    for name, value in rules_document(replace(rules, agenttape_ignore=None)).items():
        for part in _parts(value):
            yield parse_rules({name: part})
    if rules.agenttape_ignore is not None:
        # The names belong together: they say how keys were made.
        yield Rules(agenttape_ignore=rules.agenttape_ignore)


def _parts(value: Json) -> Iterator[Json]:
    if isinstance(value, dict):
        yield from [{key: member} for key, member in value.items()]
    elif isinstance(value, list) and value:
        for item in value:
            if isinstance(item, dict):
                yield from _parts(item)
            else:
                yield [item]
    else:
        yield value


def _without(held: Rules, gone: Rules) -> Rules:
    removed = {*single_rules(gone)}
    left = [rule for rule in single_rules(held) if rule not in removed]
    return reduce(merged_rules, left, NO_RULES)


def with_presets(rules: Rules) -> Rules:
    """The rules, with the rules of their presets added."""
    written = replace(rules, presets=())
    for name in rules.presets:
        preset = PRESETS[name]
        written = merged_rules(Rules(ignore=preset.ignore, ignore_in=preset.ignore_in), written)
    return written


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(first + second))


def _strings(
    document: Mapping[str, Json], key: str, checked: Callable[[str, str], str]
) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise RulesFault(f"rules.{key}", "must be a list of strings", f'write {key} = ["…"]')
    items: list[str] = []
    for index, item in enumerate(value):
        where = f"rules.{key}[{index}]"
        if not isinstance(item, str):
            raise RulesFault(where, "must be a string", "put it in quotes")
        items.append(checked(where, item))
    return _union(tuple(items), ())


def _audio(document: Mapping[str, Json]) -> str:
    value = document.get("audio", "")
    if value not in ("", *AUDIO):
        what = f"'{value}' is no way to compare audio" if isinstance(value, str) else "must be text"
        raise RulesFault("rules.audio", what, f"its values are {_listed(AUDIO)}")
    return str(value)


def _ignored_names(document: Mapping[str, Json]) -> tuple[str, ...]:
    value = document.get("ignore_vary", [])
    if isinstance(value, bool):
        return _ANY if value else ()
    if not isinstance(value, list):
        remedy = 'write ignore_vary = ["accept"], or true for all'
        raise RulesFault("rules.ignore_vary", "must be a list of header names, or true", remedy)
    return _strings(document, "ignore_vary", _check_name)


def _agenttape_ignored(document: Mapping[str, Json]) -> tuple[str, ...] | None:
    if "agenttape_ignore" not in document:
        return None
    return _strings(document, "agenttape_ignore", _check_ignored_name)


def _ignored_texts(document: Mapping[str, Json]) -> Iterator[tuple[str, tuple[str, ...]]]:
    value = document.get("ignore_in", {})
    if not isinstance(value, dict):
        remedy = 'write ignore_in = { "body.system" = ["…"] }'
        raise RulesFault("rules.ignore_in", "must be a table", remedy)
    for path in value:
        where = json_paths.path_text(("rules", "ignore_in", path))
        _check_ignore(where, path)
        patterns = value[path]
        if not isinstance(patterns, list):
            raise RulesFault(where, "must be a list of patterns", 'write ["…"]')
        yield path, tuple(_ignored_patterns(where, patterns))


def _ignored_patterns(where: str, patterns: list[Json]) -> Iterator[str]:
    for index, item in enumerate(patterns):
        if not isinstance(item, str):
            raise RulesFault(f"{where}[{index}]", "must be a string", "put it in quotes")
        _compile(f"{where}[{index}]", item)
        yield item


def _pairs(
    document: Mapping[str, Json], key: str, check: Callable[[str, str, str], None]
) -> tuple[tuple[str, str], ...]:
    value = document.get(key, {})
    if not isinstance(value, dict):
        raise RulesFault(f"rules.{key}", "must be a table", f'write {key} = {{ "…" = "…" }}')
    return tuple(_checked(value, key, check))


def _checked(
    value: Mapping[str, Json], key: str, check: Callable[[str, str, str], None]
) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        where = json_paths.path_text(("rules", key, name))
        if not isinstance(member, str):
            raise RulesFault(where, "must be a string", "put it in quotes")
        check(where, name, member)
        yield name, member


def _rewritten_paths(document: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The replacements in URL paths: `rewrite` is a table, or a list with a table."""
    value = document.get("rewrite", {})
    for table in value if isinstance(value, list) else (value,):
        if not isinstance(table, str):
            yield from _pairs({"rewrite": table}, "rewrite", _check_rewrite)


def _rewritten_addresses(document: Mapping[str, Json]) -> Iterator[str]:
    """The places of addresses in response bodies, where `rewrite` is a list."""
    value = document.get("rewrite", {})
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, str):
            where = f"rules.rewrite[{index}]"
            if _check_ignore(where, item).partition(".")[0].partition("[")[0] != "body":
                raise RulesFault(where, f"'{item}' is not in a body", "write it like body.next")
            if any(isinstance(step, Having) for step in json_paths.parse_path(item)):
                what = f"'{item}' chooses objects by a field, which rewrite cannot"
                raise RulesFault(where, what, "write [*] for all objects of the list")
            yield item


def _check_ignore(where: str, text: str) -> str:
    try:
        path = json_paths.parse_path(text)
    except PathFault as exc:
        raise RulesFault(where, str(exc), "write it like body.messages[*].id") from exc
    if path[0] not in ROOTS:
        reason = f"'{text}' does not begin with {_listed(ROOTS)}"
        raise RulesFault(where, reason, "write it like body.messages[*].id or query.page")
    if path[-1] is ANY_DEPTH:
        remedy = f"write '{json_paths.path_text(path[:-1])}' to leave out all of it"
        raise RulesFault(where, f"'{text}' ends with **", remedy)
    return text


def _check_reuse(where: str, text: str) -> str:
    if not _REUSED.fullmatch(text):
        what = f"'{text}' is no method and path"
        raise RulesFault(where, what, 'write it like "GET /v1/models/*" or "POST /graphql"')
    return text


def _check_normaliser(where: str, text: str) -> str:
    if text not in NORMALISERS:
        raise RulesFault(where, f"there is no normaliser '{text}'", _nearest(text, NORMALISERS))
    return text


def _check_preset(where: str, text: str) -> str:
    if text not in PRESETS:
        raise RulesFault(where, f"there is no preset '{text}'", _nearest(text, PRESETS))
    return text


def _check_name(where: str, text: str) -> str:
    name = text.lower()
    if not _TOKEN.fullmatch(name):
        raise RulesFault(where, f"'{text}' is not a header name", 'write it like "anthropic-beta"')
    return name


def _check_header(where: str, text: str) -> str:
    name = _check_name(where, text)
    if name in _NOT_COUNTED or name.startswith(HANDSHAKE):
        what = f"'{text}' says how a request is sent, not what it asks for"
        raise RulesFault(where, what, "leave it out: the body itself counts already")
    if name.encode() in (CASSETTE_HEADER, FAULT_HEADER):
        what = f"'{text}' names the cassette that is looked in or a fault, and reaches no recording"
        raise RulesFault(where, what, "leave it out")
    if name == "cookie" or is_credential_header(name.encode()):
        what = f"'{text}' carries a credential, which no cassette holds"
        remedy = "leave it out: of equal recordings the one with the same credential comes first"
        raise RulesFault(where, what, remedy)
    return name


def _check_ignored_name(where: str, text: str) -> str:
    if not text:
        raise RulesFault(where, "must not be empty", "name a field, such as timestamp")
    return text.lower()


def _check_pattern(where: str, name: str, text: str) -> None:
    if not _NAME.fullmatch(name):
        remedy = "use letters, digits, '_' and '-': <name> replaces what matches"
        raise RulesFault(where, "is not a valid pattern name", remedy)
    _compile(where, text)


def _compile(where: str, text: str) -> None:
    try:
        normalisers.compile_pattern(text)
    except PatternFault as exc:
        remedy = "patterns use RE2's syntax: no look-around, no back-references"
        raise RulesFault(where, f"the pattern cannot be used: {exc}", remedy) from exc


def _check_rewrite(where: str, old: str, new: str) -> None:
    if not old:
        raise RulesFault(where, "must not be empty", "name the part of the path to replace")
    if "?" in old + new:
        raise RulesFault(
            where, "a path has no '?'", "to ignore a query parameter, use ignore with query.NAME"
        )


def _nearest(word: str, known: Iterable[str]) -> str:
    names = list(known)
    near = nearest_names(word, names)
    return f"did you mean '{near[0]}'?" if near else f"known are {_listed(names)}"


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _merged_ignore_in(
    first: tuple[tuple[str, tuple[str, ...]], ...], second: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    merged = dict(first)
    for path, patterns in second:
        merged[path] = _union(merged.get(path, ()), patterns)
    return tuple(merged.items())


def _updated(
    first: tuple[tuple[str, str], ...], second: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    return tuple((dict(first) | dict(second)).items())


def _written_rewrite(rules: Rules) -> Json:
    paths: Json = dict(rules.rewrite)
    return [*rules.addresses, *([paths] if paths else ())] if rules.addresses else paths or None


@dataclass(frozen=True, slots=True)
class _Rule:
    """How a rule is checked and read, joined with that of other rules, and written."""

    name: str
    read: Callable[[Mapping[str, Json]], Any]
    """From the table of all rules. Raises RulesFault."""
    merge: Callable[[Any, Any], Any]
    """The second counts where both cannot."""
    write: Callable[[Rules], Json]
    """None where there is nothing to write."""


def _list_rule(name: str, check: Callable[[str, str], str]) -> _Rule:
    """A rule that is a list of texts."""
    return _Rule(
        name,
        lambda document: _strings(document, name, check),
        _union,
        lambda rules: list(getattr(rules, name)) or None,
    )


_RULES = (
    _list_rule("presets", _check_preset),
    _list_rule("ignore", _check_ignore),
    _Rule(
        "ignore_in",
        lambda document: tuple(_ignored_texts(document)),
        _merged_ignore_in,
        lambda rules: {path: list(patterns) for path, patterns in rules.ignore_in} or None,
    ),
    _list_rule("normalise", _check_normaliser),
    _Rule(
        "patterns",
        lambda document: _pairs(document, "patterns", _check_pattern),
        _updated,
        lambda rules: dict(rules.patterns) or None,
    ),
    _list_rule("match", _check_header),
    _list_rule("reuse", _check_reuse),
    _Rule(
        "rewrite", lambda document: tuple(_rewritten_paths(document)), _updated, _written_rewrite
    ),
    # They are written below `rewrite`.
    _Rule(
        "addresses",
        lambda document: _union(tuple(_rewritten_addresses(document)), ()),
        _union,
        lambda _: None,
    ),
    _Rule(
        "ignore_vary",
        _ignored_names,
        lambda first, second: _ANY if _ANY in (first, second) else _union(first, second),
        lambda rules: rules.ignore_vary == _ANY or list(rules.ignore_vary) or None,
    ),
    _Rule(
        "audio", _audio, lambda first, second: second or first, lambda rules: rules.audio or None
    ),
    _Rule(
        "agenttape_ignore",
        _agenttape_ignored,
        lambda first, second: first if second is None else second,
        # An empty list differs from None: AgentTape's `exact` matcher leaves out nothing.
        lambda rules: None if rules.agenttape_ignore is None else list(rules.agenttape_ignore),
    ),
)
"""Every rule, in the order in which they are written."""

RULE_NAMES = tuple([name for name in Rules.__slots__ if name != "addresses"])
"""The keys below `[rules]`: `rewrite` has `addresses` too."""
