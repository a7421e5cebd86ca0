"""How the values are declared that are made for each request and each recording."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """A dataclass with slots and a hash, whose fields nobody changes: mypy refuses that.

    Nothing refuses it at runtime: to make a frozen dataclass takes six times as long.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
