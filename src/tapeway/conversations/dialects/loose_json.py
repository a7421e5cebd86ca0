"""JSON of outside, read without insisting: what has another shape is as if it were not there."""

from collections.abc import Iterator

from tapeway.core.json_text import Json


def fields(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def string(value: Json) -> str:
    return value if isinstance(value, str) else ""


def objects(value: Json) -> Iterator[dict[str, Json]]:
    """The objects in a list."""
    for each in items(value):
        if isinstance(each, dict):
            yield each


def either(value: dict[str, Json], *names: str) -> Json:
    """The first field there is, of one that is written in several ways."""
    return next((value[name] for name in names if name in value), None)


def position(value: Json) -> int:
    """A place in a list; one that is none is the first."""
    return value if type(value) is int else 0


def error_of(value: dict[str, Json]) -> str:
    """What a document says went wrong, empty if nothing did."""
    error = value.get("error")
    if isinstance(error, str):
        return error
    found = fields(error)
    parts = [string(found.get(name)) for name in ("type", "code", "status", "message")]
    said = ": ".join(dict.fromkeys(filter(None, parts)))
    return said or ("an error without a message" if found else "")
