"""The mark of a cassette that holds the beginning of another one, until it holds all of it."""

from dataclasses import replace

from tapeway.core.model.cassette import CassetteHead

_KEY = "unfinished_conversion"


def marked(head: CassetteHead, by: str | None = None) -> CassetteHead:
    """The head of a cassette on its way; `by` tells the conversions into one cassette apart."""
    return replace(head, meta={**head.meta, _KEY: by or True})


def is_marked(head: CassetteHead) -> bool:
    """Whether a conversion into this cassette was begun and not brought to its end."""
    return _KEY in head.meta


def unmarked(head: CassetteHead) -> CassetteHead:
    """The head it will have in the end."""
    return replace(head, meta={name: value for name, value in head.meta.items() if name != _KEY})
