"""URL-encoded form bodies as AgentTape keeps them: a map, a repeated name holding a list."""

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlencode

from tapeway.core.json_text import Json


def parse(body: bytes) -> dict[str, Json]:
    """The fields of a form. Raises UnicodeDecodeError for a body that is not UTF-8."""
    values: dict[str, list[Json]] = {}
    for name, value in parse_qsl(body.decode("utf-8"), keep_blank_values=True):
        values.setdefault(name, []).append(value)
    return {name: found[0] if len(found) == 1 else found for name, found in values.items()}


def dump(form: Mapping[str, Json]) -> bytes:
    """The body that says these fields; a repeated name's values come one after the other."""
    pairs: list[tuple[str, str]] = []
    for name, value in form.items():
        values = value if isinstance(value, list) else [value]
        pairs.extend((name, str(each)) for each in values)
    return urlencode(pairs).encode("ascii")
