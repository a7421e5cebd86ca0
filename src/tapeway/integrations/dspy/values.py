"""The values that DSPy caches, as JSON and back.

A pydantic model is rebuilt from its class, which must be in an allowed module. Otherwise only arrays
of numbers and plain JSON are recorded. A value that would come back changed is refused.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from pydantic import BaseModel

from tapeway.core.json_text import Json, NotJson, dump, parse

Document = dict[str, Json]

ALLOWED = ("litellm.types.", "openai.types.", "dspy.")
"""Prefixes of the classes that can be rebuilt."""

MODEL, ARRAY, PLAIN = "pydantic", "numpy.ndarray", "json"
_COST = "response_cost"


class _Array(Protocol):
    dtype: object
    shape: tuple[int, ...]

    def tolist(self) -> Json: ...

    def reshape(self, shape: Sequence[int]) -> "_Array": ...


def encode_value(value: object, allowed: Sequence[str] = ()) -> Document:
    """The value as JSON. Raises ValueError if the value would not come back equal."""
    if isinstance(value, BaseModel):
        model = _of_model(value)
        decoded = decode_value(model, allowed)
        if not isinstance(decoded, BaseModel) or _dumped(decoded) != model["data"]:
            raise ValueError(f"{_named(value)} does not come back as it was")
        return model
    if _named(value) == ARRAY:
        array = cast(_Array, value)
        if getattr(array.dtype, "kind", "") not in "fiub":
            raise ValueError(f"an array of {array.dtype} cannot be recorded, only one of numbers")
        shape = list(array.shape)
        data: Json = {"dtype": str(array.dtype), "shape": [*shape], "values": array.tolist()}
        return {"type": ARRAY, "data": _plain(data)}
    return {"type": PLAIN, "data": _plain(value)}


def decode_value(document: Mapping[str, Json], allowed: Sequence[str] = ()) -> object:
    """A new copy of the value. Raises ValueError that names the part that cannot be rebuilt."""
    data = document.get("data")
    match document.get("type"):
        case "pydantic":
            return _model(str(document.get("class")), data, document, allowed)
        case "numpy.ndarray":
            return _array(data)
        case "json" | "dict":
            return parse(dump(data))
        case str(path) if "." in path:
            return _model(path, data, document, allowed)
        case other:
            raise ValueError(f"a value of the type {other!r} cannot be rebuilt")


def _of_model(value: BaseModel) -> Document:
    kind = type(value)
    document: Document = {"type": MODEL, "class": _named(value), "data": _dumped(value)}
    if "<" in kind.__qualname__:
        raise ValueError(f"{_named(value)} is a class that nobody can import")
    hidden = getattr(value, "_hidden_params", None)
    if isinstance(hidden, dict) and isinstance(cost := hidden.get(_COST), int | float):
        # A dump leaves this field out, but DSPy's history shows the field.
        document[_COST] = cost
    return document


def _dumped(value: BaseModel) -> Json:
    try:
        return _plain(value.model_dump(mode="json", warnings="none"))
    except (TypeError, RecursionError) as exc:
        raise ValueError(f"{_named(value)} cannot be written as JSON: {exc}") from exc


def _plain(value: object) -> Json:
    try:
        plain = parse(dump(cast(Json, value)))
    except (TypeError, UnicodeEncodeError, RecursionError, NotJson) as exc:
        raise ValueError(f"a value of {_named(value)} is no JSON: {exc}") from exc
    if plain != value:
        raise ValueError(
            f"a value of {_named(value)} would come back as another one: it holds tuples, "
            "infinite numbers or the like"
        )
    return plain


def _model(path: str, data: Json, document: Mapping[str, Json], allowed: Sequence[str]) -> object:
    kind = _class(path, (*ALLOWED, *allowed))
    if not isinstance(data, dict):
        raise ValueError(f"what {path} is made of must be an object")  # noqa: TRY004 - of a file
    value = kind(**parse_object(data))
    cost = document.get(_COST)
    if isinstance(cost, int | float):
        hidden = getattr(value, "_hidden_params", None)
        known = dict(hidden) if isinstance(hidden, dict) else {}
        object.__setattr__(value, "_hidden_params", {**known, _COST: cost})
    return value


def parse_object(data: dict[str, Json]) -> dict[str, Json]:
    """A copy without shared parts."""
    members = parse(dump(data))
    return members if isinstance(members, dict) else {}


def _class(path: str, allowed: Sequence[str]) -> type[BaseModel]:
    if not path.startswith(tuple(allowed)):
        raise ValueError(
            f"the class {path} is not rebuilt: allowed are those below {', '.join(allowed)}; give "
            "allow=('its.module.',) where you trust the file"
        )
    steps = path.split(".")
    for cut in range(len(steps) - 1, 0, -1):
        try:
            value: object = importlib.import_module(".".join(steps[:cut]))
        except ModuleNotFoundError:
            continue
        for step in steps[cut:]:
            value = getattr(value, step, None)
        if isinstance(value, type) and issubclass(value, BaseModel):
            return value
        break
    raise ValueError(f"there is no model {path} here: is another version installed?")


def _array(data: Json) -> object:
    match data:
        case {"dtype": str(dtype), "shape": list(shape), "values": values}:
            numpy = importlib.import_module("numpy")
            array: _Array = numpy.array(values, dtype=dtype)
            return array.reshape([length for length in shape if isinstance(length, int)])
        case _:
            raise ValueError("an array needs dtype, shape and values")


def _named(value: object) -> str:
    kind = type(value)
    return f"{kind.__module__}.{kind.__qualname__}"
