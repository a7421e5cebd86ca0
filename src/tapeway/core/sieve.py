"""A quick look at which recorded requests could be one that was asked, but for names of links.

Everything else has to be the same, so pieces of it stand in the bytes of such a request. Nothing is
parsed for that: among 10,000 recordings it takes some milliseconds.
"""

import json
import re
from collections.abc import Collection, Iterable

from tapeway.core.model import Interaction
from tapeway.core.renaming import Leaf

ENOUGH = 32
"""So few are not sifted on."""

_PIECE = 24
_PIECES = 8

# What rules or redaction put into a text does not stand in the bytes.
_PUT_THERE = re.compile(r"<[^<>]*>|REDACTED")
# Everybody writes these as they are, but for those who keep to ASCII.
_PLAIN = re.compile(r"[\w .,:;-]+")


def sifted(held: Iterable[Interaction], said: Collection[Leaf]) -> list[Interaction]:
    """Those whose JSON bodies could say the same under the same names, in their order."""
    names = {f'"{each.name}"' for each in said if each.is_link}
    left = list(held)
    # Long ones are quicker to look for, and fewer have them.
    for piece in sorted([*_pieces(said), *sorted(names)], key=len, reverse=True):
        if len(left) <= ENOUGH:
            break
        if piece.isascii():
            left = _with(piece.encode(), left)
        else:
            there = {each.index for spelled in _spellings(piece) for each in _with(spelled, left)}
            left = [each for each in left if each.index in there]
    return left


def _with(octets: bytes, held: list[Interaction]) -> list[Interaction]:
    return [each for each in held if octets in each.request.body]


def _pieces(said: Iterable[Leaf]) -> list[str]:
    """Pieces of all texts that are no links, from all over them, the last ones first."""
    runs = [
        run
        for each in said
        if not each.is_link
        for run in _PLAIN.findall(_PUT_THERE.sub("\n", each.text))
    ]
    cut = [run[at : at + _PIECE] for run in runs for at in range(0, len(run), _PIECE)]
    found = list(dict.fromkeys(cut))[::-1]
    return [found[at * len(found) // _PIECES] for at in range(min(_PIECES, len(found)))]


def _spellings(piece: str) -> tuple[bytes, bytes]:
    return piece.encode(), json.dumps(piece)[1:-1].encode()
