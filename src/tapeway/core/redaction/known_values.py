"""Finds known secret values in a text, in every encoding they may have there.

A key that a service echoes may come back percent-encoded, or escaped as some JSON writer does it:
PHP escapes every slash, Go `<>&`, Gson also `='`, and JSON inside JSON doubles the backslashes. XML
and HTML have entities. It may also be encoded as a whole: in base64, where it begins at any of
three offsets, and in hex.

Each encoded form is a regular expression with a part that is the same in every spelling. A plain
search for these constant parts comes first: nearly always there is none, and it is much cheaper.
"""

import html.entities
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tapeway.core.model.messages import ResponseHead
from tapeway.core.redaction.coded_texts import base64_forms
from tapeway.core.redaction.credentials import (
    MAX_VALUE,
    MIN_VALUE,
    Secret,
    has_special_header,
    response_credentials,
    response_url_credentials,
    searchable,
)
from tapeway.core.redaction.spans import (
    PLACEHOLDER,
    SHORT_PREFIX,
    Span,
    digest_start,
    label_of,
    placeholder_digest,
    written_label,
)

MIN_ENCODED = 12
"""Shorter values are not searched for in base64 and hex: too few characters depend on them alone.
"""

# Not escaped by any of these writers.
_PLAIN = re.compile(r"[A-Za-z0-9._-]+")

# A run of backslashes of any length is one piece, and is never searched for alone.
_PIECES = re.compile(r"\\+|[^\\]")
_PADDING = "(?:%s){0,2}"
_ALPHANUMERIC = re.compile("[A-Za-z0-9]+")
_BASE64 = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")
_BACKSLASH, _SLASH = b"\\/"

_BETWEEN = frozenset(b"\"'`<>{}()[],;&\\=\x7f") | frozenset(range(0x21))
_RUNS = bytes([0x20 if octet in _BETWEEN else octet for octet in range(256)])
_PARTS = [
    re.compile(rb"[%b]{12,}" % signs) for signs in (rb"\w+/-", rb"\w.-", rb"\w-", b"A-Za-z0-9")
]
"""What a value between other characters may consist of."""
_WITH_SIGNS = re.compile(rb"[\w+/.-]{12,}")
"""All of these."""

# Most values do not occur, and compiling takes longer than finding that out.
_compiled = lru_cache(maxsize=1024)(re.compile)


def _expression(pattern: str) -> str:
    """A regular expression that tries one way of matching only, since values may be long."""
    first, *others = map(re.escape, pattern.split("*"))
    between = "".join([f"(?>.*?{part})" for part in others[:-1]])
    return first + between + "".join([f".*{last}" for last in others[-1:]])


