"""Classes of values, of which every request makes some."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """A frozen dataclass with slots, but that only the type checker keeps from being changed.

    One that is frozen at run time sets each of its fields by a call: five times as long.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
