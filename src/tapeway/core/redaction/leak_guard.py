"""The last check before anything is written: it must contain no known credential.

Redaction covers the places it knows. This check knows no places, and searches the bytes that will
be written.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from tapeway.core.http.content_codings import coding_of, decode_leniently, pieces_beyond_bounds
from tapeway.core.json_text import Json, Pointer, dump
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.redaction import body_fields, coded_texts, patterns
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import NO_KNOWN_VALUES, KnownValues
from tapeway.core.redaction.patterns import value_prefilter
from tapeway.core.redaction.spans import Span, json_safe_spans
from tapeway.core.text import read_utf16
from tapeway.errors import StoreError

HIDDEN_NAME = "…"
"""Replaces a name that contains a credential itself when a place is shown."""

# How many characters may encode one: `%25252525xx`, or a `\\u00xx` behind eight backslashes.
_LONGEST_CHARACTER = 13


RECORD_NOTHING = "use mode passthrough, which records nothing"
"""The remedy for users of the proxy; programs that record by themselves name another."""


class LeakFound(Exception):
    """What was to be written contains a credential."""

    def __init__(self, secret: Secret, place: Pointer, remedy: str) -> None:
        super().__init__(secret.label)
        self.secret = secret
        self.place = place
        self.remedy = remedy


def leak_error(secret: Secret, place: str, remedy: str = RECORD_NOTHING) -> StoreError:
    """The error for a recording that would still contain a credential."""
    return StoreError(
        f"nothing was recorded: the credential '{secret.label}' would still be in {place}; keep "
        f"it out of there, or {remedy}"
    )


class LeakGuard:
    """Searches for the credentials of one request, and for `known` credentials of the process.

    `remedy` is advice for errors, next to the advice to keep the credential out.
    """

    def __init__(
        self,
        secrets: Iterable[Secret],
        known: KnownValues = NO_KNOWN_VALUES,
        remedy: str = RECORD_NOTHING,
    ) -> None:
        self._remedy = remedy
        self._from_request = KnownValues(secrets)
        self._known = known
        # Of a process there may be dozens, and one automaton serves them all.
        self._prefilter = value_prefilter(known.constant_parts) if known.constant_parts else None

    def check(self, interaction: AnyInteraction, document: Json, text: bytes) -> None:
        """Raise LeakFound for a credential in an interaction's document, written as this text.

        A body whose content coding could not be decoded is searched as far as it can be read.
        """
        if (secret := self._first_secret(text)) is not None:
            place = next(find_places(document, KnownValues([secret])), ())
            raise LeakFound(secret, place, self._remedy)
        if isinstance(interaction, ForeignInteraction):
            return
        request, response = interaction.request, interaction.response
        fields = request.fields
        self._check_body("request", request.body, fields.content_encoding, fields.content_type)
        head = response.head
        content_type = head.value(b"content-type") or b""
        self._check_body("response", response.body, coding_of(head), content_type)

    def _check_body(
        self, place: str, body: bytes, coding: bytes | None, content_type: bytes
    ) -> None:
        if coding:
            secret = self._first_in_coded(
                body, coding, content_type, in_response=place == "response"
            )
        else:
            wide = read_utf16(body, content_type)
            secret = None if wide is None else self._first_secret(wide.text)
        if secret is not None:
            raise LeakFound(secret, (place, "body"), self._remedy)

    def _first_in_coded(
        self, body: bytes, coding: bytes, content_type: bytes, *, in_response: bool
    ) -> Secret | None:
        """The first secret in what a coded body says: nothing could be replaced there.

        So keys of a known form and named fields count here too.
        """
        before = b""
        pieces = chain([decode_leniently(coding, body)], pieces_beyond_bounds(coding, body))
        for piece in pieces:
            text = before + piece
            if secret := self._first_shown(text, content_type, in_response=in_response):
                return secret
            before = text[-patterns.MAX_LENGTH :]
        return None

    def _first_shown(self, text: bytes, content_type: bytes, *, in_response: bool) -> Secret | None:
        if (secret := self._first_secret(text)) is not None:
            return secret
        spans = [
            *self._shown(text, content_type, in_response=in_response),
            *coded_texts.find(text, lambda decoded: self._shown(decoded, b"", in_response=True)),
        ]
        return next((span.secret for span in spans if span.secret is not None), None)

    def _shown(self, text: bytes, content_type: bytes, *, in_response: bool) -> list[Span]:
        """What the names of fields and the forms of keys show."""
        named = body_fields.find(text, content_type, in_response=in_response)
        return [*self._known.allowed.without_spans([*named, *patterns.find_in_text(text)])]

    def watched(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a large body. Raises StoreError before a piece that contains a
        credential.
        """
        secrets = (*self._known.secrets, *self._from_request.secrets)
        longest = max([_LONGEST_CHARACTER * len(secret.value) for secret in secrets], default=0)
        before = b""
        for piece in pieces:
            text = before + piece
            if (secret := self._first_secret(text)) is not None:
                raise leak_error(secret, "a large body", self._remedy)
            before = text[-longest:] if longest else b""
            yield piece

    def _first_secret(self, data: bytes) -> Secret | None:
        if self._prefilter is not None and self._prefilter.search(data):
            first_secret = _first_secret(data, self._known)
            if first_secret is not None:
                return first_secret
        return _first_secret(data, self._from_request)


def find_places(value: Json, known: KnownValues, at: Pointer = ()) -> Iterator[Pointer]:
    """The place of one of these values in a document, in values and in names."""
    if isinstance(value, dict):
        for name, inner in value.items():
            hidden = _first_secret(name.encode(), known) is not None
            here = (*at, HIDDEN_NAME if hidden else name)
            if hidden:
                yield here
            yield from find_places(inner, known, here)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from find_places(inner, known, (*at, index))
    elif value is not None:
        text = value.encode() if isinstance(value, str) else dump(value)
        if _first_secret(text, known) is not None:
            yield at


def _first_secret(data: bytes, known: KnownValues) -> Secret | None:
    if not known.may_occur_in(data):
        return None
    # Behind a minus the digits of a credential are another value, and stay.
    span = next(iter(json_safe_spans(data, known.find(data))), None)
    return span.secret if span is not None else None
