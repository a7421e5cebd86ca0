"""Finds secrets inside base64, percent-encoding, JSON's escapes of letters and numbers of letters in XML.

At most three encodings may be nested.

Base64 is recognised by its length alone, in both alphabets, with its slashes escaped as in JSON or
broken into lines. The beginning is not always visible (`/files/c2stcHJv…`), so a run is read from
each of four places. Random octets show no secret, so ids, pictures and sounds do not change.

In base64 only the groups of four characters with a part of the secret are replaced, by as many: the
rest decodes unchanged.
"""

import re
from base64 import b64encode
from binascii import a2b_base64
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from urllib.parse import unquote_to_bytes

from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.spans import Span, merge_spans

Search = Callable[[bytes], Sequence[Span]]

_LINE_BREAK = rb"(?:\r?\n|(?:\\{1,8}r)?\\{1,8}n)[ \t]{0,8}"
"""What may break base64 into lines, also in a string of JSON."""
_BETWEEN = re.compile(rb"\\{1,8}(?=/)|%b" % _LINE_BREAK)
_BREAK = re.compile(_LINE_BREAK)
_STANDARD = bytes.maketrans(b"-_", b"+/")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")

_DEPTH = 3
_LEAST_RUN = 24
"""The least characters of a run: shorter base64 holds no key of a known form."""
_SHORT_RUN = 512
_MOST_ALIGNED = 1024 * 1024
"""The longest run read from four places; a longer run is read from the beginning alone.

A part of a large body begins anywhere in a run.
"""
_LEAST_TEXT = re.compile(rb"[ -~]{12}")
_MAY_SAY = re.compile(rb"(?:[I-Za-f][C-HS-Xi-ny-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589].){3}")
"""Base64 of nine printable characters, which begin a group: twelve have as many among them."""

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_"
# A backslash stands in base64 where JSON escapes a slash or a line break.
_MASK = bytes([65 if octet in _ALPHABET + b"\\" else 32 for octet in range(256)])
_CANDIDATE = b"A" * _LEAST_RUN
_CHARACTERS = rb"[A-Za-z0-9+/_-]"
_RUN = re.compile(
    rb"%b+(?:(?:\\{1,8}(?=/)|%b(?=%b{4}))%b+)*"
    % (_CHARACTERS, _LINE_BREAK, _CHARACTERS, _CHARACTERS)
)
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")
_JSON_ESCAPE = re.compile(rb"\\{1,8}u00[2-7][0-9A-Fa-f]")
"""Of a character in ASCII; each JSON around the JSON doubles the backslash."""
_ENTITY = re.compile(rb"&#(?:[xX]0{0,4}([2-7][0-9A-Fa-f])|0{0,4}([3-9][0-9]|1[01][0-9]|12[0-6]));")
"""Of a character in ASCII, in XML and HTML."""
_ESCAPED = b"+/="
"""What base64 has of the characters that percent-encoding escapes."""
_STRETCH = re.compile(rb'[^\s"]*')
_BLANKS = (b" ", b"\n", b"\r", b"\t", b'"')
_LONGEST_CONTEXT = 4096
"""How far before the first escape its stretch may begin."""


