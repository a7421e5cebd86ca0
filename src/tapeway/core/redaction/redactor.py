"""Replaces credentials in everything that is stored and shown.

A placeholder names the place and has a short HMAC under the cassette's own salt. So one secret has
one placeholder within a cassette, and none can be looked up in a table of hashes.

A secret is found in one of five ways: by its place (a header field, a parameter, a cookie), by the
name of its field in a body, by its known value, by its pattern, or by what prose or code assigns to
a name. A prefilter first decides whether a text may contain any, since nearly none does.

Whatever gets a placeholder in one place teaches its value, if the value is opaque: the rest of the
message is searched again for the taught values.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate, chain, pairwise
from typing import NamedTuple
from urllib.parse import quote, unquote_to_bytes

from tapeway.core.automata import Prefilter
from tapeway.core.http.content_codings import leniently_readable, readable_request
from tapeway.core.http.headers import stored_request_headers
from tapeway.core.http.location import without_userinfo
from tapeway.core.model.messages import (
    CredentialHeaders,
    Headers,
    Request,
    Response,
    ResponseHead,
)
from tapeway.core.model.request_fields import stored_fields
from tapeway.core.redaction import body_fields, coded_texts, framed_keys, patterns
from tapeway.core.redaction.assignments import LONGEST_CONTEXT
from tapeway.core.redaction.binary_content import binary_places, names_text
from tapeway.core.redaction.credentials import (
    LINK_URL,
    MIN_COOKIE,
    SET_COOKIE,
    URL_HEADERS,
    Secret,
    credential_parameters,
    has_special_header,
    holds_secret,
    is_credential_header,
    is_special_header,
    own_parameters,
    value_credentials,
)
from tapeway.core.redaction.known_values import (
    NO_KNOWN_VALUES,
    NO_PLACEHOLDERS,
    KnownValues,
    PiecewiseRecall,
    RecordedPlaceholders,
    issued_credentials,
)
from tapeway.core.redaction.patterns import secret_prefilter
from tapeway.core.redaction.spans import (
    PLACEHOLDER,
    Span,
    digest_start,
    json_safe_spans,
    label_for,
    merge_spans,
    move_chunk_ends,
    moved_ends,
    placeholder_digest,
    replace_spans,
    replacement,
    secret_placeholder,
    shown_label,
)
from tapeway.core.streams import aws_frames
from tapeway.core.streams.aws_frames import AwsFrame
from tapeway.core.streams.streamed_texts import Piece, StreamedTexts, may_be_stream
from tapeway.core.text import Utf16Text, has_controls, read_utf16

_UNDECODED = re.compile("[\udc80-\udcff]")
_JSON_LINES = b"application/x-ndjson"

# `%25252525xx` for each of four octets, or a `\u00xx` behind eight backslashes.
_LONGEST_CHARACTER = 48

# Each is looked for in the whole body: a list of users with their passwords is not gone through
# as many times as it has users.
_MOST_LEARNED = 64

_MOST_NAMED = 1024
"""Secrets of a large body that are remembered, and whose placeholders its recording names."""


class Redactor:
    """Replaces known values, secrets recognised by pattern or field name, and every credential in a
    known place.

    `known` are the process's own values, the same for every exchange; `secrets` those of this one.
    Values of the `recorded` placeholders teach wherever they stand. Unless it `keeps_lengths`, its placeholders in octets that are no text are those of recordings
    by earlier versions.
    """

    def __init__(
        self,
        salt: str,
        secrets: Iterable[Secret] = (),
        known: KnownValues = NO_KNOWN_VALUES,
        recorded: RecordedPlaceholders = NO_PLACEHOLDERS,
        *,
        keeps_lengths: bool = True,
    ) -> None:
        self._salt = salt.encode()
        self._recorded = recorded
        self._keeps_lengths = keeps_lengths
        self._known = known
        self._of_exchange = KnownValues(secrets)

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """The values replaced in every place."""
        return (*self._known.secrets, *self._of_exchange.secrets)

    @property
    def of_earlier_versions(self) -> "Redactor":
        """A redactor whose placeholders are those of recordings by earlier versions."""
        return Redactor(
            *(self._salt.decode(), self._of_exchange.secrets, self._known, self._recorded),
            keeps_lengths=False,
        )

    def request(self, request: Request, credentials: CredentialHeaders = ()) -> Request:
        """The request as it may be stored: allowed fields only, no credential anywhere.

        `credentials` are the headers that carried one, with placeholders, if the request does not
        have them itself.
        """
        return self.request_and_secrets(request, credentials)[0]

    def request_and_secrets(
        self, request: Request, credentials: CredentialHeaders = ()
    ) -> tuple[Request, list[Secret]]:
        """The redacted request, and the secrets that its target, stored fields and body taught."""
        header = request.fields
        if header.content_encoding:
            # Nothing can be replaced inside a coded body.
            plain = readable_request(request)
            if plain is not request:
                request = replace(plain, coding=header.content_encoding)
                header = request.fields
        wide = read_utf16(request.body, header.content_type)
        text = request.body if wide is None else wide.text
        fields = stored_request_headers(request.headers)
        shown = text if wide is None else text + b"\n" + request.body
        target = request.target.encode("utf-8", "surrogateescape")
        head = _searched_text(target, fields)
        suspect = self._is_suspect(head + b"\n" + shown) or _may_have_framed_keys(
            text, header.content_type
        )
        own = own_parameters(request)
        found = self._found_in(
            request.body,
            header.content_type,
            head,
            wide=wide,
            suspect=suspect,
            in_response=False,
            own=own,
        )
        redactor = found.redactor
        suspect = suspect or bool(found.spans) or redactor is not self
        header = stored_fields(redactor._stored(fields) if suspect else fields)
        stored = Request(
            request.route,
            request.method,
            redactor._target(request.target, own, suspect=suspect),
            header.headers,
            redactor._body(request.body, found, wide) if suspect else request.body,
            without_userinfo(request.base) if "@" in request.base else request.base,
            file=request.file,
            credentials=credentials or request.credentials,
            coding=request.coding,
            varied=request.varied,
            edition=request.edition,
            read=header,
        )
        return stored, found.taught

    def response(self, response: Response) -> Response:
        """The response as it may be stored, with its chunk boundaries preserved.

        Where a coded body shows a secret, what it says is stored in its place, as far as it can be
        read: clients read broken bodies too.
        """
        return self.response_and_secrets(response)[0]

    def response_and_secrets(self, response: Response) -> tuple[Response, list[Secret]]:
        """The redacted response, and the secrets that its head and body taught."""
        stored, taught = self._uncoded_response(response)
        decoded = leniently_readable(response)
        if decoded is not response:
            readable, taught_inside = self._uncoded_response(decoded)
            if readable.body != decoded.body:
                stored, taught = readable, taught_inside
        return stored, [*issued_credentials(response.head, self._known.allowed), *taught]

    def _uncoded_response(self, response: Response) -> tuple[Response, list[Secret]]:
        content_type, body = response.head.value(b"content-type") or b"", response.body
        if content_type.lower().startswith(aws_frames.MEDIA_TYPE) and body:
            head, replacements, taught = self._in_aws_frames(response.head, body)
        else:
            head, replacements, taught = self._in_response(response.head, body, content_type)
        if replacements:
            replaced = [(span.start, span.end, len(hidden)) for span, hidden in replacements]
            response = response.with_arrivals(move_chunk_ends(response.arrivals(), replaced))
            response = replace(response, head=head, body=replace_spans(body, replacements))
        elif head is not response.head:
            response = replace(response, head=head)
        return response, taught

    def _in_response(
        self, head: ResponseHead, body: bytes, content_type: bytes
    ) -> tuple[ResponseHead, list[tuple[Span, bytes]], list[Secret]]:
        """The head as it may be stored, what to replace in the body, and what both taught."""
        wide = read_utf16(body, content_type)
        text = body if wide is None else wide.text
        reason = head.reason.encode("utf-8", "surrogateescape")
        shown = text if wide is None else text + b"\n" + body
        searched = _searched_text(reason, head.headers)
        suspect = self._is_suspect(searched + b"\n" + shown) or _may_have_framed_keys(
            text, content_type
        )
        found = self._found_in(
            body, content_type, searched, wide=wide, suspect=suspect, in_response=True
        )
        redactor = found.redactor
        suspect = suspect or bool(found.spans) or redactor is not self
        if not suspect and not has_special_header(head.names):
            return head, [], []
        if suspect:
            reason = redactor.value(reason)
        head = replace(
            head,
            reason=reason.decode("utf-8", "surrogateescape"),
            headers=redactor._fields(head.headers, suspect=suspect),
        )
        replacements = redactor._replacements(body, found, wide) if suspect else []
        return head, replacements, found.taught

    def message(self, data: bytes, *, in_response: bool, content_type: bytes = b"") -> bytes:
        """One message, text or binary, without its secrets.

        `in_response` distinguishes the upstream from the client: names mean more in what a client
        sends.
        """
        return self.message_and_secrets(data, in_response=in_response, content_type=content_type)[0]

    def message_and_secrets(
        self, data: bytes, *, in_response: bool, content_type: bytes = b""
    ) -> tuple[bytes, list[Secret]]:
        """The redacted message, and the secrets that it taught."""
        if not (
            self._is_suspect(data)
            or _may_have_framed_keys(data, content_type)
            or self._recalled([data])
        ):
            return data, []
        found = self._found_in(
            data, content_type, suspect=True, in_response=in_response, streamed=False
        )
        return found.redactor._body(data, found), found.taught

    def again(self, request: Request) -> Request:
        """A stored request without the secrets of this exchange; the very request if it has none."""
        target = request.target.encode("utf-8", "surrogateescape")
        values, head = self._of_exchange, _searched_text(target, request.headers)
        if not (values.may_occur_in(head) or values.may_occur_in(request.body)):
            return request
        media = request.fields.content_type
        stored = replace(
            request,
            target=self._without_known(target).decode("utf-8", "surrogateescape"),
            headers=tuple([(name, self._without_known(text)) for name, text in request.headers]),
            body=self._without_known(request.body, binary_places(request.body, media)),
        )
        return request if stored == request else stored

    def _without_known(self, text: bytes, places: Sequence[tuple[int, int]] = ()) -> bytes:
        spans = merge_spans(json_safe_spans(text, self._of_exchange.find_all(text)))
        return replace_spans(text, self._replaced(spans, places))

    def stream(self, content_type: bytes) -> "StreamRedactor":
        """Removes secrets from a body of any length in pieces: known values and patterns, no names.

        Digits are replaced as they are, since no one can tell what the rest of the line was. Only
        the content type tells whether the body is text.
        """
        longest = max([len(secret.value) for secret in self.secrets], default=0)
        return StreamRedactor(
            lambda data, start: list(self._find(data, start)),
            partial(self._replacement, keeps_length=not names_text(content_type)),
            max(patterns.MAX_LENGTH, _LONGEST_CHARACTER * longest),
        )

    def recall(self) -> PiecewiseRecall:
        """A search for values of recorded placeholders that are not replaced everywhere yet."""
        return PiecewiseRecall(self._recorded, self.secrets)

    def taught_by(self, found: Iterable[Secret], recalled: Iterable[Secret]) -> list[Secret]:
        """What found secrets and recalled ones teach that is not replaced everywhere yet."""
        return self._unknown([*_taught_by(found), *self._known.allowed.without(recalled)])

    def learning(self, learned: Sequence[Secret]) -> "Redactor":
        """A redactor that also replaces the given values everywhere."""
        if not learned:
            return self
        return Redactor(
            self._salt.decode(),
            (*self._of_exchange.secrets, *learned),
            self._known,
            self._recorded,
            keeps_lengths=self._keeps_lengths,
        )

    def only(self, placeholders: Iterable[str]) -> "Redactor":
        """A redactor for those of its values alone that have these placeholders."""
        values = {digest_start(self._salt, secret.value): secret.value for secret in self.secrets}
        return Redactor(
            self._salt.decode(),
            [
                Secret(shown_label(placeholder), values[digest])
                for placeholder in placeholders
                if (digest := placeholder_digest(placeholder.encode())) in values
            ],
            KnownValues((), self._known.allowed),
        )

    def target(self, target: str, own: frozenset[str] = frozenset(), recorded: str = "") -> str:
        """A raw target or URL without credential parameters or secret values.

        Octets that are not UTF-8 come back percent-encoded: the result can be written anywhere.
        `own` lists the names of keys of the target's provider. The values of placeholders in a
        `recorded` target are replaced too: the placeholders show that they are secrets.
        """
        octets = target.encode("utf-8", "surrogateescape")
        placeholders = RecordedPlaceholders(self._salt.decode())
        placeholders.add(recorded.encode())
        values = placeholders.find([octets, unquote_to_bytes(octets)])
        redactor = self.learning(self._unknown(self._known.allowed.without(values)))
        return redactor._target(target, own, suspect=redactor._is_suspect(octets))

    def _url(self, url: bytes) -> bytes:
        """A URL in a response without credential parameters or secret values."""
        suspect, text = self._is_suspect(url), url.decode("latin-1")
        return self._target(text, frozenset(), suspect=suspect, in_response=True).encode("latin-1")

    def value(self, data: bytes) -> bytes:
        """Bytes with every known value and every pattern of a secret replaced."""
        return self._replace(data, self._find(data)) if self._is_suspect(data) else data

    def field(self, name: bytes, value: bytes) -> bytes:
        """A request's field: a placeholder where its name tells of a credential."""
        lower = name.lower()
        if holds_secret(lower):
            return self._replaced_value(lower.decode("latin-1"), value)
        return self.value(value)

    def placeholder(self, label: str, value: bytes) -> bytes:
        """The placeholder of a secret in this cassette."""
        return secret_placeholder(self._salt, label, value)

    def shown(self, secret: Secret) -> str:
        """The placeholder of a secret as a text."""
        return self.placeholder(secret.label, secret.value).decode()

    @cached_property
    def _prefilter(self) -> Prefilter:
        return secret_prefilter(self._known.constant_parts)

    def _is_suspect(self, data: bytes) -> bool:
        """Whether the prefilter finds anything in a text, or in what is encoded in it."""
        return self._is_plainly_suspect(data) or any(
            map(self._is_plainly_suspect, coded_texts.decodings(data))
        )

    def _is_plainly_suspect(self, data: bytes) -> bool:
        return self._of_exchange.may_occur_in(data) or self._prefilter.search(data)

    def _find(self, data: bytes, start: int = 0) -> Iterable[Span]:
        coded = coded_texts.find(data, self._find_decoded)
        return chain(self._find_plain(data, start), [span for span in coded if span.start >= start])

    def _find_plain(self, data: bytes, start: int = 0) -> Iterable[Span]:
        return chain(
            self._known.find(data, start),
            self._of_exchange.find(data, start),
            self._known.allowed.without_spans(patterns.find_in_text(data, start)),
        )

    def _find_decoded(self, text: bytes) -> list[Span]:
        """The secrets of a text that was decoded, or assembled from pieces."""
        if not self._is_plainly_suspect(text):
            return []
        allowed = self._known.allowed
        framed = list(allowed.without_spans(framed_keys.find(text))) if has_controls(text) else []
        plain = _ending_with(framed, self._find_plain(text))
        named = allowed.without_spans(body_fields.find(text, b"", in_response=True))
        return [*named, *framed, *plain]

    def _found_in(
        self,
        body: bytes,
        content_type: bytes,
        head: bytes = b"",
        *,
        wide: Utf16Text | None = None,
        suspect: bool,
        in_response: bool,
        own: frozenset[str] = frozenset(),
        streamed: bool = True,
    ) -> "_Found":
        """Everything to replace in a body, and what head and body teach.

        What they teach is searched for in the whole body again, and in its streamed texts.
        """
        text = body if wide is None else wide.text
        spans = self._in_fields(
            text, content_type, suspect=suspect, in_response=in_response, own=own
        )
        framed: list[Span] = []
        if suspect:
            if places := binary_places(body, content_type, wide):
                framed = [
                    span
                    for span in self._known.allowed.without_spans(framed_keys.find(text))
                    if _is_within(span, places)
                ]
            plain = _ending_with(framed, json_safe_spans(text, self._find_plain(text)))
            spans += [*framed, *plain]
        texts: StreamedTexts | None = None
        if streamed and in_response and may_be_stream(text, content_type):
            texts = StreamedTexts(text, content_type)
            spans += _find_streamed(texts, self._find_in_streamed)
        recorded = self._recalled(chain([head, text], map(_whole, texts or ())))
        if not (spans or suspect or recorded):
            return _Found([], [], [], self)
        told = [*spans, *(self._newly_found(head) if suspect else ())]
        taught = _taught_by(span.secret for span in told if span.secret is not None)
        taught += recorded
        if new := self._unknown(taught):
            values = KnownValues(new)
            spans += _ending_with(framed, json_safe_spans(text, values.find(text)))
            spans += coded_texts.find(text, values.find_all)
            if texts is not None:
                spans += _find_streamed(texts, values.find_all)
        places = binary_places(body, content_type, wide) if spans else []
        return _Found(spans, places, taught, self.learning(new))

    def _recalled(self, texts: Iterable[bytes]) -> list[Secret]:
        """The values in the texts whose placeholders are recorded."""
        return [*self._known.allowed.without(self._recorded.find(texts))]

    def _in_fields(
        self,
        body: bytes,
        content_type: bytes,
        *,
        suspect: bool,
        in_response: bool,
        own: frozenset[str] = frozenset(),
    ) -> list[Span]:
        """What the names of fields show, and what is encoded in the body."""
        if body and (suspect or body_fields.reads_whole(content_type)):
            named = self._known.allowed.without_spans(
                body_fields.find(body, content_type, in_response=in_response, own=own)
            )
            return [*named] + (coded_texts.find(body, self._find_decoded) if suspect else [])
        return []

    def _newly_found(self, head: bytes) -> Iterable[Span]:
        """The secrets of a head, if there may be others than those of this exchange."""
        may_show = self._prefilter.search
        if may_show(head) or any(map(may_show, coded_texts.decodings(head))):
            return self._find(head)
        return ()

    def _unknown(self, secrets: Iterable[Secret]) -> list[Secret]:
        """Those of the secrets that are not replaced everywhere yet."""
        known = {secret.value for secret in self.secrets}
        return [secret for secret in secrets if secret.value not in known]

    def _find_in_streamed(self, text: bytes) -> list[Span]:
        return [*self._find_decoded(text), *coded_texts.find(text, self._find_decoded)]

    def _body(self, body: bytes, found: "_Found", wide: Utf16Text | None = None) -> bytes:
        return replace_spans(body, self._replacements(body, found, wide))

    def _replaced(
        self, spans: Iterable[Span], places: Sequence[tuple[int, int]]
    ) -> list[tuple[Span, bytes]]:
        """Spans with replacements, which keep their lengths in places that are no text."""
        return [
            (span, self._replacement(span, keeps_length=_is_within(span, places))) for span in spans
        ]

    def _replacements(
        self, body: bytes, found: "_Found", wide: Utf16Text | None
    ) -> list[tuple[Span, bytes]]:
        """Spans of the body with replacements; those found are spans of the decoded text."""
        replacements = self._replaced(merge_spans(found.spans), found.places)
        if wide is None:
            return replacements
        in_text = [
            (
                replace(span, start=2 * span.start, end=2 * span.end),
                hidden.decode("latin-1").encode(wide.codec),
            )
            for span, hidden in replacements
        ]
        # Octets that begin like UTF-16 may be something else.
        in_octets = [
            (span, self._replacement(span, keeps_length=True))
            for span in merge_spans(self._find(body))
        ]
        return _without_overlaps([*in_text, *in_octets])

    def _in_aws_frames(
        self, head: ResponseHead, body: bytes
    ) -> tuple[ResponseHead, list[tuple[Span, bytes]], list[Secret]]:
        """Look for secrets in the frames' texts as in lines of JSON; whole frames are replaced."""
        frames = aws_frames.parse_frames(body)
        lines = [frame.text + b"\n" for frame in frames]
        text = b"".join(lines)
        head, replacements, taught = self._in_response(head, text, _JSON_LINES)
        if not replacements:
            return head, [], taught
        replaced = [(span.start, span.end, len(hidden)) for span, hidden in replacements]
        ends = pairwise([0, *moved_ends(map(len, lines), replaced)])
        text = replace_spans(text, replacements)
        texts = [text[start:end].removesuffix(b"\n") for start, end in ends]
        return head, _frames_with_texts(frames, texts), taught

    def _replace(self, data: bytes, spans: Iterable[Span]) -> bytes:
        replacements = [(span, self._replacement(span)) for span in merge_spans(spans)]
        return replace_spans(data, replacements) if replacements else data

    def _replacement(self, span: Span, *, keeps_length: bool = False) -> bytes:
        return replacement(span, self._salt, keeps_length=keeps_length and self._keeps_lengths)

    def _target(
        self, target: str, own: frozenset[str], *, suspect: bool, in_response: bool = False
    ) -> str:
        if suspect:
            octets = target.encode("utf-8", "surrogateescape")
            target = self._replace(octets, self._find(octets)).decode("utf-8", "surrogateescape")
        if not target.isascii():
            target = _UNDECODED.sub(lambda odd: quote(odd[0], errors="surrogateescape"), target)
        if "=" not in target and "%" not in target:
            return target
        parameters = credential_parameters(target, own, in_response=in_response)
        return self._parameters(target, parameters)

    def _parameters(self, target: str, parameters: Iterable[tuple[str, int, int, bytes]]) -> str:
        pieces: list[str] = []
        at = 0
        allowed = self._known.allowed
        for name, start, end, value in parameters:
            label = label_for(name, value)
            if not (PLACEHOLDER.fullmatch(value) or allowed.allows(Secret(label, value))):
                hidden = self.placeholder(label, value).decode()
                pieces += target[at:start], hidden
                at = end
        return "".join([*pieces, target[at:]])

    def _stored(self, headers: Headers) -> Headers:
        return tuple([(name, self.value(value)) for name, value in headers])

    def _fields(self, headers: Headers, *, suspect: bool) -> Headers:
        return tuple(
            [
                (name, self._field(name.lower(), value, suspect))
                if suspect or is_special_header(name)
                else (name, value)
                for name, value in headers
            ]
        )

    def _field(self, name: bytes, value: bytes, suspect: bool) -> bytes:
        if suspect:
            value = self.value(value)
        if name in SET_COOKIE:
            return self._set_cookie(value)
        if is_credential_header(name):
            return self._replaced_value(name.decode("latin-1"), value)
        if name in URL_HEADERS:
            return self._url(value)
        if name == b"link":
            return LINK_URL.sub(lambda url: self._url(url[0]), value)
        return value

    def _set_cookie(self, value: bytes) -> bytes:
        pair, semicolon, attributes = value.partition(b";")
        name, equals, content = pair.partition(b"=")
        content = content.strip(b' "')
        if len(content) < MIN_COOKIE or PLACEHOLDER.fullmatch(content):
            return value
        hidden = self.placeholder(name.strip().decode("latin-1"), content)
        return name + equals + hidden + semicolon + attributes

    def _replaced_value(self, label: str, value: bytes) -> bytes:
        if not value or PLACEHOLDER.fullmatch(value):
            return value
        return self.placeholder(label, value)


