"""The rules that would make a request match a recording, exact and no wider than need be.

What varies in a form that has a name is normalised, a version in the path is rewritten, and what
is left is ignored where it stands. A suggestion that does not make the keys equal is none.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths
from tapeway.core.matching.key import request_key
from tapeway.core.matching.normalisers import NORMALISERS, Normalising
from tapeway.core.matching.rules import NO_RULES, ROOTS, Rules, merged_rules, rules_document
from tapeway.core.misses.differences import ABSENT, Difference, Steps, Value
from tapeway.core.misses.nearest import compared
from tapeway.core.model.messages import Request

MOST_PATHS = 12
"""Two requests that differ in more places are not two takes of one request."""

_CONTENT = frozenset(
    {"arguments", "content", "data", "input", "name", "output", "prompt", "role", "text", "value"}
)
"""Fields that say what is asked for: never ignored anywhere but where they differed."""
_VERSION = re.compile(r"v[0-9]+[a-z0-9.]*|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-[a-z]+)?")
_TOKEN = re.compile(r"\S{1,128}")


def suggestion(recorded: Request, requested: Request, rules: Rules) -> Rules | None:
    """What to add to the rules so that the one matches the other, None where nothing does."""
    found = compared(recorded, requested, rules)
    for added in (addition(found, rules), _ignoring(found)):
        if added and matches(recorded, requested, merged_rules(rules, added)):
            return added
    return None


def addition(found: Sequence[Difference], rules: Rules, most: int = MOST_PATHS) -> Rules:
    """The rules that should explain these differences; whether they do is for the keys to tell."""
    names, left = _normalisers(found, rules)
    rewrites = [_rewrite(each) for each in left if each.steps == ("path",)]
    ignored = _ignoring([each for each in left if each.steps[0] in ROOTS], most)
    return Rules(
        ignore=ignored.ignore,
        normalise=names,
        rewrite=tuple(dict(each for each in rewrites if each is not None).items()),
    )


def matches(recorded: Request, requested: Request, rules: Rules) -> bool:
    """Whether the two are equal under these rules."""
    return request_key(recorded, rules) == request_key(requested, rules)


def rules_text(rules: Rules) -> str:
    """The rules as lines to be pasted below `[rules]`."""
    return "\n".join(f"{key} = {_toml(value)}" for key, value in rules_document(rules).items())


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{ {pairs} }}"
    # A text or a list of texts: JSON's writing is TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _normalisers(
    found: Sequence[Difference], rules: Rules
) -> tuple[tuple[str, ...], list[Difference]]:
    """The fewest that make differences equal, and the differences that none does."""
    names = [name for name in NORMALISERS if name not in rules.normalise]
    explained = _equal_under(names, found)
    if not explained:
        return (), list(found)
    # The special ones stand first in the table, so it is the general ones that are tried without.
    for name in reversed(tuple(names)):
        fewer = [each for each in names if each != name]
        if len(_equal_under(fewer, explained)) == len(explained):
            names = fewer
    return tuple(names), [each for each in found if each not in explained]


def _equal_under(names: Sequence[str], found: Iterable[Difference]) -> list[Difference]:
    normalising = Normalising(names)

    def normal(value: Value) -> Value:
        return value if value is ABSENT else normalising.value(value)

    return [each for each in found if normal(each.recorded) == normal(each.requested)]


def _rewrite(difference: Difference) -> tuple[str, str] | None:
    """The version piece by which two paths differ, one of them perhaps without any."""
    recorded, requested = str(difference.recorded).split("/"), str(difference.requested).split("/")
    at = 0
    while at < min(len(recorded), len(requested)) and recorded[at] == requested[at]:
        at += 1
    behind = 0
    while (
        behind < min(len(recorded), len(requested)) - at
        and recorded[-1 - behind] == requested[-1 - behind]
    ):
        behind += 1
    old, new = requested[at : len(requested) - behind], recorded[at : len(recorded) - behind]
    if not behind or max(len(old), len(new)) > 1 or not all(map(_VERSION.fullmatch, old + new)):
        return None
    if not old:
        old, new = new, old
    return f"/{old[0]}/", f"/{new[0]}/" if new else "/"


def _ignoring(found: Sequence[Difference], most: int = MOST_PATHS) -> Rules:
    # An element more or less is another conversation, and a whole body is no field that varies.
    if any(
        each.steps[0] not in ROOTS or len(each.steps) == 1 or _is_element(each) for each in found
    ):
        return NO_RULES
    open_places = {each.steps for each in found if _may_widen(each)}
    alike = Counter(map(_widened, open_places))
    paths: dict[str, None] = {}
    for each in found:
        widened = _widened(each.steps)
        paths[widened if alike[widened] > 1 else json_paths.written(each.steps)] = None
    return Rules(ignore=tuple(paths)) if len(paths) <= most else NO_RULES


def _is_element(difference: Difference) -> bool:
    return isinstance(difference.steps[-1], int) and ABSENT in (
        difference.recorded,
        difference.requested,
    )


def _widened(steps: Steps) -> str:
    """The path with every position left open."""
    pieces = ["[*]" if isinstance(step, int) else json_paths.written((step,)) for step in steps]
    return "".join(each if each.startswith("[") else f".{each}" for each in pieces).removeprefix(
        "."
    )


def _may_widen(difference: Difference) -> bool:
    """Whether it is a named field of list elements that holds an identifier and no content."""
    if isinstance(difference.steps[-1], int) or difference.steps[-1] in _CONTENT:
        return False
    return all(map(_is_token, (difference.recorded, difference.requested)))


def _is_token(value: Value) -> bool:
    if isinstance(value, str):
        return _TOKEN.fullmatch(value) is not None and any(each.isdigit() for each in value)
    return value is ABSENT or (isinstance(value, int | float) and not isinstance(value, bool))
