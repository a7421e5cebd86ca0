"""Classes of values, of which every request makes some."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """A dataclass with slots, frozen for the type checker alone.

    A dataclass frozen at run time sets each field by a call, which takes five times as long.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
