"""Suggests rules that would make a request match a recording, as narrow as possible.

Values of a known form (a UUID, a time) are normalised, a version in the path is rewritten, and
other differences are ignored by their paths. A prompt is never ignored: where one differs, all of it
must be explained by values of a known form, or by patterns of opaque values between equal words. A
suggestion is made only if its rules make the keys equal.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths
from tapeway.core.matching.credential_fields import compared_key
from tapeway.core.matching.normalisers import NORMALISERS, NormaliserSet
from tapeway.core.matching.presets import PRESETS
from tapeway.core.matching.rules import NO_RULES, ROOTS, Rules, merged_rules, rules_document
from tapeway.core.misses.differences import ABSENT, Difference, Steps, Value
from tapeway.core.misses.nearest import request_differences
from tapeway.core.model.messages import Request

MOST_PATHS = 12
"""Requests that differ in more places are different requests, and get no suggestion."""

_CONTENT_FIELDS = frozenset({"data", "name", "role", "value"})
"""Fields with content: ignored only at the positions where they differ, never in all elements."""

_PROMPT_FIELDS = frozenset(
    {
        *("arguments", "content", "contents", "description", "inputs", "input", "instructions"),
        *("messages", "output", "parts", "prompt", "q", "query", "system", "systemInstruction"),
        *("system_instruction", "text", "thinking"),
    }
)
"""Fields that say what is asked, or what was said: never ignored."""

_OPAQUE = re.compile(r"(?=.*[0-9])[0-9A-Za-z_-]{6,}")
"""What may vary in a prompt: an id or a number of this length, no word."""
_OPAQUE_CLASSES = ("[0-9]", "[0-9a-f]", "[0-9A-Fa-f]", "[0-9A-Za-z]", "[0-9A-Za-z_-]")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z0-9]*")
_MOST_CONTEXT = 24
_VERSION = re.compile(r"v[0-9]+[a-z0-9.]*|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-[a-z]+)?")
_TOKEN = re.compile(r"\S{1,128}")


def suggestion(recorded: Request, requested: Request, rules: Rules) -> Rules | None:
    """The rules to add so that the request matches the recorded one, None where no rules do that."""
    if matches(recorded, requested, rules):
        # They differ in what credential fields hold, which no rule should leave out.
        return None
    found = request_differences(recorded, requested, rules)
    presets = [Rules(presets=(name,)) for name in PRESETS if name not in rules.presets]
    for added in (candidate_rules(found, rules), *presets, _ignoring(found)):
        if added and matches(recorded, requested, merged_rules(rules, added)):
            return added
    return None


def candidate_rules(found: Sequence[Difference], rules: Rules, most: int = MOST_PATHS) -> Rules:
    """Rules to add for these differences; the caller must compare keys to see whether they suffice."""
    names, left = _normalisers(found, rules)
    rewrites = [_rewrite(each) for each in left if each.steps == ("path",)]
    prompts = [each for each in left if _is_prompt(each)]
    more, patterns = _of_prompts(prompts, rules)
    ignored = [each for each in left if each.steps[0] in ROOTS and each not in prompts]
    return Rules(
        ignore=_ignoring(ignored, most).ignore,
        normalise=tuple(dict.fromkeys(names + more)),
        patterns=tuple(patterns.items()),
        rewrite=tuple(dict(each for each in rewrites if each is not None).items()),
    )


def matches(recorded: Request, requested: Request, rules: Rules) -> bool:
    """Whether two requests are equal under these rules."""
    recorded_key = compared_key(recorded, rules, recorded=True)
    return recorded_key == compared_key(requested, rules)


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


def _is_prompt(difference: Difference) -> bool:
    names = [step for step in difference.steps if isinstance(step, str)]
    return names[0] in ("body", "query") and names[-1] in _PROMPT_FIELDS


def _of_prompts(
    prompts: Iterable[Difference], rules: Rules
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The normalisers and patterns that explain the words by which prompts differ.

    A prompt with another word in it is another prompt, and gets none.
    """
    words = [word for each in prompts for word in _differing_words(each)]
    names, left = _normalisers(words, rules)
    patterns: dict[str, str] = {}
    for each in left:
        if (found := _pattern(str(each.recorded), str(each.requested))) is not None:
            name, pattern = found
            while patterns.get(name, pattern) != pattern:
                name += "x"
            patterns[name] = pattern
    return names, patterns


def _differing_words(prompt: Difference) -> list[Difference]:
    """The words by which two texts differ that have equally many."""
    if not isinstance(prompt.recorded, str) or not isinstance(prompt.requested, str):
        return []
    recorded, requested = [re.split(r"(\s+)", text) for text in (prompt.recorded, prompt.requested)]
    if len(recorded) != len(requested):
        return []
    pairs = zip(recorded, requested, strict=True)
    return [Difference(prompt.steps, one, other) for one, other in pairs if one != other]


def _pattern(recorded: str, requested: str) -> tuple[str, str] | None:
    """A name and a pattern for the opaque value in which two words differ, None for other words."""
    before = _up_to_separator(recorded, requested)
    rests = recorded[len(before) :], requested[len(before) :]
    after = _up_to_separator(rests[0][::-1], rests[1][::-1])[::-1]
    values = [rest.removesuffix(after) for rest in rests]
    if not all(map(_OPAQUE.fullmatch, values)):
        return None
    kind = next(
        each for each in _OPAQUE_CLASSES if all(re.fullmatch(f"{each}+", v) for v in values)
    )
    lengths = {len(each) for each in values}
    count = f"{{{lengths.pop()}}}" if len(lengths) == 1 else "{6,}"
    context = before[-_MOST_CONTEXT:]
    edge = r"\b" if not context or context[0].isalnum() else ""
    named = _LETTERS.findall(before)
    return (named[-1].lower() if named else "id"), edge + re.escape(context) + kind + count


def _up_to_separator(one: str, other: str) -> str:
    """What two words begin with alike, up to the last character that is no letter and no digit."""
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    while at and one[at - 1].isalnum():
        at -= 1
    return one[:at]


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
    # With an element added or removed it is another conversation; neither a whole body nor a prompt
    # is ever ignored.
    if any(
        each.steps[0] not in ROOTS or len(each.steps) == 1 or _is_element(each) or _is_prompt(each)
        for each in found
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
