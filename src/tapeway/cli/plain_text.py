"""Text of anybody's on a terminal, which it is not to steer."""


def line(text: str) -> str:
    """The text on one line, with everything but what can be seen written out."""
    return "".join([each if each.isprintable() else _escaped(each) for each in text])


def block(text: str) -> str:
    """The same with its line breaks and tabs."""
    return "".join(
        [each if each.isprintable() or each in "\n\t" else _escaped(each) for each in text]
    )


def size(octets: int) -> str:
    """How many bytes, as people say it."""
    number, unit = float(octets), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{octets} B" if unit == "B" else f"{number:.1f} {unit}"


def counted(count: int, noun: str) -> str:
    """`1 interaction`, `2 interactions`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}"
