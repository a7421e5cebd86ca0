"""Take credentials out of what is stored and matched.

Both sides are redacted the same way before the key is taken: when recording, with the recording
run's credentials; when replaying, with whatever the replaying run uses. A placeholder names the
place and carries a short HMAC under the cassette's own salt, so that one secret has one placeholder
within a cassette and none can be looked up in a table of hashes.
"""

import hashlib
import hmac
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from urllib.parse import quote, unquote, unquote_to_bytes

from tapeway.core import credentials, disguises, fields
from tapeway.core.credentials import (
    MIN_VALUE,
    PARAMETERS,
    URL_HEADERS,
    Secret,
    is_credential_header,
)
from tapeway.core.model import Headers, Request, Response, ResponseChunk
from tapeway.core.readable import readable_request
from tapeway.core.routing import without_userinfo

PLACEHOLDER = re.compile(rb"REDACTED\.[A-Za-z0-9_-]+\.[0-9a-f]{8}")
"""Letters, digits, dots, dashes: safe in JSON, URLs, header fields and cookies alike."""

SHORT = "short"
"""Marks the placeholder of a value too short to be a key for certain: it still tells requests
apart in the match key, where a long one is left out."""

_ODD = re.compile(r"[^A-Za-z0-9_-]+")
_UNDECODED = re.compile("[\udc80-\udcff]")
_PARAMETER = re.compile(r"(?<=[?&#])([^=&#]*)=([^&#]+)")
_BEHIND_NUMBER = re.compile(rb"\s*(?:[,\]}]|\Z)")
_ESCAPED = re.compile(rb"\\.")


