"""Names that may have been meant."""

import pytest

from tapeway.core.misses.near_names import near_names, question


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("suite/logn", ("suite/login", "suite/logout")),
        ("Login", ("suite/login",)),
        ("other/Logout", ("suite/logout",)),
        ("zebra", ()),
    ],
)
def test_near_names_are_those_of_the_same_last_part_and_those_spelt_alike(
    name: str, near: tuple[str, ...]
) -> None:
    assert near_names(name, ["suite/login", "suite/logout", "smoke"]) == near


def test_a_message_asks_for_the_near_names_and_for_none_where_none_is_near() -> None:
    assert question("smok", ["smoke", "suite/login"]) == "; is smoke meant?"
    assert question("zebra", ["smoke", "suite/login"]) == ""
