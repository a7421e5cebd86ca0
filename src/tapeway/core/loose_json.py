"""Lenient access to JSON of other programs: a value of an unexpected type counts as missing."""

from collections.abc import Iterator

from tapeway.core.json_text import Json


def fields(value: object) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def items(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def string(value: Json) -> str:
    return value if isinstance(value, str) else ""


def objects(value: Json) -> Iterator[dict[str, Json]]:
    """The objects in a list."""
    for item in items(value):
        if isinstance(item, dict):
            yield item


def either(value: dict[str, Json], *names: str) -> Json:
    """The first present field of these names: some names are spelled in several ways."""
    return next((value[name] for name in names if name in value), None)


def position(value: Json) -> int:
    """An index; 0 for a value that is none."""
    return value if type(value) is int else 0


def error_of(value: dict[str, Json]) -> str:
    """The error that a document reports, empty if there is none."""
    error = value.get("error")
    if isinstance(error, str):
        return error
    members = fields(error)
    parts = [string(members.get(name)) for name in ("type", "code", "status", "message")]
    message = ": ".join(dict.fromkeys(filter(None, parts)))
    return message or ("an error without a message" if members else "")