class _Found(NamedTuple):
    """What is to be replaced in a body, the taught secrets, and a redactor that knows these too.

    `places` are those of the body that are no text.
    """

    spans: list[Span]
    places: list[tuple[int, int]]
    taught: list[Secret]
    redactor: Redactor


class StreamRedactor:
    """Redacts a text of any length piece by piece, with at most `bound` bytes and one piece of
    delay.

    The result is that of the whole text at once, as long as no secret is longer than the bound.
    """

    def __init__(
        self,
        find: Callable[[bytes, int], Sequence[Span]],
        replacement: Callable[[Span], bytes],
        bound: int,
    ) -> None:
        self._find, self._replacement, self._bound = (
            find,
            replacement,
            bound + LONGEST_CONTEXT,
        )
        # The window: the text received that may still be needed; `_sent` bytes of it were returned.
        self._window = b""
        self._sent = 0
        self._window_start = 0
        self.replaced: list[tuple[int, int, int]] = []
        """For each replaced secret: start, end, and the length of the placeholder."""
        self.secrets: dict[Secret, None] = {}
        """The replaced secrets, those met first."""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece; returns the text that is final now, often nothing."""
        self._window += piece
        limit = len(self._window) - self._bound
        # Only from twice the bound on, so that small pieces are not searched again and again.
        return self._release(limit) if limit - self._sent >= self._bound else b""

    def finish(self) -> bytes:
        """The rest of the text."""
        return self._release(len(self._window))

    def _release(self, end: int) -> bytes:
        spans = merge_spans(self._find(self._window, self._sent))
        for span in spans:
            if span.start < end < span.end:
                end = span.start
        settled = [(span, self._replacement(span)) for span in spans if span.end <= end]
        base = self._window_start
        for span, hidden in settled:
            self.replaced.append((base + span.start, base + span.end, len(hidden)))
            if span.secret is not None and len(self.secrets) < _MOST_NAMED:
                self.secrets[span.secret] = None
        redacted = replace_spans(self._window[:end], settled)
        out = redacted[self._sent :]
        released = max(0, end - LONGEST_CONTEXT)
        self._window, self._sent = self._window[released:], end - released
        self._window_start += released
        return out


def _whole(pieces: Sequence[Piece]) -> bytes:
    return "".join([text for text, _, _ in pieces]).encode("utf-8", "surrogateescape")


def _find_streamed(
    texts: StreamedTexts, search: Callable[[bytes], Sequence[Span]]
) -> Iterator[Span]:
    """The spans of a body that together make up what `search` finds in the texts streamed in it.

    The first span of each has its secret, the further ones none.
    """
    for pieces in texts:
        if spans := merge_spans(search(_whole(pieces))):
            yield from _spans_in_body(texts, pieces, spans)
        if _is_repeated(pieces):
            spans = merge_spans(search(pieces[-1][0].encode("utf-8", "surrogateescape")))
            yield from _begun_spans(texts, pieces, spans)


def _is_repeated(pieces: Sequence[Piece]) -> bool:
    """Whether each event repeats the text so far and goes on with it, as some services do."""
    return len(pieces[0][0]) < len(pieces[-1][0]) and all(
        after.startswith(before) for (before, _, _), (after, _, _) in pairwise(pieces)
    )


def _begun_spans(
    texts: StreamedTexts, pieces: Sequence[Piece], spans: Sequence[Span]
) -> Iterator[Span]:
    """The beginnings of secrets at the ends of texts that later ones repeat."""
    for text, holder, name in pieces:
        encoded = text.encode("utf-8", "surrogateescape")
        for span in spans:
            if holder is not None and span.start < len(encoded) < span.end:
                start, characters = texts.written(text, holder, name)
                first = start + _length(characters, encoded[: span.start])
                yield Span(first, start + _length(characters, encoded), span.secret)


def _spans_in_body(
    texts: StreamedTexts, pieces: Sequence[Piece], spans: Sequence[Span]
) -> Iterator[Span]:
    encoded = [text.encode("utf-8", "surrogateescape") for text, _, _ in pieces]
    ends = list(accumulate(map(len, encoded)))
    for span in spans:
        secret = span.secret
        for at in range(bisect_right(ends, span.start), bisect_left(ends, span.end) + 1):
            text, holder, name = pieces[at]
            if holder is None:
                continue
            before = ends[at] - len(encoded[at])
            start, characters = texts.written(text, holder, name)
            first = start + _length(characters, encoded[at][: max(span.start - before, 0)])
            end = start + _length(characters, encoded[at][: span.end - before])
            yield Span(first, end, secret)
            secret = None


def _frames_with_texts(
    frames: Iterable[AwsFrame], texts: Iterable[bytes]
) -> list[tuple[Span, bytes]]:
    """The frames to replace, with new frames for the given texts."""
    return [
        (Span(frame.start, frame.end, None), frame.with_text(text))
        for frame, text in zip(frames, texts, strict=True)
        if text != frame.text
    ]


def _length(characters: list[str], text: bytes) -> int:
    """How many bytes of the body this beginning of a piece takes."""
    count = len(text.decode("utf-8", "surrogateescape"))
    return len("".join(characters[:count]).encode("utf-8", "surrogateescape"))


def _may_have_framed_keys(body: bytes, content_type: bytes) -> bool:
    """Whether a body that may be no text may have keys with their lengths before them."""
    return bool(body) and not names_text(content_type) and framed_keys.may_have_any(body)


def _ending_with(framed: Sequence[Span], spans: Iterable[Span]) -> Iterator[Span]:
    """The spans but those that go on behind a framed key at their beginning."""
    ends = {span.start: span.end for span in framed}
    return (span for span in spans if span.end <= ends.get(span.start, span.end))


def _is_within(span: Span, places: Sequence[tuple[int, int]]) -> bool:
    return any(start <= span.start and span.end <= end for start, end in places)


def _without_overlaps(replacements: Iterable[tuple[Span, bytes]]) -> list[tuple[Span, bytes]]:
    """Spans with replacements, in order; of overlapping spans only the first."""
    kept: list[tuple[Span, bytes]] = []
    for span, hidden in sorted(replacements, key=lambda finding: finding[0].start):
        if not kept or span.start >= kept[-1][0].end:
            kept.append((span, hidden))
    return kept


def _searched_text(first: bytes, headers: Headers) -> bytes:
    return b"\n".join([first, *[value for _, value in headers]])


def _taught_by(found: Iterable[Secret]) -> list[Secret]:
    """The values that were found in one place and are to be replaced in every other place."""
    secrets: dict[Secret, None] = {}
    for secret in found:
        if len(secrets) < _MOST_LEARNED:
            secrets |= dict.fromkeys(value_credentials(secret.label, secret.value))
    return list(secrets)
