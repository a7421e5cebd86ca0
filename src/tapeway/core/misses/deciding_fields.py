"""Differences that make another request, whatever else is equal: no rule may leave them out.

If a rule did, one call could get another's answer, or an answer that its client cannot read.
"""

from collections.abc import Iterable

from tapeway.core.matching.normalisers import HexText
from tapeway.core.misses.differences import Difference

_ANYWHERE = frozenset(
    {
        *("functions", "model", "modelId", "model_id", "tool_choice", "toolConfig", "tool_config"),
        "tools",
    }
)
"""Who answers, and with what: at any depth, as in a session's settings."""

_AT_THE_TOP = frozenset({"id", "method", "n", "operationName", "stream"})
"""Which call it is, and the form and number of its answers. Further down the names mean anything."""


def reason_against_rules(differences: Iterable[Difference]) -> str | None:
    """Why no rule is suggested for these differences, in one line; None if one may be."""
    for difference in differences:
        if (why := _why(difference)) is not None:
            return f"no rule is suggested: {difference.path} {why}"
    return None


def _why(difference: Difference) -> str | None:
    names = [step for step in difference.steps[1:] if isinstance(step, str)]
    if difference.steps[0] not in ("body", "query") or not names:
        return None
    if any(isinstance(value, HexText) for value in (difference.recorded, difference.requested)):
        return "is the digest of other content"
    if difference.steps[0] == "body" and names[0] == "id":
        return "names one call or object, and the answer belongs to that one"
    if not _ANYWHERE.isdisjoint(names) or (
        difference.steps[0] == "body" and names[0] in _AT_THE_TOP
    ):
        return "decides the answer"
    return None
