"""Values that are made for each request."""

from dataclasses import dataclass, replace

from tapeway.core.model.value_class import value_class


@value_class
class Made:
    number: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Frozen:
    number: int
    text: str = ""


def test_it_is_as_a_frozen_dataclass_is() -> None:
    made = Made(1, "a")

    assert made == replace(Made(2, "a"), number=1) != Made(1)
    assert hash(made) == hash(Frozen(1, "a"))
    assert repr(made) == "Made(number=1, text='a')"
    assert not hasattr(made, "__dict__")