class Allowed:
    """Patterns of values and names that are not replaced; `*` stands for anything.

    A pattern is compared with a whole value, and with the label of its placeholder: the name of a
    field, a parameter or a variable, whatever its case, or that of a form of keys.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = tuple(patterns)
        written = "|".join(map(_expression, self._patterns))
        self._is_value = re.compile(written, re.DOTALL).fullmatch
        self._is_label = re.compile(written, re.DOTALL | re.IGNORECASE).fullmatch

    def allows(self, secret: Secret) -> bool:
        """Whether a value stays as it is."""
        if not self._patterns:
            return False
        label = secret.label.removeprefix(SHORT_PREFIX)
        return (
            self._is_value(secret.value.decode("utf-8", "surrogateescape")) is not None
            or self._is_label(label) is not None
            or self._is_label(written_label(label)) is not None
        )

    def without(self, secrets: Iterable[Secret]) -> Iterable[Secret]:
        """The secrets that are to be replaced."""
        if not self._patterns:
            return secrets
        return [secret for secret in secrets if not self.allows(secret)]

    def without_spans(self, spans: Iterable[Span]) -> Iterable[Span]:
        """The places of secrets that are to be replaced."""
        if not self._patterns:
            return spans
        return [span for span in spans if span.secret is None or not self.allows(span.secret)]


NOTHING_ALLOWED = Allowed()


def issued_credentials(head: ResponseHead, allowed: Allowed = NOTHING_ALLOWED) -> list[Secret]:
    """The credentials a response issues in its head."""
    if not has_special_header(head.names):
        return []
    in_urls = allowed.without(response_url_credentials(head.headers))
    return [*response_credentials(head.headers), *in_urls]


class KnownValues:
    """A fixed set of secrets to search for.

    What is `allowed` is not among what names and patterns find beside them.
    """

    def __init__(self, secrets: Iterable[Secret] = (), allowed: Allowed = NOTHING_ALLOWED) -> None:
        self.allowed = allowed
        # A client that follows a recorded link sends a placeholder back: that is no secret.
        by_value = {
            secret.value: secret
            for secret in secrets
            if secret.value and not PLACEHOLDER.fullmatch(secret.value)
        }
        self.secrets = tuple(by_value.values())
        self.constant_parts = tuple(
            [form.constant_part for value in by_value for form in encoded_forms(value)]
        )

    def may_occur_in(self, text: bytes) -> bool:
        """Whether `find` is worth calling: this plain search is many times as fast."""
        # `in` makes an error message, and forgets it, before it searches bytes for bytes.
        return max(map(text.find, self.constant_parts), default=-1) >= 0

    def find(self, text: bytes, start: int = 0) -> Iterator[Span]:
        """Each occurrence of one of them from `start` on, in no order; they may overlap."""
        for secret in self.secrets:
            for form in encoded_forms(secret.value):
                for first, end in form.find(text, start):
                    yield Span(first, end, secret)

    def find_all(self, text: bytes) -> list[Span]:
        """What `find` gives, quickly where there is nothing."""
        return list(self.find(text)) if self.may_occur_in(text) else []


NO_KNOWN_VALUES = KnownValues()


class RecordedPlaceholders:
    """The placeholders in the recordings of a cassette, by which their values are met again.

    A placeholder has a part of a digest of its value. So a process that has never seen the value
    recognises it where it stands between other characters, and nothing but the placeholder is kept.
    """

    def __init__(self, salt: str) -> None:
        self._salt = salt.encode()
        self._labels: dict[bytes, str] = {}
        self._known: Collection[bytes] = ()
        self._sought: dict[bytes, str] | None = {}
        self._taken: tuple[RecordedPlaceholders, int] | None = None

    def add(self, text: bytes) -> None:
        """Add the placeholders in a recorded text."""
        for placeholder in PLACEHOLDER.findall(text):
            if (digest := placeholder_digest(placeholder)) is not None:
                self._labels.setdefault(digest, label_of(placeholder))
                self._sought = None

    def update(self, others: "RecordedPlaceholders") -> None:
        """Add others of the same cassette."""
        # Asked for each recording: nearly always there are no new ones.
        if self._taken != (taken := (others, len(others._labels))):
            self._taken = taken
            self._labels = {**others._labels, **self._labels}
            self._sought = None

    def leave_out(self, values: Iterable[bytes]) -> None:
        """Look for none of these values: they are known."""
        self._known = {digest_start(self._salt, value) for value in values}
        self._sought = None

    @property
    def count(self) -> int:
        """How many there are, of values known and not."""
        return len(self._labels)

    def has_unknown(self, known: Iterable[Secret]) -> bool:
        """Whether the value of any is to be looked for, beside the known ones."""
        digests = {digest_start(self._salt, secret.value) for secret in known}
        return not self._to_seek().keys() <= digests

    def _to_seek(self) -> Mapping[bytes, str]:
        if self._sought is None:
            self._sought = {
                digest: label for digest, label in self._labels.items() if digest not in self._known
            }
        return self._sought

    def find(self, texts: Iterable[bytes]) -> list[Secret]:
        """The values of these placeholders in the texts."""
        if not (sought := self._to_seek()):
            return []
        runs = {
            run
            for text in texts
            for run in text.translate(_RUNS).split()
            if MIN_VALUE <= len(run) <= MAX_VALUE
        }
        return [
            secret
            for run in sorted(runs)
            for digest, value in _digests_in(self._salt, run)
            if digest in sought
            for secret in searchable(sought[digest], value)
        ]


NO_PLACEHOLDERS = RecordedPlaceholders("")


@lru_cache(maxsize=4096)
def _digests_in(salt: bytes, run: bytes) -> Sequence[tuple[bytes, bytes]]:
    """The digest of what may be a value in a run of characters: of all, and of parts with fewer signs.

    Remembered, since the requests of a conversation repeat each other.
    """
    # The padding of base64 is cut off with the signs between runs.
    values = {run, run + b"=", run + b"=="}
    if not run.isalnum():
        values.add(run.rstrip(b".:!?"))
        for signs in _WITH_SIGNS.findall(run):
            for part in _PARTS:
                values.update(part.findall(signs))
    # A length that looks like a character, as in protobuf, with or without the tag before it.
    for at in range(2):
        if MIN_VALUE <= run[at] < len(run) - at:
            values.add(run[at + 1 : at + 1 + run[at]])
    return [(digest_start(salt, value), value) for value in values if _is_text(value)]


def _is_text(octets: bytes) -> bool:
    """Whether octets may be a value: most runs between the signs of a binary body are no text."""
    if octets.isascii():
        return True
    try:
        octets.decode()
    except UnicodeDecodeError:
        return False
    return True


class PiecewiseRecall:
    """Finds the values of recorded placeholders in a text of any length, piece by piece."""

    def __init__(self, recorded: RecordedPlaceholders, known: Iterable[Secret]) -> None:
        """Nothing is read where all values are known."""
        self._recorded = recorded if recorded.has_unknown(known) else None
        self._rest = b""

    def feed(self, piece: bytes) -> list[Secret]:
        """Add a piece; returns what is found in the text that is complete now."""
        if self._recorded is None:
            return []
        text = self._rest + piece
        # The last run may go on; of one that is too long for a value the end stays too long.
        run = text.translate(_RUNS).rpartition(b" ")[2]
        end = len(text) - min(len(run), MAX_VALUE + 1)
        self._rest = text[end:]
        return self._recorded.find([text[:end]])

    def finish(self) -> list[Secret]:
        """What is found in the rest."""
        return [] if self._recorded is None else self._recorded.find([self._rest])


NO_RECALL = PiecewiseRecall(NO_PLACEHOLDERS, ())


@dataclass(frozen=True, slots=True)
class EncodedForm:
    """An encoded form of a value: a constant part, and a pattern of the whole.

    In base64 the first character may contain bits of the preceding text; with `shares_first` this
    character is replaced too, since it depends on both.
    """

    constant_part: bytes
    pattern: bytes
    shares_first: bool = False

    def find(self, text: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
        """The occurrences of the value in this form, from `start` on."""
        if self.constant_part in text:
            for match in _compiled(self.pattern).finditer(text, start):
                yield self._start(text, match.start()), match.end()

    def _start(self, text: bytes, start: int) -> int:
        if not self.shares_first or start == 0 or text[start - 1] not in _BASE64:
            return start
        before = start - 1
        while before and text[before - 1] == _BACKSLASH:
            # Of an escaped slash; any other escape is none of base64's.
            if text[start - 1] != _SLASH:
                return start
            before -= 1
        return before


@lru_cache(maxsize=1024)
def encoded_forms(value: bytes) -> tuple[EncodedForm, ...]:
    """Every form in which the value is searched for."""
    forms = [EncodedForm(constant_part(value), value_pattern(value))]
    if len(value) >= MIN_ENCODED:
        for offset, own in enumerate(base64_forms(value)):
            shares_last = (offset + len(value)) % 3 != 0
            forms.append(
                _base64_form(own.decode(), shares_first=offset > 0, shares_last=shares_last)
            )
        digits = value.hex().encode()
        forms += [EncodedForm(spelling, spelling) for spelling in (digits, digits.upper())]
    return tuple(forms)


def value_pattern(value: bytes) -> bytes:
    """A regular expression without groups for the value, each character plain or escaped."""
    text = value.decode("utf-8", "surrogateescape")
    bare = text.rstrip("=")
    pattern = "".join([_piece_pattern(piece) for piece in _PIECES.findall(bare)])
    if len(bare) < len(text):
        # The padding of base64 is often left off.
        pattern += _PADDING % _piece_pattern("=")
    if value.isdigit():
        # As part of a longer number it would be another value.
        pattern = rf"(?<![0-9.]){pattern}(?![0-9]|\.[0-9]|[eE][0-9+-])"
    return pattern.encode("utf-8", "surrogateescape")


def constant_part(value: bytes) -> bytes:
    """The longest piece of the value that no escaping changes."""
    pieces = _PLAIN.findall(value.decode("utf-8", "surrogateescape"))
    return max(pieces, key=len, default="").encode()


def _piece_pattern(piece: str) -> str:
    if _PLAIN.fullmatch(piece):
        return re.escape(piece)
    # A plus may mean a space or, if somebody forgot to encode it, itself.
    characters = (" ", "+") if piece in " +" else (piece,)
    return (
        f"(?:{'|'.join([form for character in characters for form in _escaped_forms(character)])})"
    )


def _escaped_forms(piece: str) -> tuple[str, ...]:
    # All counts are bounded: a long run of backslashes must not be searched from each of them.
    length = len(piece)
    itself = rf"\\{{0,8}}{re.escape(piece)}"
    if piece.startswith("\\"):
        itself = rf"\\{{{length},{8 * length}}}"
    octets = piece.encode("utf-8", "surrogateescape")
    percent_encoded = "".join([f"%(?:25){{0,4}}{_hex(f'{octet:02x}')}" for octet in octets])
    if "\ud800" <= piece <= "\udfff":
        return itself, percent_encoded
    units = re.findall("....", piece.encode("utf-16-be").hex())
    json_escape = "".join([rf"\\{{1,8}}u{_hex(unit)}" for unit in units])
    if piece.startswith("\\"):
        return itself, percent_encoded, json_escape
    return itself, percent_encoded, json_escape, _entity(piece)


def _entity(character: str) -> str:
    code = ord(character)
    name = "apos" if character == "'" else html.entities.codepoint2name.get(code, f"#{code}")
    return f"&(?:{name}|#0{{0,4}}{code}|#[xX]0{{0,4}}{_hex(f'{code:x}')});"


def _base64_form(own: str, *, shares_first: bool, shares_last: bool) -> EncodedForm:
    pattern = "".join([_SIXTY_THIRD.get(character, character) for character in own])
    if shares_last:
        pattern += _SHARED_LAST
    pattern += _PADDING % _piece_pattern("=")
    part = max(_ALPHANUMERIC.findall(own), key=len, default="")
    return EncodedForm(part.encode(), pattern.encode(), shares_first=shares_first)


def _hex(digits: str) -> str:
    return "".join([f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits])


# Both alphabets, the standard one and that of URLs, with each character plain or escaped.
_SIXTY_THIRD = {"+": f"(?:-|{_piece_pattern('+')})", "/": f"(?:_|{_piece_pattern('/')})"}
_SHARED_LAST = rf"(?:[A-Za-z0-9_-]|{'|'.join([_SIXTY_THIRD[character] for character in '+/'])})"