def base64_forms(part: bytes) -> Iterator[bytes]:
    """The base64 of a part of a text: a form for each of three positions.

    Each form is what depends on the part alone. Two zero bytes replace whatever follows the part.
    """
    for offset in range(3):
        encoded = b64encode(bytes(offset) + part + bytes(2))
        yield encoded[(offset * 8 + 5) // 6 : (offset + len(part)) * 8 // 6]


def decodings(text: bytes, depth: int = _DEPTH) -> Iterator[bytes]:
    """Every text that may be encoded inside `text`."""
    for decoded, _, _ in _parts(text):
        yield decoded
        if depth > 1:
            yield from decodings(decoded, depth - 1)


def find(text: bytes, search: Search, depth: int = _DEPTH) -> list[Span]:
    """The finds of `search` in texts encoded inside `text`, as spans of `text`."""
    spans: list[Span] = []
    for decoded, group, placed in _parts(text):
        inner = list(search(decoded))
        if depth > 1:
            inner += find(decoded, search, depth - 1)
        spans += [placed(span) for span in _joined(merge_spans(inner), decoded, group)]
    return spans


def _joined(spans: Sequence[Span], text: bytes, group: int) -> Sequence[Span]:
    """The spans, those joined that share a group of octets, which are encoded together."""
    joined: list[Span] = []
    for span in spans:
        last = joined[-1] if joined else None
        if last is None or last.secret is None or (last.end - 1) // group < span.start // group:
            joined.append(span)
        else:
            secret = Secret(last.secret.label, text[last.start : span.end])
            joined[-1] = Span(last.start, span.end, secret)
    return joined


_Part = tuple[bytes, int, Callable[[Span], Span]]
"""A decoded text, how many octets are encoded together, and where its spans are in the encoding."""


def _parts(text: bytes) -> Iterator[_Part]:
    """Each text encoded inside `text`, with a function from its spans to spans of `text`."""
    yield from _in_base64(text)
    # `find`, since `in` makes an error message, and forgets it, before it searches bytes for bytes.
    if text.find(b"%") >= 0:
        yield from _in_escapes(text, _PERCENT, unquote_to_bytes)
    if text.find(b"\\u00") >= 0:
        yield from _in_escapes(text, _JSON_ESCAPE, _without_json_escapes)
    # A single octet is found ten times as fast as two.
    if text.find(b"&") >= 0 and text.find(b"&#") >= 0:
        yield from _in_escapes(text, _ENTITY, _without_entities)


def _in_base64(text: bytes) -> Iterator[_Part]:
    masked = text.translate(_MASK)
    at = masked.find(_CANDIDATE)
    while at >= 0:
        end = masked.find(b" ", at)
        end = len(text) if end < 0 else end
        # A run may go on behind a line break.
        while at < end and (run := _RUN.search(text, at)) is not None and run.start() < end:
            at = run.end()
            for offset, decoded in _decoded_run(run[0]):
                yield decoded, 3, partial(_place_in_run, run.start(), run[0], offset, decoded)
        at = masked.find(_CANDIDATE, max(at, end))


def _decoded_run(run: bytes) -> Sequence[tuple[int, bytes]]:
    """What a run says, read from different places."""
    if len(run) <= _SHORT_RUN:
        return _decoded_short(run)
    return _decoded(run)


@lru_cache(maxsize=4096)
def _decoded_short(run: bytes) -> Sequence[tuple[int, bytes]]:
    # Requests and events have most of their ids in common, and ids say nothing that can be read.
    if _MAY_SAY.search(_base64_characters(run)) is None:
        return []
    return [decoded for decoded in _decoded(run) if _LEAST_TEXT.search(decoded[1])]


def _decoded(run: bytes) -> list[tuple[int, bytes]]:
    characters = _base64_characters(run)
    if len(characters) < _LEAST_RUN:
        return []
    offsets = range(4) if len(characters) <= _MOST_ALIGNED else (0,)
    return [(offset, _decode_base64(characters[offset:])) for offset in offsets]


def _place_in_run(start: int, run: bytes, offset: int, decoded: bytes, span: Span) -> Span:
    first, last = span.start // 3, (span.end - 1) // 3
    places = _character_places(run)
    begin = places[offset + 4 * first]
    end = places[min(offset + 4 * last + 4, len(places)) - 1] + 1
    layer = _Base64Layer(
        decoded[3 * first : span.start],
        decoded[span.end : 3 * last + 3],
        span.end - span.start,
        run[begin:end],
        url_safe=run.find(b"-") >= 0 or run.find(b"_") >= 0,
    )
    return replace(span, start=start + begin, end=start + end, layers=(*span.layers, layer))


def _in_escapes(
    text: bytes, escape: re.Pattern[bytes], decode: Callable[[bytes], bytes]
) -> Iterator[_Part]:
    """Each stretch without blanks and quotes in which characters are escaped."""
    at = 0
    while (match := escape.search(text, at)) is not None:
        start = max(at, match.start() - _LONGEST_CONTEXT)
        start = max(start, *[text.rfind(blank, start, match.start()) + 1 for blank in _BLANKS])
        stretch = _STRETCH.match(text, match.start())
        at = len(text) if stretch is None else stretch.end()
        encoded = text[start:at]
        yield decode(encoded), 1, partial(_place_in_escapes, start, encoded, escape)


def _place_in_escapes(start: int, encoded: bytes, escape: re.Pattern[bytes], span: Span) -> Span:
    # A character is further on by what each escape before it is longer than a character.
    places: list[int] = []
    longer = [0]
    for match in escape.finditer(encoded):
        places.append(match.start() - longer[-1])
        longer.append(longer[-1] + len(match[0]) - 1)
    first = span.start + longer[bisect_left(places, span.start)]
    end = span.end + longer[bisect_left(places, span.end)]
    # In JSON base64 needs no escape.
    layers = span.layers
    if layers and escape is _PERCENT:
        escapes = (end - first - span.end + span.start) // 2
        layers = (*layers, _PercentLayer(span.end - span.start, escapes=escapes))
    return replace(span, start=start + first, end=start + end, layers=layers)


def _without_json_escapes(text: bytes) -> bytes:
    return _JSON_ESCAPE.sub(lambda match: bytes([int(match[0][-2:], 16)]), text)


def _without_entities(text: bytes) -> bytes:
    return _ENTITY.sub(
        lambda match: bytes([int(match[1], 16) if match[1] else int(match[2])]), text
    )


@dataclass(frozen=True, slots=True)
class _Base64Layer:
    """The octets that share the outer groups of base64 with a secret of some size.

    `written` is the base64 of all these, with the line breaks in it.
    """

    before: bytes
    after: bytes
    size: int
    written: bytes
    url_safe: bool

    def encode(self, text: bytes) -> bytes:
        """The groups with a text in place of the secret, on the same lines."""
        encoded = b64encode(self.before + text + self.after).rstrip(b"=")
        if self.url_safe:
            encoded = encoded.translate(_URL_SAFE)
        if not _has_breaks(self.written):
            return encoded
        pieces: list[bytes] = []
        at = written = 0
        for line_break in _BREAK.finditer(self.written):
            line = _base64_characters(self.written[written : line_break.start()])
            pieces += encoded[at : at + len(line)], line_break[0]
            at += len(line)
            written = line_break.end()
        return b"".join([*pieces, encoded[at:]])

    def decode(self, encoded: bytes) -> bytes | None:
        """The text between these octets, None if different octets stand there."""
        octets = _decode_base64(_base64_characters(encoded))
        end = len(octets) - len(self.after)
        if not octets.startswith(self.before) or octets[end:] != self.after:
            return None
        return octets[len(self.before) : end]


@dataclass(frozen=True, slots=True)
class _PercentLayer:
    """Percent-encoding around base64 of some size, in which so many characters are escaped."""

    size: int
    escapes: int

    def encode(self, text: bytes) -> bytes:
        """The text with as many escapes; a placeholder alone needs none."""
        needed = [at for at, octet in enumerate(text) if octet in _ESCAPED]
        others = [at for at, octet in enumerate(text) if octet not in _ESCAPED]
        escaped = {*needed, *others[: max(0, self.escapes - len(needed))]}
        return b"".join(
            [
                b"%%%02X" % octet if at in escaped else bytes([octet])
                for at, octet in enumerate(text)
            ]
        )

    def decode(self, encoded: bytes) -> bytes | None:
        """The text decoded."""
        return unquote_to_bytes(encoded)


def _decode_base64(characters: bytes) -> bytes:
    """The octets of base64 of either alphabet without padding, as far as they are whole."""
    # One character alone holds no octet.
    rest = len(characters) % 4
    standard = characters.translate(_STANDARD)
    return a2b_base64(standard[:-1] if rest == 1 else standard + b"=" * (-rest % 4))


def _base64_characters(run: bytes) -> bytes:
    """Base64 without the escapes and line breaks in it."""
    return _BETWEEN.sub(b"", run) if _has_breaks(run) else run


def _character_places(run: bytes) -> range | list[int]:
    """Where each character of the base64 is in a run that escapes and line breaks may interrupt."""
    if not _has_breaks(run):
        return range(len(run))
    places: list[int] = []
    at = 0
    for between in _BETWEEN.finditer(run):
        places += range(at, between.start())
        at = between.end()
    return [*places, *range(at, len(run))]


def _has_breaks(run: bytes) -> bool:
    """Whether escapes or line breaks may be in a run of base64."""
    return run.find(b"\\") >= 0 or run.find(b"\n") >= 0