class Redactor:
    """Replaces a fixed set of secrets, and every credential in a place known to hold one."""

    def __init__(self, salt: str, secrets: Iterable[Secret] = ()) -> None:
        self._salt = salt.encode()
        # A client that follows a recorded link sends a placeholder back: that is no secret.
        by_value = {
            secret.value: secret
            for secret in secrets
            if secret.value and not PLACEHOLDER.fullmatch(secret.value)
        }
        # Longest first, so that a secret holding another is replaced whole.
        self._secrets = sorted(by_value.values(), key=lambda secret: -len(secret.value))
        self._cores = [disguises.core(secret.value) for secret in self._secrets]

    def request(self, request: Request) -> Request:
        """The request as a cassette may hold it: allowed fields only, no credential anywhere."""
        header = fields.read(request.headers)
        if header.content_encoding:
            # Inside its coding it could not be mended.
            request = readable_request(request)
            header = fields.read(request.headers)
        return Request(
            request.route,
            request.method,
            self.target(request.target),
            self._stored(header.stored),
            self._body(request.body),
            without_userinfo(request.base) if "@" in request.base else request.base,
            file=request.file,
            credentials=request.credentials,
        )

    def response(self, response: Response) -> Response:
        """The answer as a cassette may hold it, its chunk boundaries where they were.

        Nothing is seen inside a content coding: take that off first.
        """
        reason = self.value(response.head.reason.encode("utf-8", "surrogateescape"))
        head = replace(
            response.head,
            reason=reason.decode("utf-8", "surrogateescape"),
            headers=self._fields(response.headers),
        )
        return replace(response, head=head, chunks=self._chunks(response.chunks))

    def target(self, target: str) -> str:
        """A raw target or URL without credential parameters or secret values.

        Octets that are no UTF-8 come back percent-encoded, so that it can be written anywhere.
        """
        if self._shows(octets := target.encode("utf-8", "surrogateescape")):
            octets = self.value(octets)
            target = octets.decode("utf-8", "surrogateescape")
        if not target.isascii():
            target = _UNDECODED.sub(lambda odd: quote(odd[0], errors="surrogateescape"), target)
        return _PARAMETER.sub(self._parameter, target) if "=" in target else target

    def value(self, data: bytes) -> bytes:
        """Bytes with every known secret replaced."""
        return self._finder.sub(self._stand_in, data) if self._shows(data) else data

    def placeholder(self, label: str, value: bytes) -> bytes:
        """What stands for a secret in this cassette."""
        mark = hmac.new(self._salt, value, hashlib.sha256).hexdigest()[:8]
        return f"REDACTED.{_ODD.sub('-', label) or 'value'}.{mark}".encode()

    @cached_property
    def _finder(self) -> re.Pattern[bytes]:
        # Without groups: they would keep the search from skipping to where a secret can begin.
        return re.compile(b"|".join([disguises.pattern(each.value) for each in self._secrets]))

    def _shows(self, data: bytes) -> bool:
        """Whether it is worth looking closer: a plain search is many times as fast."""
        for core in self._cores:  # noqa: SIM110 - any() costs five times the search
            if core in data:
                return True
        return False

    def _body(self, body: bytes) -> bytes:
        return self._finder.sub(self._stand_in_body, body) if self._shows(body) else body

    def _stand_in(self, match: re.Match[bytes]) -> bytes:
        secret = self._found(match[0])
        return self.placeholder(secret.label, secret.value)

    def _stand_in_body(self, match: re.Match[bytes]) -> bytes:
        placeholder = self._stand_in(match)
        if not match[0].isdigit() or (before := _before_number(match)) is None:
            return placeholder
        # JSON must stay JSON; and behind a minus it is another number.
        return match[0] if before.endswith(b"-") else b'"%b"' % placeholder

    def _found(self, text: bytes) -> Secret:
        for secret in self._secrets:
            if re.fullmatch(disguises.pattern(secret.value), text):
                return secret
        raise AssertionError("the finder is made of these secrets")

    def _parameter(self, match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        plain = unquote(name).lower()
        if plain not in PARAMETERS or PLACEHOLDER.fullmatch(value.encode()):
            return match[0]
        octets = unquote_to_bytes(value)
        label = plain if len(octets) >= MIN_VALUE else f"{SHORT}-{plain}"
        return f"{name}={self.placeholder(label, octets).decode()}"

    def _stored(self, headers: Headers) -> Headers:
        for _, value in headers:
            if self._shows(value):
                return tuple([(name, self.value(value)) for name, value in headers])
        return headers

    def _fields(self, headers: Headers) -> Headers:
        return tuple([(name, self._field(name.lower(), value)) for name, value in headers])

    def _field(self, name: bytes, value: bytes) -> bytes:
        value = self.value(value)
        if name == b"set-cookie":
            return self._set_cookie(value)
        if is_credential_header(name):
            return self._whole(name.decode("latin-1"), value)
        if name in URL_HEADERS:
            return self.target(value.decode("latin-1")).encode("latin-1")
        return value

    def _set_cookie(self, value: bytes) -> bytes:
        pair, semicolon, attributes = value.partition(b";")
        name, equals, content = pair.partition(b"=")
        content = content.strip(b' "')
        if len(content) < credentials.MIN_COOKIE or PLACEHOLDER.fullmatch(content):
            return value
        placeholder = self.placeholder(name.strip().decode("latin-1"), content)
        return name + equals + placeholder + semicolon + attributes

    def _whole(self, label: str, value: bytes) -> bytes:
        if not value or PLACEHOLDER.fullmatch(value):
            return value
        return self.placeholder(label, value)

    def _chunks(self, chunks: Sequence[ResponseChunk]) -> tuple[ResponseChunk, ...]:
        whole = b"".join([chunk.data for chunk in chunks]) if self._secrets else b""
        if not self._shows(whole):
            return tuple(chunks)
        found = [(each.span(), self._stand_in_body(each)) for each in self._finder.finditer(whole)]
        pieces = _recut(whole, [len(chunk.data) for chunk in chunks], found)
        return tuple(
            [replace(chunk, data=data) for chunk, data in zip(chunks, pieces, strict=True)]
        )


def _recut(
    whole: bytes, lengths: Sequence[int], found: Sequence[tuple[tuple[int, int], bytes]]
) -> list[bytes]:
    """Replace over chunk borders: what a border cut in two goes to the chunk it began in."""
    borders = deque(accumulate(lengths))
    moved: list[int] = []
    pieces: list[bytes] = []
    at = size = 0
    for (start, end), instead in [*found, ((len(whole), len(whole)), b"")]:
        while borders and borders[0] <= start:
            moved.append(size + borders.popleft() - at)
        pieces += whole[at:start], instead
        size += start - at + len(instead)
        at = end
        while borders and borders[0] < end:
            borders.popleft()
            moved.append(size)
    mended = b"".join(pieces)
    return [mended[start:end] for start, end in pairwise([0, *moved])]


def _before_number(match: re.Match[bytes]) -> bytes | None:
    """What stands before digits on their line, or None where they are no number of JSON's."""
    text, start = match.string, match.start()
    before = text[text.rfind(b"\n", 0, start) + 1 : start]
    if before.rstrip(b"- \t\r")[-1:] not in (b"", b":", b",", b"["):
        return None
    # A string of JSON's ends on its line.
    inside_string = _ESCAPED.sub(b"", before).count(b'"') % 2
    return None if inside_string or not _BEHIND_NUMBER.match(text, match.end()) else before
