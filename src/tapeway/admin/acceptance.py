"""A miss that is to be a hit from now on: the rule for it becomes one of its cassette's."""

import tomllib
from typing import cast

from tapeway.admin.console import Console
from tapeway.admin.payloads import Acceptance, Accepted, Nothing
from tapeway.admin.route import Call
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NONE, Rules, RulesFault, read, written
from tapeway.core.misses.suggestion import rules_text
from tapeway.engine.journal import ServedRequest
from tapeway.errors import AdminError


async def accept(console: Console, call: Call[Nothing, Acceptance]) -> Accepted:
    """Add what a missed request was suggested, or the rule given, to its cassette's rules.

    The rule is in force, and kept, when this answers. To accept it again changes nothing.
    """
    entry = _entry(console, call.request.match_info["id"])
    added = _suggested(entry) if call.body.rule is None else _given(call.body.rule)
    name = entry.cassette
    if not console.broker.is_in(name):
        raise AdminError(
            f"cassette '{name}' is not in: insert it, or ask for something in it, and accept again",
            status=409,
            code="not_inserted",
        )
    rules = await console.broker.add_rules(name, added)
    return Accepted(cassette=name, rules=written(rules), suggestion=rules_text(added))


def _entry(console: Console, id: str) -> ServedRequest:
    for entry in console.journal:
        if entry.id == id:
            return entry
    raise AdminError(
        "the journal has no such entry: /api/v1/journal lists those it has",
        status=404,
        code="no_entry",
    )


def _suggested(entry: ServedRequest) -> Rules:
    if entry.suggestion is None:
        raise AdminError(
            "nothing is suggested for this request: give a rule of your own in 'rule'",
            status=409,
            code="no_suggestion",
        )
    return read(tomllib.loads(entry.suggestion))


def _given(rule: dict[str, object]) -> Rules:
    try:
        found = read(cast("Json", rule))
    except RulesFault as fault:
        raise AdminError(str(fault), code="bad_rule") from None
    if found == NONE:
        raise AdminError("'rule' states no rule: it is like the suggestion", code="bad_rule")
    return found
