"""What a benchmark measured: tables with medians and spread, as text, as Markdown, and as a chart."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_BAR, _GAP, _LABEL, _WIDTH, _HEAD = 16, 14, 300, 860, 56
_COLOURS = ("#7b8794", "#9aa5b1", "#b8c4ce", "#d5dde5", "#2f6f4f")


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of what was measured, and between what the middle half lies."""

    median: float
    low: float
    high: float
    digits: int = 1

    def __str__(self) -> str:
        median, low, high = (
            f"{number:,.{self.digits}f}" for number in (self.median, self.low, self.high)
        )
        return median if low == high else f"{median} ({low} to {high})"


def figure(values: Sequence[float], digits: int = 1) -> Figure:
    """The median and the quartiles."""
    if len(values) < 2:
        return Figure(values[0], values[0], values[0], digits)
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Figure(statistics.median(values), low, high, digits)


@dataclass(frozen=True, slots=True)
class Table:
    """One table. The columns are those after the first, which says what was measured."""

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, Sequence[Figure | str]]
    note: str = ""


def text(table: Table) -> str:
    """The table as aligned text."""
    lines = [(table.title, *table.columns)]
    lines += [(what, *map(str, cells)) for what, cells in table.rows.items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    shown = [
        "  ".join(f"{cell:{'<' if at == 0 else '>'}{widths[at]}}" for at, cell in enumerate(line))
        for line in lines
    ]
    return "\n".join([*shown, *([table.note] if table.note else []), ""])


def markdown(table: Table) -> str:
    """The table under a heading."""
    lines = [("", *table.columns), ("---", *("---:" for _ in table.columns))]
    lines += [(what, *map(str, cells)) for what, cells in table.rows.items()]
    shown = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    note = f"\n\n{table.note}" if table.note else ""
    return f"### {table.title}\n\n{shown}{note}\n"


def chart(table: Table, series: Sequence[str]) -> str:
    """Horizontal bars of the medians of these columns, as an SVG document.

    Each row has a scale of its own: it is measured in turns, and compared with no other.
    """
    columns = [table.columns.index(name) for name in series]
    rows = {
        what: [cell for at in columns if isinstance(cell := cells[at], Figure)]
        for what, cells in table.rows.items()
    }
    rows = {what: figures for what, figures in rows.items() if len(figures) == len(series)}
    block = len(series) * _BAR + _GAP
    height = _HEAD + len(rows) * block
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(table.title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="0" y="16" font-size="14" fill="#1f2933">{escape(table.title)}</text>',
    ]
    colours = _COLOURS[-len(series) :]
    for at, (name, colour) in enumerate(zip(series, colours, strict=True)):
        x = at * 150
        parts.append(f'<rect x="{x}" y="28" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="38" fill="#1f2933">{escape(name)}</text>')
    for number, (what, figures) in enumerate(rows.items()):
        top = _HEAD + number * block
        scale = (_WIDTH - _LABEL - 70) / max(bar.median for bar in figures)
        parts.append(
            f'<text x="0" y="{top + block / 2 - 3:.0f}" fill="#1f2933">{escape(what)}</text>'
        )
        for at, (bar, colour) in enumerate(zip(figures, colours, strict=True)):
            y, width = top + at * _BAR, bar.median * scale
            parts.append(
                f'<rect x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR - 3}" fill="{colour}"/>'
            )
            parts.append(
                f'<text x="{_LABEL + width + 5:.1f}" y="{y + 11}" fill="#52606d">'
                f"{bar.median:,.{bar.digits}f}</text>"
            )
    return "\n".join([*parts, "</svg>", ""])
