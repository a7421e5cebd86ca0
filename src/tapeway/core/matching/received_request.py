"""A received request, with lazily computed values for looking up its recording.

Most look-ups need only the match key.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from tapeway.core.digests import sha256
from tapeway.core.http.headers import stored_request_headers
from tapeway.core.json_text import ReadJson, canonical
from tapeway.core.matching.credential_fields import (
    OpenedRequest,
    may_have_credential_fields,
    open_request,
)
from tapeway.core.matching.document import normalised_text
from tapeway.core.matching.headers import conditions
from tapeway.core.matching.headers.distance import caller, request_credentials
from tapeway.core.matching.json_paths import Steps, outline, text_at, value_at, with_value
from tapeway.core.matching.key import KeyAndBody, document_key, key_and_body, key_on_route
from tapeway.core.matching.normalisers import OctetsHash
from tapeway.core.matching.placeholders import SecretDigests, spellings
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request
from tapeway.core.model.request_fields import without_later_fields
from tapeway.core.redaction.credentials import MIN_VALUE, Secret, is_credential_header
from tapeway.core.redaction.known_values import KnownValues

_HOLE = "\0"
"""Stands for a text with placeholders in it where documents are compared without these."""


class ReceivedRequest:
    """A received request, for one cassette's rules and salt."""

    def __init__(
        self,
        request: Request,
        rules: Rules,
        digests: SecretDigests,
        keyed: KeyAndBody | None = None,
        *,
        wide: bool = False,
    ) -> None:
        """`keyed` is the match key, used only if computed under equal rules.

        With `wide` every field with an ambiguous name counts as a credential field.
        """
        self.request = request
        self.rules = rules
        self.digests = digests
        self._wide = wide
        if keyed is None or keyed.rules != rules:
            keyed = key_and_body(request, rules)
        self._keyed = keyed
        self.key = keyed.key

    def is_of(self, request: Request, salt: str, rules: Rules) -> bool:
        """Whether request, salt and rules are the given ones."""
        return self.request is request and self.digests.salt == salt and self.rules == rules

    @property
    def read(self) -> ReadJson | None:
        """What the body was read as, where that is plain JSON and no rule applies."""
        return self._keyed.read

    @cached_property
    def opened(self) -> OpenedRequest:
        """Its document without its credential fields."""
        return open_request(self.request, self.rules, wide=self._wide)

    @cached_property
    def opened_wide(self) -> "ReceivedRequest | None":
        """This request with each ambiguous field as a credential field; None if there is no such field.

        Only a recording made with the very values of these fields answers it.
        """
        if self._wide or not may_have_credential_fields(self.request):
            return None
        wide = ReceivedRequest(self.request, self.rules, self.digests, self._keyed, wide=True)
        return wide if len(wide.opened.fields) > len(self.opened.fields) else None

    @cached_property
    def of_first_edition(self) -> "ReceivedRequest | None":
        """This request without the fields that decide since a later edition of the list of them.

        None if it has no such field.
        """
        headers = without_later_fields(self.request.headers, self.rules.match)
        if len(headers) == len(self.request.headers):
            return None
        request = replace(self.request, headers=headers)
        return ReceivedRequest(request, self.rules, self.digests, wide=self._wide)

    @cached_property
    def open_key(self) -> bytes:
        """Its key without its credential fields; its own key where it has none."""
        if not may_have_credential_fields(self.request) or not self.opened.fields:
            return self.key
        return document_key(self.request.route, self.opened.document, self.rules)

    @property
    def variant(self) -> bytes:
        """A digest of the values of the credential fields, b"" without such a field."""
        return self._variant if may_have_credential_fields(self.request) else b""

    @cached_property
    def _variant(self) -> bytes:
        if self.open_key == self.key:
            return b""
        return self.digests.text(self.opened.values).encode()

    @cached_property
    def outline_key(self) -> bytes:
        """A key of its document without any value."""
        return outline_key(self.request.route, self.opened)

    def key_without(self, places: tuple[Steps, ...], route: str) -> bytes:
        """The open key, computed without the texts at the given places."""
        key = blank_key(self.request.route, self.opened, places, self.rules)
        return key_on_route(key, route)

    def text_at(self, steps: Steps) -> str:
        """The text at a place of its document, normalised; of what is no text its octets."""
        value = value_at(self.opened.document, steps)
        if isinstance(value, dict) and isinstance(hashed := value.get("sha256"), OctetsHash):
            return octets_text(hashed)
        return normalised_text(text_at(self.opened.document, steps), self.rules)

    def compute(self) -> None:
        """Compute every value that reads the body, in a thread: a large body takes long."""
        _ = self.variant, self.outline_key
        if not self.opened.fields:
            # In memory a parsed body takes several times its size.
            del self.opened

    @cached_property
    def as_stored(self) -> Request:
        """The request with the headers and credentials of its recording, to compare these."""
        request = self.request
        return Request(
            request.route,
            request.method,
            request.target,
            stored_request_headers(request.headers),
            request.body,
            credentials=request_credentials(request, self.digests.placeholder),
        )

    @cached_property
    def caller(self) -> bytes:
        """A digest that identifies the caller, b"" if no header holds a credential."""
        return caller(self.as_stored.credentials)

    def get_caller(self) -> bytes:
        """The caller, as a function for users that rarely need it."""
        return self.caller

    def get_headers(self) -> Headers:
        """The header fields, as a function for users that rarely need them."""
        return self.request.headers

    @cached_property
    def own_credentials(self) -> frozenset[str]:
        """The credentials in header fields and credential fields."""
        values = {value for _, value in self.opened.fields}
        values |= {value.rpartition(" ")[2] for value in values}
        for name, value in self.request.headers:
            if name.lower() == b"cookie" or is_credential_header(name.lower()):
                values.update(_values_in(value.decode("latin-1")))
        return frozenset(values - {""})

    def repeats_own_credential(self, text: str) -> bool:
        """Whether a text is a credential of the request, plain or encoded."""
        if any(value in self._own_octets for value in spellings(text)):
            return True
        octets = text.encode("utf-8", "surrogatepass")
        return any(
            (span.start, span.end) == (0, len(octets)) for span in self._own_values.find(octets)
        )

    @cached_property
    def _own_octets(self) -> tuple[bytes, ...]:
        return tuple([value.encode("utf-8", "surrogatepass") for value in self.own_credentials])

    @cached_property
    def _own_values(self) -> KnownValues:
        long_enough = [value for value in self._own_octets if len(value) >= MIN_VALUE]
        return KnownValues([Secret("own", value) for value in long_enough])

    def is_meant_by(self, recorded: Interaction) -> bool:
        """Whether a recording with an equal key answers, judged by the deciding header fields."""
        ignored, is_of = self.rules.ignore_vary, self.digests.is_of
        return conditions.is_for(recorded, self.request.headers, ignored, is_of)

    def why_not(self, recorded: Interaction) -> str | None:
        """Why a recording with an equal key does not answer, None if it answers."""
        ignored, is_of = self.rules.ignore_vary, self.digests.is_of
        return conditions.why_not(recorded, self.request.headers, ignored, is_of)


def octets_text(hashed: OctetsHash) -> str:
    """The octets of what is no text, each as a character."""
    return hashed.octets.decode("latin-1")


def outline_key(route: str, opened: OpenedRequest) -> bytes:
    """A key of an opened document without any value but its method."""
    document = opened.document
    bare = {"outline": outline(document), "method": document.get("method", "")}
    return route.encode() + b"\0" + sha256(canonical(bare)).digest()


def blank_key(route: str, opened: OpenedRequest, places: tuple[Steps, ...], rules: Rules) -> bytes:
    """The key of an opened document without the texts at these places."""
    document = opened.document
    for steps in places:
        changed = with_value(document, steps, _HOLE)
        assert isinstance(changed, dict)  # noqa: S101 - no place is the document itself
        document = changed
    return document_key(route, document, rules)


def _values_in(text: str) -> Iterator[str]:
    """What a header with a credential may be quoted as: all of it, and each part."""
    yield text
    for piece in re.split(r"[;\s]+", text):
        yield piece
        yield piece.partition("=")[2]
    scheme, _, rest = text.partition(" ")
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(rest + "=" * (-len(rest) % 4), validate=True).decode("latin-1")
        except (binascii.Error, ValueError):
            return
        yield pair
        yield from pair.split(":", 1)
