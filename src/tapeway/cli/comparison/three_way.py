"""Merges two changed versions of a cassette, by the changes of each since their base.

A recording is recognised by the match key and, among repeats, by the answer and then the order. The
result is in the order of ours. A recording added by theirs follows the recording that it followed
in theirs; at equal places ours comes first.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tapeway.core.json_text import Json, canonical
from tapeway.core.matching.credential_fields import compared_key
from tapeway.core.matching.headers.conditions import varied_values
from tapeway.core.matching.rules import Rules, merged_rules, rules_of_meta
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.formats.fields import Document
from tapeway.inspection.pairing import compare_items, matched
from tapeway.inspection.summary import summary

_NOT_COMPARED = frozenset({"index", "latency_ms", "match_key"})
"""What differs between two records of one call, or is computed anew."""

_VERSION = "tapeway_version"
"""Which version began the cassette is no change of either side."""

_BOTH_CHANGED = "both sides changed it; ours is kept"
_THEIRS_REMOVED = "ours changed it and theirs removed it; ours is kept"
_OURS_REMOVED = "theirs changed it and ours removed it; theirs is kept"

_Found = tuple[Json, ...]
"""A value, or nothing where there is none."""


class Version(NamedTuple):
    """A cassette, and each interaction with its document as it stands in the file."""

    head: CassetteHead
    recordings: Sequence[tuple[Document, AnyInteraction]]


EMPTY = Version(CassetteHead("", ""), ())


class Merged(NamedTuple):
    """The merged cassette, and a line for each conflict."""

    head: CassetteHead
    documents: Sequence[Document]
    conflicts: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class _Recording:
    document: Document
    item: AnyInteraction
    key: bytes
    answer: bytes
    whole: bytes


class _MergedRecording(NamedTuple):
    recording: _Recording
    conflict: str = ""


def merge(base: Version, ours: Version, theirs: Version, rules: Rules) -> Merged:
    """The merged cassette, under the rules of all and these besides."""
    head, conflicts = _merge_heads(base.head, ours.head, theirs.head)
    every = merged_rules(rules_of_meta(head.meta), rules)
    sides = [_recordings(version, every) for version in (base, ours, theirs)]
    kept = list(_merge_recordings(sides[0], sides[1], sides[2], every))
    for index, (recording, conflict) in enumerate(kept):
        if conflict:
            shown = summary(replace(recording.item, index=index))
            conflicts.append(f"{shown}: {conflict}")
    return Merged(head, [merged.recording.document for merged in kept], conflicts)


def _recordings(version: Version, rules: Rules) -> list[_Recording]:
    return [_recording(document, item, rules) for document, item in version.recordings]


def _recording(document: Document, item: AnyInteraction, rules: Rules) -> _Recording:
    compared = {name: member for name, member in document.items() if name not in _NOT_COMPARED}
    whole = _digest(canonical(compared))
    if isinstance(item, Interaction):
        response = item.response
        body = response.body if response.file is None else response.file.digest.encode()
        failure = item.failure.kind if item.failure is not None else ""
        answer = _digest(f"{response.status} {response.verdict} {failure}\n".encode() + body)
        key = compared_key(item.request, rules, recorded=True)
        key += b"\0" + varied_values(item.request, rules.ignore_vary)
        return _Recording(document, item, key, answer, whole)
    names: list[Json] = [document.get("kind"), document.get("boundary"), document.get("request")]
    answer = canonical([document.get("response"), document.get("error")])
    return _Recording(document, item, canonical(names), _digest(answer), whole)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _merge_recordings(
    base: Sequence[_Recording],
    ours: Sequence[_Recording],
    theirs: Sequence[_Recording],
    rules: Rules,
) -> Iterator[_MergedRecording]:
    in_ours, in_theirs = _known_again(base, ours), _known_again(base, theirs)
    # By the base's recording before the added recordings; None for recordings before the first.
    added = _added_by_theirs(base, ours, theirs, in_ours, in_theirs, rules)
    of_base = {position: known for known, position in in_ours.items()}
    last: int | None = None
    for position, own in enumerate(ours):
        known = of_base.get(position)
        if known is None:
            yield _MergedRecording(own)
        elif known in in_theirs:
            yield from added[last]
            last = known
            yield _merged_recording(base[known], own, theirs[in_theirs[known]], rules)
        elif own.whole != base[known].whole:
            yield _MergedRecording(own, _THEIRS_REMOVED)
    yield from added[last]


def _added_by_theirs(
    base: Sequence[_Recording],
    ours: Sequence[_Recording],
    theirs: Sequence[_Recording],
    in_ours: Mapping[int, int],
    in_theirs: Mapping[int, int],
    rules: Rules,
) -> Mapping[int | None, list[_MergedRecording]]:
    own = _without_positions(ours, in_ours.values())
    other = _without_positions(theirs, in_theirs.values())
    twice = {id(other[position]) for position in matched(own, other, _call_and_answer).values()}
    twice |= {
        id(other[right])
        for left, right in matched(own, other, lambda recording: recording.key).items()
        if _are_alike(own[left], other[right], rules)
    }
    of_base = {position: known for known, position in in_theirs.items()}
    added: dict[int | None, list[_MergedRecording]] = defaultdict(list)
    last: int | None = None
    for position, recording in enumerate(theirs):
        known = of_base.get(position)
        if known is None:
            added[last] += [] if id(recording) in twice else [_MergedRecording(recording)]
        elif known in in_ours:
            last = known
        elif recording.whole != base[known].whole:
            added[last].append(_MergedRecording(recording, _OURS_REMOVED))
    return added


def _merged_recording(
    base: _Recording, ours: _Recording, theirs: _Recording, rules: Rules
) -> _MergedRecording:
    if ours.whole == base.whole:
        return _MergedRecording(theirs)
    if theirs.whole in (base.whole, ours.whole) or ours.answer == theirs.answer != base.answer:
        return _MergedRecording(ours)
    conflict = "" if _are_alike(ours, theirs, rules) else _BOTH_CHANGED
    return _MergedRecording(ours, conflict)


def _are_alike(ours: _Recording, theirs: _Recording, rules: Rules) -> bool:
    """Whether two recordings of one call differ in identifiers and times alone."""
    return not compare_items(ours.item, theirs.item, rules, headers=False).differences


def _known_again(base: Sequence[_Recording], side: Sequence[_Recording]) -> dict[int, int]:
    """The positions in a side of the recordings of the base that it still has."""
    known: dict[int, int] = {}
    steps: list[Callable[[_Recording], Hashable]] = [
        lambda recording: recording.whole,
        _call_and_answer,
        lambda recording: recording.key,
    ]
    for digest_of in steps:
        left = [position for position in range(len(base)) if position not in known]
        taken = set(known.values())
        right = [position for position in range(len(side)) if position not in taken]
        pairs = matched(
            [base[position] for position in left], [side[position] for position in right], digest_of
        )
        known |= {left[one]: right[other] for one, other in pairs.items()}
    return known


def _call_and_answer(recording: _Recording) -> tuple[bytes, bytes]:
    return recording.key, recording.answer


def _without_positions(side: Sequence[_Recording], positions: Iterable[int]) -> list[_Recording]:
    known = set(positions)
    return [recording for position, recording in enumerate(side) if position not in known]


def _merge_heads(
    base: CassetteHead, ours: CassetteHead, theirs: CassetteHead
) -> tuple[CassetteHead, list[str]]:
    conflicts: list[str] = []
    meta = dict(_merge_objects(base.meta, ours.meta, theirs.meta, ("meta",), conflicts))
    # Which run began the cassette is no matter of either side.
    return CassetteHead(ours.created_at, ours.run_id, meta), conflicts


def _merge_objects(
    base: Mapping[str, Json],
    ours: Mapping[str, Json],
    theirs: Mapping[str, Json],
    at: tuple[str, ...],
    conflicts: list[str],
) -> Iterator[tuple[str, Json]]:
    for name in {**ours, **theirs}:
        versions = [_value_if_present(document, name) for document in (base, ours, theirs)]
        for value in _merge_values(versions[0], versions[1], versions[2], (*at, name), conflicts):
            yield name, value


def _value_if_present(values: Mapping[str, Json], name: str) -> _Found:
    return (values[name],) if name in values else ()


def _merge_values(
    base: _Found, ours: _Found, theirs: _Found, at: tuple[str, ...], conflicts: list[str]
) -> _Found:
    if theirs in (base, ours):
        return ours
    if ours == base:
        return theirs
    match base, ours, theirs:
        case (((dict(),) | ()), (dict() as own,), (dict() as other,)):
            old = base[0] if base else {}
            assert isinstance(old, dict)  # noqa: S101 - for the type alone
            return (dict(_merge_objects(old, own, other, at, conflicts)),)
        case (((list(),) | ()), (list() as own,), (list() as other,)) if at[1] == "rules":
            return (_merge_sets(base[0] if base else [], own, other),)
        case _, (str(own),), (str(other),) if at[1] == "checked_at":
            # No recording counts as compared later than it was.
            return (min(own, other),)
    if at[1] == _VERSION:
        return ours or theirs
    conflicts.append(f"{'.'.join(at)}: {_how_they_differ(ours, theirs)}")
    return ours or theirs


def _merge_sets(base: Json, ours: list[Json], theirs: list[Json]) -> list[Json]:
    known = base if isinstance(base, list) else []
    kept = [item for item in ours if item in theirs or item not in known]
    return kept + [item for item in theirs if item not in ours and item not in known]


def _how_they_differ(ours: _Found, theirs: _Found) -> str:
    if not ours:
        return _OURS_REMOVED
    return _BOTH_CHANGED if theirs else _THEIRS_REMOVED
