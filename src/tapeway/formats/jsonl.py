"""JSON Lines: a cassette's head on the first line, then one interaction a line, as the cassette
file has it. For tools that stream, filter and count lines.
"""

from collections.abc import Iterator

from tapeway.core.json_text import Json, NotJson, dump, parse
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats import extension, native
from tapeway.formats.extension import Document
from tapeway.formats.fault import FormatFault
from tapeway.formats.fields import Fields


def recognises(value: Json) -> bool:
    """Whether the first of several lines looks like one of these."""
    return isinstance(value, dict) and (_is_head(value) or {"kind", "request"} <= value.keys())


def read(text: bytes, fresh: CassetteHead) -> StoredCassette:
    """The cassette. Raises FormatFault with line and place."""
    head = fresh
    documents: list[Document] = []
    lines: list[int] = []
    for number, value in _values(text):
        if not documents and _is_head(value):
            fields = Fields(value, ())
            if str(value["version"]) != native.VERSION:
                raise FormatFault(f"must be {native.VERSION}", ("version",), line=number)
            head = extension.head(fields, fresh)
        else:
            documents.append(value)
            lines.append(number)
    root: Document = {
        "version": native.VERSION,
        **extension.of_head(head),
        "interactions": [*documents],
    }
    try:
        # One text for all, so that what is wrong is told as in a cassette file.
        return native.load(dump(root))
    except FormatFault as fault:
        at = fault.pointer[1] if len(fault.pointer) > 1 else None
        line = lines[at] if isinstance(at, int) else 1
        raise FormatFault(fault.reason, fault.pointer, line=line) from None


def write(cassette: StoredCassette) -> bytes:
    """The lines, each interaction numbered by its position."""
    first: Document = {"version": native.VERSION, **extension.of_head(cassette.head)}
    rest = [
        {**native.encode(item), "index": index} for index, item in enumerate(cassette.interactions)
    ]
    return b"".join([dump(each) + b"\n" for each in [first, *rest]])


def _is_head(value: Document) -> bool:
    return "version" in value and "kind" not in value and "interactions" not in value


def _values(text: bytes) -> Iterator[tuple[int, Document]]:
    for number, line in enumerate(text.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            value: Json = parse(line)
        except NotJson as exc:
            raise FormatFault(f"is no JSON: {exc}", line=number) from None
        if not isinstance(value, dict):
            raise FormatFault("must be an object", line=number)
        yield number, value
