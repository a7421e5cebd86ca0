"""Cassettes of renamed tests: what was missed is looked for in those that no test names."""

import json
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher

from tapeway.core.matching.key import key_text, request_key
from tapeway.core.matching.rules import RulesFault, rules_of_meta
from tapeway.core.model.interaction import exchange_of
from tapeway.deck.admin_client import DeckError, segment
from tapeway.deck.deck import Deck
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import load

_MOST_READ = 200
"""Cassettes that are looked into; the ones with the most similar names come first."""


def find_renamed(
    deck: Deck, missing: Mapping[str, Collection[str]], unclaimed: Collection[str]
) -> dict[str, str]:
    """For each missing cassette the unclaimed one that holds what was missed there, each one once.

    `missing` has the match keys of what was missed.
    """
    keys: dict[str, frozenset[str]] = {}
    found: dict[str, str] = {}
    for name, missed in missing.items():
        for each in sorted(unclaimed, key=lambda other: _distance(name, other))[:_MOST_READ]:
            if each in found.values():
                continue
            if each not in keys:
                keys[each] = _keys(deck, each)
            if not keys[each].isdisjoint(missed):
                found[name] = each
                break
    return found


def _distance(name: str, other: str) -> float:
    return -SequenceMatcher(None, name, other, autojunk=False).ratio()


def _keys(deck: Deck, name: str) -> frozenset[str]:
    """The match keys of a cassette's recordings; none of one that cannot be read."""
    try:
        text = json.dumps(deck.admin.call("GET", f"cassettes/{segment(name)}")).encode()
        cassette = load(text)
        rules = rules_of_meta(cassette.head.meta)
    except (DeckError, FormatFault, RulesFault):
        return frozenset()
    exchanges = filter(None, map(exchange_of, cassette.interactions))
    return frozenset(key_text(request_key(each.request, rules)) for each in exchanges)
