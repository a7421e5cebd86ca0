"""Take credentials out of what is stored and matched.

Both sides are redacted the same way before the key is taken: when recording, with the recording
run's credentials; when replaying, with whatever the replaying run uses. A placeholder names the
place and carries a short HMAC under the cassette's own salt, so that one secret has one placeholder
within a cassette and none can be looked up in a table of hashes.

A stream of any length with its secrets exchanged, looked at through a window of bounded size.
"""

import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from urllib.parse import quote, unquote, unquote_to_bytes

from tapeway.core.http.content_codings import readable_request
from tapeway.core.http.headers import find_header, request_fields
from tapeway.core.http.routing import without_userinfo
from tapeway.core.model.messages import CredentialHeaders, Headers, Request, Response, ResponseChunk
from tapeway.core.redaction import body_fields, credentials, patterns, streamed_secrets
from tapeway.core.redaction.credentials import (
    LINK_URL,
    MIN_VALUE,
    URL_HEADERS,
    Secret,
    is_credential_header,
    is_credential_parameter,
)
from tapeway.core.redaction.known_values import NO_KNOWN_VALUES, KnownValues, json_safe_spans
from tapeway.core.redaction.patterns import Prefilter, secret_prefilter
from tapeway.core.redaction.spans import (
    PLACEHOLDER,
    SHORT_PREFIX,
    Span,
    merge_spans,
    placeholder,
    replace_spans,
)
from tapeway.core.streams import aws_frames

_BEHIND = 64
"""What has already gone out and still tells whether a secret may begin behind it."""
_UNDECODED = re.compile("[\udc80-\udcff]")
_PARAMETER = re.compile(r"(?<=[?&#])([^?=&#]*)=([^&#]+)")
_LINES = b"application/x-ndjson"

# `%25252525xx` for each of four octets, or a `\u00xx` behind eight backslashes.
_LONGEST_CHARACTER = 48

# Each is looked for in the whole body: a list of users with their passwords is not gone through
# as many times as it has users.
_MOST_LEARNT = 64


class StreamRedactor:
    """Takes pieces of a text and gives pieces back, at most `bound` bytes and one piece later.

    The result is that of the whole text at once, as long as no secret is longer than the bound.
    """

    def __init__(
        self,
        find_header: Callable[[bytes, int], Sequence[Span]],
        stand_in: Callable[[Span], bytes],
        bound: int,
    ) -> None:
        self._find, self._stand_in, self._bound = find_header, stand_in, bound + _BEHIND
        self._held = b""
        self._gone = 0
        self._base = 0
        self.replaced: list[tuple[int, int, int]] = []
        """Of each secret exchanged: where it began and ended, and how much stands for it."""

    def feed(self, piece: bytes) -> bytes:
        """What is certain after this piece; often nothing."""
        self._held += piece
        limit = len(self._held) - self._bound
        # Only from twice the bound on, so that small pieces are not searched again and again.
        return self._let_out(limit) if limit - self._gone >= self._bound else b""

    def finish(self) -> bytes:
        """The rest."""
        return self._let_out(len(self._held))

    def _let_out(self, cut: int) -> bytes:
        spans = merge_spans(self._find(self._held, self._gone))
        for span in spans:
            if span.start < cut < span.end:
                cut = span.start
        settled = [(span, self._stand_in(span)) for span in spans if span.end <= cut]
        for span, instead in settled:
            self.replaced.append((self._base + span.start, self._base + span.end, len(instead)))
        [mended] = replace_spans(self._held[:cut], [cut], settled)
        out = mended[self._gone :]
        behind = max(0, cut - _BEHIND)
        self._held, self._gone = self._held[behind:], cut - behind
        self._base += behind
        return out


