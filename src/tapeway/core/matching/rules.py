"""Rules: what two requests may differ in and still be equal, and which headers count besides.

They are written the same way in tapeway.toml, below `[rules]`, and in a cassette's `meta.rules`.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths, normalisers
from tapeway.core.matching.json_paths import ANY_DEPTH, PathFault, Wild
from tapeway.core.matching.normalisers import NORMALISERS, PatternFault
from tapeway.core.redaction.credentials import is_credential_header

ROOTS = ("body", "query", "headers")
"""What the path of an `ignore` rule begins with."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class RulesFault(ValueError):
    """Rules that cannot be used: where, what is wrong, and what to do."""

    def __init__(self, where: str, what: str, remedy: str) -> None:
        super().__init__(f"{where}: {what}; {remedy}")
        self.where = where
        self.what = what
        self.remedy = remedy

    @property
    def pointer(self) -> tuple[str | int, ...]:
        """The same place step by step."""
        return tuple([step for step in json_paths.parse(self.where) if not isinstance(step, Wild)])


@dataclass(frozen=True, slots=True)
class Rules:
    """What differs without making two requests different; all of it as it was written.

    `ignore` leads to parts of the request document, `normalise` names built-in normalisers,
    `patterns` are own ones by name, `match` names request headers that count, and `rewrite`
    replaces pieces of the path. `agenttape_ignore` are the names that AgentTape left out of the keys
    it stored, None for its own choice; tapeway's keys do not depend on it.
    """

    ignore: tuple[str, ...] = ()
    normalise: tuple[str, ...] = ()
    patterns: tuple[tuple[str, str], ...] = ()
    match: tuple[str, ...] = ()
    rewrite: tuple[tuple[str, str], ...] = ()
    agenttape_ignore: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        """Whether tapeway's own keys are others than without rules."""
        return bool(self.ignore or self.normalise or self.patterns or self.match or self.rewrite)


NO_RULES = Rules()
"""No rule: every part of a request counts, no header does."""

RULE_NAMES = Rules.__slots__
"""The keys below `[rules]`."""


def parse_rules(document: Json) -> Rules:
    """The rules a document states. Raises RulesFault with the place of the first that is wrong."""
    if not isinstance(document, dict):
        raise RulesFault("rules", "must be a table", f"its keys are {_listed(RULE_NAMES)}")
    for key in document:
        if key not in RULE_NAMES:
            raise RulesFault(f"rules.{key}", "there is no such rule", _nearest(key, RULE_NAMES))
    return Rules(
        ignore=_texts(document, "ignore", _ignored),
        normalise=_texts(document, "normalise", _normaliser),
        patterns=_pairs(document, "patterns", _pattern),
        match=_texts(document, "match", _header),
        rewrite=_pairs(document, "rewrite", _rewrite),
        agenttape_ignore=_texts(document, "agenttape_ignore", _volatile)
        if "agenttape_ignore" in document
        else None,
    )


def rules_document(rules: Rules) -> dict[str, Json]:
    """The document that states these rules; `read` gives them back."""
    document: dict[str, Json] = {
        "ignore": list(rules.ignore),
        "normalise": list(rules.normalise),
        "patterns": dict(rules.patterns),
        "match": list(rules.match),
        "rewrite": dict(rules.rewrite),
    }
    found: dict[str, Json] = {key: value for key, value in document.items() if value}
    if rules.agenttape_ignore is not None:
        # None at all is what AgentTape's `exact` matcher leaves out.
        found["agenttape_ignore"] = list(rules.agenttape_ignore)
    return found


def rules_of_meta(meta: Mapping[str, Json]) -> Rules:
    """The rules a cassette states in its `meta`. Raises RulesFault."""
    return parse_rules(meta["rules"]) if "rules" in meta else NO_RULES


def meta_with_rules(meta: Mapping[str, Json], rules: Rules) -> dict[str, Json]:
    """The same `meta` stating these rules."""
    return {**meta, "rules": dict(rules_document(rules))}


