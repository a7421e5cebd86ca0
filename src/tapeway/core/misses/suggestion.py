"""Suggests rules that would make a request match a recording, as narrow as possible.

Values of a known form (a UUID, a time) are normalised, a version in the path is rewritten, and
fields are ignored by path. A prompt is never ignored: if a prompt differs, all differences
must be explained by values of a known form, or by patterns of opaque values beside equal words. A
suggestion is made only if the rules make the keys equal, and keep recordings apart
that differ without the rules.
"""

import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths
from tapeway.core.matching.credential_fields import compared_key
from tapeway.core.matching.headers.conditions import known_to_differ, of_one_request
from tapeway.core.matching.normalisers import NORMALISERS, HexText, NormaliserSet
from tapeway.core.matching.presets import PRESETS
from tapeway.core.matching.rules import NO_RULES, ROOTS, Rules, merged_rules, rules_document
from tapeway.core.misses.dated_requests import recorded_on
from tapeway.core.misses.deciding_fields import reason_against_rules
from tapeway.core.misses.differences import ABSENT, Difference, Steps, Value
from tapeway.core.misses.nearest import request_differences
from tapeway.core.misses.prompt_patterns import NamedPattern, prompt_patterns
from tapeway.core.model.interaction import AnyInteraction, Interaction, exchange_of
from tapeway.core.model.messages import Request
from tapeway.core.text import no_pause

MOST_PATHS = 12
"""Requests that differ in more places are different requests, and get no suggestion."""

_CONTENT_FIELDS = frozenset({"data", "name", "role", "value"})
"""Fields with content: ignored only at the positions where they differ, never in all elements."""

_PROMPT_FIELDS = frozenset(
    {
        *("arguments", "content", "contents", "description", "inputs", "input", "instructions"),
        *(
            "message",
            "messages",
            "output",
            "parts",
            "prompt",
            "q",
            "query",
            "system",
            "systemInstruction",
        ),
        *("system_instruction", "text", "thinking"),
    }
)
"""Fields with the question or the conversation: never ignored."""