class Redactor:
    """Replaces known secrets, those that their shape or their field's name gives away, and every
    credential in a place known to hold one.

    `known` are the process's own, the same for every exchange; `secrets` those of this one.
    """

    def __init__(
        self, salt: str, secrets: Iterable[Secret] = (), known: KnownValues = NO_KNOWN_VALUES
    ) -> None:
        self._salt = salt.encode()
        self._known = known
        self._shown = KnownValues(secrets)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The values it replaces wherever they stand."""
        return (*self._known.secrets, *self._shown.secrets)

    def request(self, request: Request, traced: CredentialHeaders = ()) -> Request:
        """The request as a cassette may hold it: allowed fields only, no credential anywhere.

        `traced` is the trace of the credentials it carried, where it has none yet.
        """
        header = request_fields(request.headers)
        if header.content_encoding:
            # Inside its coding it could not be mended.
            request = readable_request(request)
            header = request_fields(request.headers)
        shown = self._shows(
            _together(
                request.target.encode("utf-8", "surrogateescape"), header.stored, request.body
            )
        )
        named = self._named(request.body, header.content_type, shown=shown, in_response=False)
        redactor = self._knowing(named)
        return Request(
            request.route,
            request.method,
            redactor._target(request.target, shown=shown or bool(named)),
            redactor._stored(header.stored) if shown or named else header.stored,
            redactor._body(request.body, named) if shown or named else request.body,
            without_userinfo(request.base) if "@" in request.base else request.base,
            file=request.file,
            credentials=traced or request.credentials,
        )

    def response(self, response: Response) -> Response:
        """The answer as a cassette may hold it, its chunk boundaries where they were.

        Nothing is seen inside a content coding: take that off first.
        """
        content_type, body = find_header(response.headers, b"content-type") or b"", response.body
        if content_type.lower().startswith(aws_frames.MEDIA_TYPE) and body:
            return self._framed(response, body)
        reason = response.head.reason.encode("utf-8", "surrogateescape")
        shown = self._shows(_together(reason, response.headers, body))
        named = self._named(body, content_type, shown=shown, in_response=True)
        redactor = self._knowing(named)
        named += redactor._told_bit_by_bit(body, content_type)
        if shown:
            reason = redactor.value(reason)
        head = replace(
            response.head,
            reason=reason.decode("utf-8", "surrogateescape"),
            headers=redactor._fields(response.headers, shown=shown or bool(named)),
        )
        if not shown and not named:
            return replace(response, head=head)
        return replace(response, head=head, chunks=redactor._chunks(body, response.chunks, named))

    def message(self, data: bytes, *, in_response: bool) -> bytes:
        """One message or frame of a socket, text or binary, without its secrets.

        `answer` tells the upstream's from the client's: names mean more in what a client sends.
        """
        if not self._shows(data):
            return data
        named = self._named(data, b"", shown=True, in_response=in_response)
        return self._knowing(named)._body(data, named)

    def stream(self) -> StreamRedactor:
        """The same for a body of any length in pieces: known values and shapes, no names.

        Digits are exchanged as they are, since no one can tell what the rest of the line was.
        """
        longest = max([len(secret.value) for secret in self.secrets], default=0)
        return StreamRedactor(
            lambda data, start: list(self._found(data, start)),
            self._stand_in,
            max(patterns.MAX_LENGTH, _LONGEST_CHARACTER * longest),
        )

    def body_secrets(self, request: Request) -> list[Secret]:
        """The secrets that a request's body shows by the names of its fields."""
        content_type = request_fields(request.headers).content_type
        body = readable_request(request).body
        shown = self._glance.search(body) is not None
        return _long(self._named(body, content_type, shown=shown, in_response=False))

    def target(self, target: str) -> str:
        """A raw target or URL without credential parameters or secret values.

        Octets that are no UTF-8 come back percent-encoded, so that it can be written anywhere.
        """
        return self._target(target, shown=self._shows(target.encode("utf-8", "surrogateescape")))

    def value(self, data: bytes) -> bytes:
        """Bytes with every known secret replaced, and every one of a known shape."""
        return self._mended(data, self._found(data)) if self._shows(data) else data

    def placeholder(self, label: str, value: bytes) -> bytes:
        """What stands for a secret in this cassette."""
        return placeholder(label, hmac.digest(self._salt, value, "sha256"))

    @cached_property
    def _glance(self) -> Prefilter:
        return secret_prefilter(self._known.constant_parts)

    def _shows(self, data: bytes) -> bool:
        """Whether it is worth looking closer."""
        return self._shown.may_occur_in(data) or self._glance.search(data) is not None

    def _found(self, data: bytes, start: int = 0) -> Iterable[Span]:
        return chain(
            self._known.find(data, start),
            self._shown.find(data, start),
            patterns.find_patterns(data, start),
            patterns.find_url_credentials(data, start),
        )

    def _named(
        self, body: bytes, content_type: bytes, *, shown: bool, in_response: bool
    ) -> list[Span]:
        if body and (shown or body_fields.reads_whole(content_type)):
            return body_fields.find(body, content_type, in_response=in_response)
        return []

    def _knowing(self, named: Sequence[Span]) -> "Redactor":
        more = _long(named)
        if not more:
            return self
        return Redactor(self._salt.decode(), (*self._shown.secrets, *more), self._known)

    def _body(self, body: bytes, named: Sequence[Span]) -> bytes:
        return self._mended(body, [*named, *json_safe_spans(body, self._found(body))])

    def _mended(self, data: bytes, spans: Iterable[Span]) -> bytes:
        found = [(span, self._stand_in(span)) for span in merge_spans(spans)]
        return replace_spans(data, [len(data)], found)[0] if found else data

    def _stand_in(self, span: Span) -> bytes:
        if span.secret is None:
            return b""
        placeholder = self.placeholder(span.secret.label, span.secret.value)
        return span.quote + placeholder + span.quote

    def _told_bit_by_bit(self, body: bytes, content_type: bytes) -> list[Span]:
        def search(text: bytes) -> list[Span]:
            if not self._shows(text):
                return []
            named = body_fields.find(text, b"", in_response=True)
            return [*named, *self._found(text)]

        return list(streamed_secrets.find(body, content_type, search))

    def _target(self, target: str, *, shown: bool) -> str:
        if shown:
            octets = target.encode("utf-8", "surrogateescape")
            target = self._mended(octets, self._found(octets)).decode("utf-8", "surrogateescape")
        if not target.isascii():
            target = _UNDECODED.sub(lambda odd: quote(odd[0], errors="surrogateescape"), target)
        return _PARAMETER.sub(self._parameter, target) if "=" in target else target

    def _framed(self, response: Response, body: bytes) -> Response:
        frames = aws_frames.parse_frames(body)
        lines = [ResponseChunk(frame.text + b"\n", 0.0) for frame in frames]
        headers = ((b"content-type", _LINES), *response.headers)
        opened = replace(
            response, head=replace(response.head, headers=headers), chunks=tuple(lines)
        )
        stored = self.response(opened)
        texts = [chunk.data.removesuffix(b"\n") for chunk in stored.chunks]
        lengths = [len(chunk.data) for chunk in response.chunks]
        pieces = streamed_secrets.replace_frame_texts(body, frames, texts, lengths)
        chunks = [
            replace(chunk, data=data) for chunk, data in zip(response.chunks, pieces, strict=True)
        ]
        head = replace(stored.head, headers=stored.headers[1:])
        return replace(stored, head=head, chunks=tuple(chunks))

    def _parameter(self, match: re.Match[str]) -> str:
        name, value = match[1], match[2]
        plain = unquote(name)
        if not is_credential_parameter(plain, match.string) or PLACEHOLDER.fullmatch(
            value.encode()
        ):
            return match[0]
        plain = plain.lower()
        octets = unquote_to_bytes(value)
        label = plain if len(octets) >= MIN_VALUE else f"{SHORT_PREFIX}{plain}"
        return f"{name}={self.placeholder(label, octets).decode()}"

    def _stored(self, headers: Headers) -> Headers:
        return tuple([(name, self.value(value)) for name, value in headers])

    def _fields(self, headers: Headers, *, shown: bool) -> Headers:
        return tuple([(name, self._field(name.lower(), value, shown)) for name, value in headers])

    def _field(self, name: bytes, value: bytes, shown: bool) -> bytes:
        if shown:
            value = self.value(value)
        if name == b"set-cookie":
            return self._set_cookie(value)
        if is_credential_header(name):
            return self._whole(name.decode("latin-1"), value)
        if name in URL_HEADERS:
            return self._url(value)
        if name == b"link":
            return LINK_URL.sub(lambda url: self._url(url[0]), value)
        return value

    def _url(self, url: bytes) -> bytes:
        return self.target(url.decode("latin-1")).encode("latin-1")

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

    def _chunks(
        self, whole: bytes, chunks: Sequence[ResponseChunk], named: Sequence[Span]
    ) -> tuple[ResponseChunk, ...]:
        spans = merge_spans([*named, *json_safe_spans(whole, self._found(whole))])
        found = [(span, self._stand_in(span)) for span in spans]
        pieces = replace_spans(whole, [len(chunk.data) for chunk in chunks], found)
        return tuple(
            [replace(chunk, data=data) for chunk, data in zip(chunks, pieces, strict=True)]
        )


def _together(first: bytes, headers: Headers, body: bytes) -> bytes:
    return b"\n".join([first, *[value for _, value in headers], body])


def _long(named: Sequence[Span]) -> list[Secret]:
    found: dict[Secret, None] = {}
    for span in named:
        if span.secret is not None and len(found) < _MOST_LEARNT:
            found |= dict.fromkeys(
                credentials.value_credentials(span.secret.label, span.secret.value)
            )
    return list(found)
