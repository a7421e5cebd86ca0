"""The comparison of what two commits measured."""

from bench.against import compared


def test_a_ratio_is_of_the_medians_of_what_both_measured() -> None:
    before = {"a hit | tapeway": 10.0, "gone | tapeway": 1.0}
    after = {"a hit | tapeway": 11.0, "new | tapeway": 1.0}
    slower = {"a hit | tapeway": 13.0}

    table = compared("replay", [(before, after), (before, slower), (before, after)])

    assert table.rows == {"a hit | tapeway": ("10.00", "11.00", "1.10", "")}


def test_a_row_that_became_dearer_or_cheaper_by_much_is_marked() -> None:
    before = {"dearer": 10.0, "cheaper": 10.0, "equal": 10.0}
    after = {"dearer": 12.0, "cheaper": 8.0, "equal": 10.0}

    rows = compared("recording", [(before, after)]).rows

    assert {what: row[-1] for what, row in rows.items()} == {
        "dearer": "<--",
        "cheaper": "<--",
        "equal": "",
    }