_MOMENTS = frozenset({"date", "iso8601", "time"})
_VERSION = re.compile(r"v[0-9]+[a-z0-9.]*|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:-[a-z]+)?")
_TOKEN = re.compile(r"\S{1,128}")


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Rules to add, or why none are suggested although some would make the request match."""

    rules: Rules | None = None
    refusal: str | None = None


NO_SUGGESTION = Suggestion()


def suggestion(
    recorded: Request,
    requested: Request,
    rules: Rules,
    recordings: Iterable[AnyInteraction] = (),
    step: Callable[[], None] = no_pause,
) -> Suggestion:
    """The rules that would make a request match one of `recordings`.

    `step` is called after each rule and each recording that is tried.
    """
    if matches(recorded, requested, rules):
        # The requests differ in credential fields, which no rule should ignore.
        return NO_SUGGESTION
    differences = request_differences(recorded, requested, rules)
    files = _normalisers_of_files(recorded, requested, rules, differences)
    if not files and (reason := reason_against_rules(differences)) is not None:
        return Suggestion(refusal=reason)
    names = [name for name in PRESETS if name not in rules.presets]
    varied = _ignoring_vary(differences)
    kept = [*recordings]
    refusal: str | None = None
    presets = [Rules(presets=(name,), ignore_vary=varied) for name in names]
    ignored = _ignoring([difference for difference in differences if not difference.varied])
    by_path = replace(ignored, ignore_vary=varied) if ignored else NO_RULES
    for added in (files, candidate_rules(differences, rules), *presets, by_path):
        step()
        if not added or not matches(recorded, requested, merged_rules(rules, added)):
            continue
        if (confused := confused_recordings(kept, rules, added, step)) is None:
            return Suggestion(added)
        refusal = refusal or refusal_text(added, confused)
    return Suggestion(refusal=refusal)


def _normalisers_of_files(
    recorded: Request, requested: Request, rules: Rules, differences: Sequence[Difference]
) -> Rules:
    """The fewest normalisers that make requests equal whose files differ."""
    if not any(isinstance(difference.recorded, HexText) for difference in differences):
        return NO_RULES

    def explain(some: Sequence[str]) -> bool:
        added = Rules(normalise=tuple(some))
        return bool(some) and matches(recorded, requested, merged_rules(rules, added))

    names = [name for name in NORMALISERS if name not in rules.normalise]
    return Rules(normalise=_fewest(names, explain)) if explain(names) else NO_RULES


def confused_recordings(
    recordings: Iterable[AnyInteraction],
    rules: Rules,
    added: Rules,
    step: Callable[[], None] = no_pause,
    replacing: Container[int] = (),
) -> tuple[int, int] | None:
    """The indexes of two recordings that differ under the rules, and no longer with the added rules.

    `replacing` are the recordings of the latest take: what they replace under the rules cannot be
    confused with them. Takes about 30 microseconds for each recording of a short conversation.
    """
    in_force = merged_rules(rules, added)
    calls = [exchange for exchange in map(exchange_of, recordings) if exchange is not None]
    equal: dict[bytes, list[Interaction]] = defaultdict(list)
    for call in calls:
        equal[compared_key(call.request, in_force, recorded=True)].append(call)
        step()
    for alike in equal.values():
        group = [call for call in alike if call.index in replacing] or alike
        first = group[0]
        if _only_of_moments(added) and _are_of_days_of_their_own(group, rules):
            continue
        for other in group[1:]:
            if other.request != first.request and not _are_equal(first, other, rules):
                return first.index, other.index
        if added.ignore_vary and (indexes := _no_longer_told_apart(group, rules, in_force)):
            return indexes
    return None


def _only_of_moments(added: Rules) -> bool:
    return (
        bool(added.normalise)
        and {*added.normalise} <= _MOMENTS
        and added == Rules(normalise=added.normalise)
    )


def _are_of_days_of_their_own(calls: Sequence[Interaction], rules: Rules) -> bool:
    """Whether each was recorded on another day and states that day: one prompt, recorded anew."""
    days = {recorded_on(call, rules) for call in calls}
    return len(days) == len(calls) and None not in days


def _no_longer_told_apart(
    recordings: Sequence[Interaction], rules: Rules, in_force: Rules
) -> tuple[int, int] | None:
    """The indexes of two recordings with one key that headers told apart before."""
    for group in of_one_request(recordings, in_force.ignore_vary):
        if len(apart := of_one_request(group, rules.ignore_vary)) > 1:
            return apart[0][0].index, apart[1][0].index
    return None


def _are_equal(one: Interaction, other: Interaction, rules: Rules) -> bool:
    one_key, other_key = [
        compared_key(exchange.request, rules, recorded=True) for exchange in (one, other)
    ]
    return one_key == other_key


def refusal_text(added: Rules, confused: tuple[int, int]) -> str:
    """The reason against suggesting the rules, in one line."""
    rule = "; ".join(rules_text(added).splitlines())
    one, other = sorted(confused)
    return f"no rule is suggested: {rule} would also make recordings #{one} and #{other} equal"


def candidate_rules(
    differences: Sequence[Difference], rules: Rules, most: int = MOST_PATHS
) -> Rules:
    """Rules to add for these differences; the caller must compare keys to see whether they suffice.

    None for differences that make another request.
    """
    if reason_against_rules(differences) is not None:
        return NO_RULES
    varied = _ignoring_vary(differences)
    busters = [difference for difference in differences if _is_cache_buster(difference)]
    names, left = _normalisers(
        [
            difference
            for difference in differences
            if not difference.varied and difference not in busters
        ],
        rules,
    )
    rewrites = [_rewrite(difference) for difference in left if difference.steps == ("path",)]
    prompts = [difference for difference in left if _is_prompt(difference)]
    more, patterns = _of_prompts(prompts, rules)
    ignored = [
        difference
        for difference in (*busters, *left)
        if difference.steps[0] in ROOTS and difference not in prompts
    ]
    return Rules(
        ignore=_ignoring(ignored, most).ignore,
        normalise=tuple(dict.fromkeys(names + more)),
        patterns=tuple(patterns.items()),
        rewrite=tuple(dict(rewrite for rewrite in rewrites if rewrite is not None).items()),
        ignore_vary=varied,
    )


def _ignoring_vary(differences: Iterable[Difference]) -> tuple[str, ...]:
    """The headers that would no longer decide although `Vary` names them."""
    return tuple(
        dict.fromkeys(
            [str(difference.steps[-1]) for difference in differences if difference.varied]
        )
    )


def matches(recorded: Request, requested: Request, rules: Rules) -> bool:
    """Whether two requests are equal under some rules."""
    if known_to_differ(recorded, requested, rules.ignore_vary):
        return False
    recorded_key = compared_key(recorded, rules, recorded=True)
    return recorded_key == compared_key(requested, rules)


def rules_text(rules: Rules) -> str:
    """The rules as TOML lines, to paste below `[rules]`."""
    return "\n".join(f"{key} = {_toml(value)}" for key, value in rules_document(rules).items())


def _toml(value: Json) -> str:
    if isinstance(value, dict):
        pairs = ", ".join(f"{_toml(key)} = {_toml(member)}" for key, member in value.items())
        return f"{{ {pairs} }}"
    # For a text or a list of texts, JSON is TOML but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _normalisers(
    differences: Sequence[Difference], rules: Rules
) -> tuple[tuple[str, ...], list[Difference]]:
    """The fewest normalisers that make differences equal, and the differences that remain."""
    names = [name for name in NORMALISERS if name not in rules.normalise]
    explained = _equal_under(names, differences)
    if not explained:
        return (), list(differences)
    fewest = _fewest(names, lambda some: len(_equal_under(some, explained)) == len(explained))
    return fewest, [difference for difference in differences if difference not in explained]


def _fewest(names: Sequence[str], explain: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """The fewest of some normalisers that explain as much as all of them."""
    # The specific ones come first in the table, so the general ones are the first to be left out.
    for name in reversed(tuple(names)):
        if explain(fewer := [other for other in names if other != name]):
            names = fewer
    return tuple(names)


def _is_cache_buster(difference: Difference) -> bool:
    """Whether a parameter of the query is the time of the request and no more, as in `_=1795312835`."""
    if difference.steps[0] != "query" or len(difference.steps) != 2:
        return False
    is_time = NormaliserSet(("epoch",)).value
    return {is_time(value) for value in _texts(difference)} == {"<epoch>"}


def _texts(difference: Difference) -> list[str | None]:
    sides = (difference.recorded, difference.requested)
    return [side if isinstance(side, str) else None for side in sides]


def _equal_under(names: Sequence[str], differences: Iterable[Difference]) -> list[Difference]:
    normalising = NormaliserSet(names)

    def normal(value: Value) -> Value:
        return value if value is ABSENT else normalising.value(value)

    return [
        difference
        for difference in differences
        if normal(difference.recorded) == normal(difference.requested)
    ]


def _is_prompt(difference: Difference) -> bool:
    names = [step for step in difference.steps if isinstance(step, str)]
    return names[0] in ("body", "query") and names[-1] in _PROMPT_FIELDS


def _of_prompts(
    prompts: Sequence[Difference], rules: Rules
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The normalisers and patterns that explain differences of prompts, if they explain all.

    A prompt with a different word is a different prompt.
    """
    texts = [
        (prompt.recorded, prompt.requested)
        for prompt in prompts
        if isinstance(prompt.recorded, str) and isinstance(prompt.requested, str)
    ]
    names = [name for name in NORMALISERS if name not in rules.normalise]
    if len(texts) < len(prompts):
        return (), {}
    placeholders = (*NORMALISERS, *dict(rules.patterns))
    normalised = NormaliserSet(names)
    patterns: dict[str, str] = {}
    for recorded, requested in texts:
        new_patterns = prompt_patterns(
            normalised.text(recorded), normalised.text(requested), placeholders
        )
        if new_patterns is None:
            return (), {}
        for pattern in new_patterns:
            _add_pattern(patterns, pattern, dict(rules.patterns))

    def explain(some: Sequence[str]) -> bool:
        normalising = NormaliserSet(some, tuple(patterns.items()))
        return all(normalising.text(one) == normalising.text(other) for one, other in texts)

    return _fewest(names, explain), patterns


