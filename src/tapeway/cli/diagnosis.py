"""What comparing two takes found, as people read it and as scripts do."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tapeway.core.json_text import Json, dump, legible
from tapeway.core.matching.rules import NONE, Rules, merged, written
from tapeway.core.misses.comparison import CallPair, Comparison, Differing
from tapeway.core.misses.differences import Difference, shown
from tapeway.core.misses.nearest import compared
from tapeway.core.misses.suggestion import rules_text
from tapeway.core.model.interaction import Interaction

_MOST_LISTED = 20
"""Calls of one kind that are named; a person looks at a few."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Two takes by name, the rules in force for them, and how they compare."""

    first: str
    second: str
    rules: Rules
    comparison: Comparison

    def left(self, pair: CallPair) -> tuple[Difference, ...]:
        """What still differs between two calls under all rules."""
        rules = merged(self.rules, self.comparison.rules)
        return compared(pair.first.request, pair.second.request, rules)


def added(found: Sequence[Diagnosis]) -> Rules:
    """The rules to add for all of them."""
    rules = NONE
    for each in found:
        rules = merged(rules, each.comparison.rules)
    return rules


def explained(found: Sequence[Diagnosis]) -> bool:
    """Whether, the rules added, every run like the second would be answered from the first."""
    return all(each.comparison.explained for each in found)


def pasted(rules: Rules, present: Rules) -> str:
    """The lines to stand below `[rules]`, where those of the same name stood before."""
    both = merged(present, rules)
    return rules_text(Rules(**{key: getattr(both, key) for key in written(rules)}))


def as_json(found: Sequence[Diagnosis], present: Rules) -> str:
    """One document about all of them."""
    rules = added(found)
    document: dict[str, Json] = {
        "explained": explained(found),
        "rules": written(rules),
        "toml": pasted(rules, present),
        "cassettes": [_document(each) for each in found],
    }
    return dump(document).decode()


def as_text(found: Sequence[Diagnosis], present: Rules) -> str:
    """What a person needs to know, the rules ready to be pasted."""
    paragraphs = ["\n".join(_told(each)) for each in found]
    rules = added(found)
    if rules:
        paragraphs.append("Add under [rules] in tapeway.toml, in place of lines of the same name:")
        paragraphs.append(pasted(rules, present))
    if rules.ignore:
        paragraphs.append("What is ignored matches whatever it says: keep what a test is about.")
    if found and not rules and explained(found):
        paragraphs.append("No rule is needed.")
    return "\n\n".join(paragraphs)


def _told(found: Diagnosis) -> Iterator[str]:
    comparison = found.comparison
    pairs = len(comparison.unexplained)
    yield f"{found.first} and {found.second}: {_calls(comparison.equal)} equal"
    for differing in comparison.paths:
        yield f"  {_path(differing)} differs in {_calls(differing.calls)}{_reason(differing)}"
        yield from _example(differing.example, "    ")
    if pairs:
        yield f"No rule explains {_calls(pairs)}:"
        for pair in comparison.unexplained[:_MOST_LISTED]:
            yield f"  {_call(pair.first)} and {_call(pair.second)}"
            for each in found.left(pair)[:_MOST_LISTED]:
                yield f"    {legible(each.path)}"
                yield from _example(each, "      ")
    for name, calls in (
        (found.first, comparison.only_first),
        (found.second, comparison.only_second),
    ):
        if calls:
            yield f"{_calls(len(calls))} only in {name}:"
            yield from (f"  {_call(each)}" for each in calls[:_MOST_LISTED])


def _path(differing: Differing) -> str:
    return legible(differing.path)


def _reason(differing: Differing) -> str:
    return ", which repeats what an answer said" if differing.echoed else ""


def _calls(count: int) -> str:
    return f"{count} call{'' if count == 1 else 's'}"


def _call(interaction: Interaction) -> str:
    request = interaction.request
    return f"#{interaction.index} {legible(request.method)} {legible(request.target)}"


def _example(difference: Difference, indent: str) -> Iterator[str]:
    said = shown(difference)
    for name, side in (("first", "recorded"), ("second", "requested")):
        value = dump(said[side]).decode() if side in said else "nothing"
        yield f"{indent}{name}: {value}"


def _document(found: Diagnosis) -> dict[str, Json]:
    comparison = found.comparison
    return {
        "first": found.first,
        "second": found.second,
        "equal": comparison.equal,
        "explained": comparison.explained,
        "differences": [
            {**shown(each.example), "path": _path(each), "calls": each.calls, "echoed": each.echoed}
            for each in comparison.paths
        ],
        "rules": written(comparison.rules),
        "unexplained": [
            {
                "first": _named(pair.first),
                "second": _named(pair.second),
                "differences": [shown(each) for each in found.left(pair)],
            }
            for pair in comparison.unexplained
        ],
        "only_first": [_named(each) for each in comparison.only_first],
        "only_second": [_named(each) for each in comparison.only_second],
    }


def _named(interaction: Interaction) -> dict[str, Json]:
    request = interaction.request
    return {
        "index": interaction.index,
        "method": legible(request.method),
        "path": legible(request.target),
    }
