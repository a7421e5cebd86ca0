"""Suggests rules that would make a request match a recording, as narrow as possible.

Values of a known form (a UUID, a time) are normalised, a version in the path is rewritten, and
other differences are ignored by their paths. A suggestion is made only if its rules make the keys
equal.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths
from tapeway.core.matching.key import request_key
from tapeway.core.matching.normalisers import NORMALISERS, NormaliserSet
from tapeway.core.matching.rules import NO_RULES, ROOTS, Rules, merged_rules, rules_document
from tapeway.core.misses.differences import ABSENT, Difference, Steps, Value
from tapeway.core.misses.nearest import request_differences
from tapeway.core.model.messages import Request

MOST_PATHS = 12
"""Requests that differ in more places are different requests, and get no suggestion."""

_CONTENT_FIELDS = frozenset(
    {"arguments", "content", "data", "input", "name", "output", "prompt", "role", "text", "value"}
)
"""Fields with content: ignored only at the positions where they differ, never in all elements."""
_VERSION = re.compile(r"v[0-9]+[a-z0-9.]*|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-[a-z]+)?")
_TOKEN = re.compile(r"\S{1,128}")


def suggestion(recorded: Request, requested: Request, rules: Rules) -> Rules | None:
    """The rules to add so that the request matches the recorded one, None where no rules do that."""
    found = request_differences(recorded, requested, rules)
    for added in (candidate_rules(found, rules), _ignoring(found)):
        if added and matches(recorded, requested, merged_rules(rules, added)):
            return added
    return None


def candidate_rules(found: Sequence[Difference], rules: Rules, most: int = MOST_PATHS) -> Rules:
    """Rules to add for these differences; the caller must compare keys to see whether they suffice."""
    names, left = _normalisers(found, rules)
    rewrites = [_rewrite(each) for each in left if each.steps == ("path",)]
    ignored = _ignoring([each for each in left if each.steps[0] in ROOTS], most)
    return Rules(
        ignore=ignored.ignore,
        normalise=names,
        rewrite=tuple(dict(each for each in rewrites if each is not None).items()),
    )


def matches(recorded: Request, requested: Request, rules: Rules) -> bool:
    """Whether two requests are equal under these rules."""
    return request_key(recorded, rules) == request_key(requested, rules)


def rules_text(rules: Rules) -> str:
    """The rules as TOML lines, to paste below `[rules]`."""
    return "\n".join(f"{key} = {_toml(value)}" for key, value in rules_document(rules).items())


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml(key)} = {_toml(each)}" for key, each in value.items())
        return f"{{ {pairs} }}"
    # For a text or a list of texts, JSON is TOML but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _normalisers(
    found: Sequence[Difference], rules: Rules
) -> tuple[tuple[str, ...], list[Difference]]:
    """The fewest normalisers that make differences equal, and the differences that remain."""
    names = [name for name in NORMALISERS if name not in rules.normalise]
    explained = _equal_under(names, found)
    if not explained:
        return (), list(found)
    # The specific ones come first in the table, so the general ones are the first to be left out.
    for name in reversed(tuple(names)):
        fewer = [each for each in names if each != name]
        if len(_equal_under(fewer, explained)) == len(explained):
            names = fewer
    return tuple(names), [each for each in found if each not in explained]


def _equal_under(names: Sequence[str], found: Iterable[Difference]) -> list[Difference]:
    normalising = NormaliserSet(names)

    def normal(value: Value) -> Value:
        return value if value is ABSENT else normalising.value(value)

    return [each for each in found if normal(each.recorded) == normal(each.requested)]


def _rewrite(difference: Difference) -> tuple[str, str] | None:
    """The version segment by which two paths differ; one of them may have none."""
    recorded, requested = str(difference.recorded).split("/"), str(difference.requested).split("/")
    at = 0
    while at < min(len(recorded), len(requested)) and recorded[at] == requested[at]:
        at += 1
    after = 0
    while (
        after < min(len(recorded), len(requested)) - at
        and recorded[-1 - after] == requested[-1 - after]
    ):
        after += 1
    old, new = requested[at : len(requested) - after], recorded[at : len(recorded) - after]
    if not after or max(len(old), len(new)) > 1 or not all(map(_VERSION.fullmatch, old + new)):
        return None
    if not old:
        old, new = new, old
    return f"/{old[0]}/", f"/{new[0]}/" if new else "/"


def _ignoring(found: Sequence[Difference], most: int = MOST_PATHS) -> Rules:
    # With an element added or removed it is another conversation; a whole body is never ignored.
    if any(
        each.steps[0] not in ROOTS or len(each.steps) == 1 or _is_element(each) for each in found
    ):
        return NO_RULES
    widenable = {each.steps for each in found if _may_widen(each)}
    counts = Counter(map(_widened, widenable))
    paths: dict[str, None] = {}
    for each in found:
        widened = _widened(each.steps)
        paths[widened if counts[widened] > 1 else json_paths.path_text(each.steps)] = None
    return Rules(ignore=tuple(paths)) if len(paths) <= most else NO_RULES


def _is_element(difference: Difference) -> bool:
    return isinstance(difference.steps[-1], int) and ABSENT in (
        difference.recorded,
        difference.requested,
    )


def _widened(steps: Steps) -> str:
    """The path with `[*]` in place of every position."""
    pieces = ["[*]" if isinstance(step, int) else json_paths.path_text((step,)) for step in steps]
    return "".join(each if each.startswith("[") else f".{each}" for each in pieces).removeprefix(
        "."
    )


def _may_widen(difference: Difference) -> bool:
    """Whether the field may be ignored in all elements of a list: it holds an identifier, no content."""
    if isinstance(difference.steps[-1], int) or difference.steps[-1] in _CONTENT_FIELDS:
        return False
    return all(map(_is_token, (difference.recorded, difference.requested)))


def _is_token(value: Value) -> bool:
    if isinstance(value, str):
        return _TOKEN.fullmatch(value) is not None and any(each.isdigit() for each in value)
    return value is ABSENT or (isinstance(value, int | float) and not isinstance(value, bool))