def with_free_names(added: Rules, in_force: Rules) -> Rules:
    """The added rules, with pattern names that do not clash with rules in force."""
    patterns: dict[str, str] = {}
    for name, pattern in added.patterns:
        _add_pattern(patterns, NamedPattern(name, pattern), dict(in_force.patterns))
    return replace(added, patterns=tuple(patterns.items()))


def _add_pattern(
    patterns: dict[str, str], added: NamedPattern, in_force: Mapping[str, str]
) -> None:
    """Add a pattern under a free name."""
    taken = {**in_force, **patterns}
    names = itertools.chain(
        (added.name,), (f"{added.name}-{number}" for number in itertools.count(2))
    )
    name = next(
        candidate for candidate in names if taken.get(candidate, added.pattern) == added.pattern
    )
    patterns[name] = added.pattern


def _rewrite(difference: Difference) -> tuple[str, str] | None:
    """The version segments by which two paths differ; one may be missing."""
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


def _ignoring(differences: Sequence[Difference], most: int = MOST_PATHS) -> Rules:
    # An added or removed element makes a new conversation. Neither a whole body nor a prompt
    # is ever ignored.
    if any(
        difference.steps[0] not in ROOTS
        or len(difference.steps) == 1
        or _is_element(difference)
        or _is_prompt(difference)
        for difference in differences
    ):
        return NO_RULES
    widenable = {difference.steps for difference in differences if _may_widen(difference)}
    counts = Counter(map(_widened, widenable))
    paths: dict[str, None] = {}
    for difference in differences:
        widened = _widened(difference.steps)
        paths[widened if counts[widened] > 1 else json_paths.path_text(difference.steps)] = None
    return Rules(ignore=tuple(paths)) if len(paths) <= most else NO_RULES


def _is_element(difference: Difference) -> bool:
    return isinstance(difference.steps[-1], int) and ABSENT in (
        difference.recorded,
        difference.requested,
    )


def _widened(steps: Steps) -> str:
    """The path with `[*]` in place of every position."""
    pieces = ["[*]" if isinstance(step, int) else json_paths.path_text((step,)) for step in steps]
    return "".join(
        piece if piece.startswith("[") else f".{piece}" for piece in pieces
    ).removeprefix(".")


def _may_widen(difference: Difference) -> bool:
    """Whether the field may be ignored in all elements of a list: it holds an identifier, no content."""
    if isinstance(difference.steps[-1], int) or difference.steps[-1] in _CONTENT_FIELDS:
        return False
    return all(map(_is_token, (difference.recorded, difference.requested)))


def _is_token(value: Value) -> bool:
    if isinstance(value, str):
        return _TOKEN.fullmatch(value) is not None and any(
            character.isdigit() for character in value
        )
    return value is ABSENT or (isinstance(value, int | float) and not isinstance(value, bool))
