"""A document changed only where a change says so: whatever else stands in it stays as it stands."""

from collections.abc import Mapping

from tapeway.core.json_text import Json
from tapeway.formats import arrival, body, failing, header_map

_MESSAGES = ("request", "response", failing.PARTIAL)
# Fields that say one thing together.
_GROUPS = (body.NAMES, header_map.NAMES, arrival.NAMES)


def patched(
    document: Mapping[str, Json], before: Mapping[str, Json], after: Mapping[str, Json]
) -> dict[str, Json]:
    """The document of an interaction with what differs between two encodings of it.

    A document may leave out much and say things otherwise than it would be encoded.
    """
    result = dict(document)
    for name, new in after.items():
        old, own = before.get(name), document.get(name)
        if name not in document or old == new:
            continue
        if name in _MESSAGES and all(isinstance(each, dict) for each in (old, new, own)):
            result[name] = _message(_object(own), _object(old), _object(new))
        else:
            result[name] = new
    return result


def _message(
    own: dict[str, Json], before: dict[str, Json], after: dict[str, Json]
) -> dict[str, Json]:
    grouped = {name for group in _GROUPS for name in group}
    alone = [(name,) for name in {**before, **after} if name not in grouped]
    for group in (*_GROUPS, *alone):
        new = {name: after[name] for name in group if name in after}
        if new != {name: before[name] for name in group if name in before}:
            own = _instead(own, group, new)
    return own


def _instead(own: dict[str, Json], group: tuple[str, ...], new: dict[str, Json]) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for name, value in own.items():
        # All of the group where its first one stood.
        result |= new if name in group else {name: value}
    return result | new


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}