def merged_rules(first: Rules, second: Rules) -> Rules:
    """The rules of both; where both give one name or path piece a meaning, the second's is it."""
    return Rules(
        ignore=_union(first.ignore, second.ignore),
        normalise=_union(first.normalise, second.normalise),
        patterns=tuple((dict(first.patterns) | dict(second.patterns)).items()),
        match=_union(first.match, second.match),
        rewrite=tuple((dict(first.rewrite) | dict(second.rewrite)).items()),
        agenttape_ignore=first.agenttape_ignore
        if second.agenttape_ignore is None
        else second.agenttape_ignore,
    )


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(first + second))


def _texts(
    document: Mapping[str, Json], key: str, checked: Callable[[str, str], str]
) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list):
        raise RulesFault(f"rules.{key}", "must be a list of texts", f'write {key} = ["…"]')
    found: list[str] = []
    for index, each in enumerate(value):
        where = f"rules.{key}[{index}]"
        if not isinstance(each, str):
            raise RulesFault(where, "must be a text", "put it in quotes")
        found.append(checked(where, each))
    return _union(tuple(found), ())


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
    for name, each in value.items():
        where = json_paths.written(("rules", key, name))
        if not isinstance(each, str):
            raise RulesFault(where, "must be a text", "put it in quotes")
        check(where, name, each)
        yield name, each


def _ignored(where: str, text: str) -> str:
    try:
        path = json_paths.parse(text)
    except PathFault as exc:
        raise RulesFault(where, str(exc), "write it like body.messages[*].id") from exc
    if path[0] not in ROOTS:
        reason = f"'{text}' begins with none of {_listed(ROOTS)}"
        raise RulesFault(where, reason, "write it like body.messages[*].id or query.page")
    if path[-1] is ANY_DEPTH:
        remedy = f"write '{json_paths.written(path[:-1])}' to leave out all of it"
        raise RulesFault(where, f"'{text}' ends with **", remedy)
    return text


def _normaliser(where: str, text: str) -> str:
    if text not in NORMALISERS:
        raise RulesFault(where, f"there is no normaliser '{text}'", _nearest(text, NORMALISERS))
    return text


def _header(where: str, text: str) -> str:
    name = text.lower()
    if not _TOKEN.fullmatch(name):
        raise RulesFault(
            where, f"'{text}' is no name of a header", 'write it like "anthropic-beta"'
        )
    if name == "cookie" or is_credential_header(name.encode()):
        what = f"'{text}' carries a credential, which no cassette holds"
        remedy = "leave it out: among equal recordings the one with the same credential comes first"
        raise RulesFault(where, what, remedy)
    return name


def _volatile(where: str, text: str) -> str:
    if not text:
        raise RulesFault(where, "must not be empty", "name a field, such as timestamp")
    return text.lower()


def _pattern(where: str, name: str, text: str) -> None:
    if not _NAME.fullmatch(name):
        remedy = "use letters, digits, '_' and '-', since <name> stands for what is found"
        raise RulesFault(where, "is no name for a pattern", remedy)
    try:
        normalisers.compiled(text)
    except PatternFault as exc:
        remedy = "patterns are RE2's: no look-around, no back-references"
        raise RulesFault(where, f"the pattern cannot be used: {exc}", remedy) from exc


def _rewrite(where: str, old: str, new: str) -> None:
    if not old:
        raise RulesFault(where, "nothing cannot be replaced", "name the piece of the path")
    if "?" in old + new:
        raise RulesFault(where, "a path holds no '?'", "use ignore with query.NAME for a query")


def _nearest(word: str, known: "Mapping[str, object] | tuple[str, ...]") -> str:
    near = get_close_matches(word, list(known), n=1)
    return f"did you mean '{near[0]}'?" if near else f"known are {_listed(tuple(known))}"


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words)
