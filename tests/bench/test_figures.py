"""Tables of figures as text, as Markdown and as a chart."""

import re
from xml.etree import ElementTree

import pytest

from bench.figures import Figure, Table, chart, figure, markdown, text
from bench.replay import BASELINES, OURS

TABLE = Table(
    "Cost <of a replay>",
    ("bare", "tapeway", "tapeway / bare"),
    {
        "the same": [figure([10.0, 11.0, 30.0]), figure([20.0]), figure([2.0, 2.0], 2)],
        "memory": ["", "7", ""],
    },
    "A note.",
)


def test_a_figure_is_the_median_with_the_middle_half() -> None:
    assert figure([4.0, 1.0, 3.0, 2.0, 100.0], 0) == Figure(3.0, 2.0, 4.0, 0)
    assert str(figure([4.0, 1.0, 3.0, 2.0, 100.0], 0)) == "3 (2 to 4)"
    assert str(figure([1234.5])) == "1,234.5"


def test_the_columns_of_a_text_are_aligned() -> None:
    assert text(TABLE) == (
        "Cost <of a replay>                 bare  tapeway  tapeway / bare\n"
        "the same            11.0 (10.5 to 20.5)     20.0            2.00\n"
        "memory                                         7                \n"
        "A note.\n"
    )


def test_markdown_is_a_table_under_a_heading() -> None:
    assert markdown(TABLE) == (
        "### Cost <of a replay>\n\n"
        "|  | bare | tapeway | tapeway / bare |\n"
        "| --- | ---: | ---: | ---: |\n"
        "| the same | 11.0 (10.5 to 20.5) | 20.0 | 2.00 |\n"
        "| memory |  | 7 |  |\n\n"
        "A note.\n"
    )


def bars(drawn: ElementTree.Element) -> list[float]:
    """How long they are; the squares of the legend are lower."""
    found = drawn.iter("{http://www.w3.org/2000/svg}rect")
    return [float(bar.get("width", "")) for bar in found if bar.get("height") == "13"]


def test_a_chart_has_a_bar_for_each_median_as_long_as_it_is_large() -> None:
    drawn = ElementTree.fromstring(chart(TABLE, ("bare", "tapeway")))  # noqa: S314 - written here

    short, long = bars(drawn)
    assert short / long == 11 / 20
    assert drawn.findtext("{http://www.w3.org/2000/svg}title") == "Cost <of a replay>"


def test_each_row_of_a_chart_has_its_own_scale_and_each_server_its_own_colour() -> None:
    names = (*BASELINES, OURS)
    rows = {
        what: [figure([float(at * times)]) for at, _ in enumerate(names, 1)]
        for what, times in (("small", 1), ("large", 1000))
    }

    drawn = chart(Table("Cost", names, rows), names)

    found = bars(ElementTree.fromstring(drawn))  # noqa: S314 - written here
    assert found[: len(names)] == found[len(names) :]
    assert found[0] / found[-1] == pytest.approx(1 / len(names), abs=0.001)
    assert len({*re.findall(r'height="13" fill="(#\w+)"', drawn)}) == len(names)
