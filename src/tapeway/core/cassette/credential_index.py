"""Finds recordings of requests with credentials of any value.

Two kinds of recordings are not found by the key of a received request: recordings with a credential
field, and recordings with a placeholder in a text. The first are looked up without credential
fields, the second without texts that have placeholders. Then the request's values in these
places are compared with the recorded ones.
"""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tapeway.core.json_text import ReadJson
from tapeway.core.matching.credential_fields import (
    OpenedRequest,
    has_credential_fields,
    may_have_credential_fields,
    open_request,
)
from tapeway.core.matching.document import normalised_text
from tapeway.core.matching.json_paths import Steps, texts_in
from tapeway.core.matching.key import document_key, key_on_route
from tapeway.core.matching.normalisers import OctetsHash
from tapeway.core.matching.placeholders import (
    digest_of,
    fits,
    has_placeholder,
    is_placeholder,
    may_have_placeholder,
    placeholders_in,
    stands_for_any_in_path,
)
from tapeway.core.matching.received_request import (
    ReceivedRequest,
    blank_key,
    octets_text,
    outline_key,
)
from tapeway.core.matching.recorded_request import RecordedRequest
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import CredentialHeaders, Request
from tapeway.core.redaction.known_values import RecordedPlaceholders

_MOST_COMPARED = 1000
"""Of more recordings that differ only in texts with placeholders, the newest are compared."""


class FoundKey(NamedTuple):
    """A match key of answering recordings.

    `own` means that the recordings were made with the request's values of credential fields.
    """

    key: bytes
    own: bool = True


@dataclass(frozen=True, slots=True)
class CredentialPlaces:
    """Where the request of a recording holds credentials."""

    key: bytes
    open_key: bytes
    """The request without credential fields and texts with placeholders."""
    outline_key: bytes
    fields: tuple[tuple[Steps, str], ...]
    """Its credential fields and what they hold."""
    texts: tuple[tuple[Steps, str], ...]
    """Other texts that have placeholders, normalised."""
    own_credentials: frozenset[str]
    """The digests of the credentials in its headers and credential fields."""

    @property
    def places(self) -> tuple[Steps, ...]:
        return tuple([steps for steps, _ in self.texts])


def may_hold_credentials(request: Request, rules: Rules, read: ReadJson | None) -> bool:
    """Whether a recorded request may hold credentials. Seldom right if `credential_places` finds none.

    `read` is the parsed JSON body, if known and no rule applies.
    """
    if _is_redacted(request):
        return True
    if not may_have_credential_fields(request, once=True):
        return False
    # The quick search takes the frequent `max_tokens` for the name of a credential.
    if read is not None:
        return has_credential_fields(request, read.value)
    return bool(open_request(request, rules, recorded=True).fields)


def credential_places(recorded: RecordedRequest, key: bytes) -> CredentialPlaces | None:
    """Where a recorded request holds credentials, None where it holds none."""
    request = recorded.request
    redacted = _is_redacted(request)
    if not redacted and not may_have_credential_fields(request):
        return None
    return _read_places(recorded, key, redacted=redacted)


def _read_places(
    recorded: RecordedRequest, key: bytes, *, redacted: bool
) -> CredentialPlaces | None:
    request, rules = recorded.request, recorded.rules
    opened = recorded.opened
    texts = tuple(_texts_with_placeholders(opened, rules)) if redacted else ()
    if not texts and not opened.fields:
        return None
    if not texts:
        open_key = document_key(request.route, opened.document, rules)
    else:
        places = tuple([steps for steps, _ in texts])
        open_key = blank_key(request.route, opened, places, rules)
    own = [text for _, text in (*request.credentials, *opened.fields)]
    return CredentialPlaces(
        key,
        open_key,
        outline_key(request.route, opened),
        opened.fields,
        texts,
        frozenset(
            [digest_of(placeholder) for text in own for placeholder in placeholders_in(text)]
        ),
    )


class CredentialIndex:
    """The recordings with credentials in one cassette."""

    def __init__(
        self, interactions: Iterable[tuple[Interaction, bytes]], rules: Rules, salt: str
    ) -> None:
        """`interactions` come with their match keys; `salt` is the cassette's."""
        self._rules = rules
        self.placeholders = RecordedPlaceholders(salt)
        """Those in recorded requests, also of recordings that have been removed."""
        self.in_large_bodies: dict[tuple[str, ...], None] = {}
        """Those of each large body, of the recording that was added last at the end."""
        self._noted: CredentialHeaders = ()
        """The credentials of the recording that was added last."""
        self._places: dict[bytes, CredentialPlaces] = {}
        self._open: dict[bytes, list[bytes]] = {}
        self._blank: dict[bytes, dict[tuple[Steps, ...], dict[bytes, list[bytes]]]] = {}
        for interaction, key in interactions:
            self.add(interaction, key)

    def add(self, interaction: Interaction, key: bytes) -> None:
        """Add a recording with its match key."""
        if key in self._places or not _may_hold_any(interaction):
            return
        request = interaction.request
        redacted = _is_redacted(request)
        self._note_placeholders(request, redacted=redacted)
        if not redacted and not may_have_credential_fields(request):
            return
        places = _read_places(RecordedRequest(request, self._rules), key, redacted=redacted)
        if places is not None:
            self._places[key] = places
            self._keys_like(places).append(key)

    def _note_placeholders(self, request: Request, *, redacted: bool) -> None:
        if redacted:
            self.placeholders.add(request.target.encode("utf-8", "surrogatepass"))
            self.placeholders.add(request.body)
            if request.file is not None and request.file.placeholders:
                self.placeholders.add(" ".join(request.file.placeholders).encode())
                self.in_large_bodies.pop(request.file.placeholders, None)
                self.in_large_bodies[request.file.placeholders] = None
        # One caller nearly always made the recording before too.
        if request.credentials != self._noted:
            self._noted = request.credentials
            for _, credential in request.credentials:
                self.placeholders.add(credential.encode("utf-8", "surrogatepass"))

    def remove(self, key: bytes) -> None:
        """Remove the recordings with this key."""
        if (places := self._places.pop(key, None)) is not None:
            self._keys_like(places).remove(key)

    def others(self, key: bytes, places: CredentialPlaces, keys: Container[bytes]) -> list[bytes]:
        """The keys of recordings that differ only in credentials from the recording with this key."""
        alike = [similar for similar in self._keys_like(places) if similar != key]
        if not places.texts and places.open_key in keys:
            alike.append(places.open_key)
        return alike

    @property
    def is_empty(self) -> bool:
        """Whether no recording holds a credential."""
        return not self._places

    def find(self, asked: ReceivedRequest, route: str, keys: Container[bytes]) -> FoundKey | None:
        """The key of the recordings on a route that answer a request, or None.

        `keys` are all keys of the cassette: a recording without a credential field answers a
        request with one.
        """
        if not self._places and not asked.variant:
            # Nearly always neither a recording nor the request holds a credential.
            return None
        found_key = self._find(asked, route, keys)
        if found_key is not None or (wide := asked.opened_wide) is None:
            return found_key
        found_key = self._find(wide, route, keys)
        return found_key if found_key is not None and found_key.own else None

    def _find(self, asked: ReceivedRequest, route: str, keys: Container[bytes]) -> FoundKey | None:
        open_key = key_on_route(asked.open_key, route)
        group = [self._places[key] for key in self._open.get(open_key, ())]
        own = [recording.key for recording in group if _is_own(recording, asked)]
        without = open_key in keys and asked.variant
        if own:
            return FoundKey(own[0])
        if len(group) + bool(without) == 1:
            return FoundKey(group[0].key if group else open_key, own=False)
        return self._find_text(asked, route) if not group and not without else None

    def _find_text(self, asked: ReceivedRequest, route: str) -> FoundKey | None:
        """The recordings that differ only in fitting texts with placeholders."""
        by_places = self._blank.get(key_on_route(asked.outline_key, route)) if self._blank else None
        fitting: list[CredentialPlaces] = []
        for places, by_key in (by_places or {}).items():
            keys = by_key.get(asked.key_without(places, route), ())
            alike = [self._places[key] for key in keys[-_MOST_COMPARED:]]
            fitting += [
                recording for recording in alike if _texts_fit(recording, asked, exactly=False)
            ]
        own = [recording.key for recording in fitting if _is_own(recording, asked)]
        if own:
            return FoundKey(own[0])
        return FoundKey(fitting[0].key, own=False) if len(fitting) == 1 else None

    def _keys_like(self, places: CredentialPlaces) -> list[bytes]:
        if not places.texts:
            return self._open.setdefault(places.open_key, [])
        by_places = self._blank.setdefault(places.outline_key, {})
        return by_places.setdefault(places.places, {}).setdefault(places.open_key, [])


def _may_hold_any(recorded: Interaction) -> bool:
    # One in a file is not read to find out.
    if isinstance(recorded, LazyInteraction):
        return recorded.file.may_hold_credentials(recorded.index)
    return True


def _is_redacted(request: Request) -> bool:
    if request.file is not None and request.file.placeholders:
        return True
    target = request.target.encode("utf-8", "surrogatepass")
    return may_have_placeholder(target) or may_have_placeholder(request.body)


def _texts_with_placeholders(opened: OpenedRequest, rules: Rules) -> Iterator[tuple[Steps, str]]:
    for steps, text in texts_in(opened.document):
        if isinstance(text, OctetsHash):
            # Of octets the document has only the hash, beside their number.
            if has_placeholder(octets := octets_text(text)):
                yield steps[:-1], octets
        elif has_placeholder(text):
            yield steps, normalised_text(text, rules)


def _is_own(recorded: CredentialPlaces, asked: ReceivedRequest) -> bool:
    """Whether credential fields and texts of the request agree with the recorded ones."""
    sent = dict(asked.opened.fields)
    return (
        sent.keys() == dict(recorded.fields).keys()
        and all(_same_credential(text, sent[steps], asked) for steps, text in recorded.fields)
        and _texts_fit(recorded, asked, exactly=True)
    )


def _same_credential(recorded: str, sent: str, asked: ReceivedRequest) -> bool:
    if recorded == sent:
        return True
    if not has_placeholder(recorded):
        return False
    if is_placeholder(recorded):
        return asked.digests.is_of(recorded, sent)
    return fits(recorded, sent, asked.digests.is_of)


def _texts_fit(recorded: CredentialPlaces, asked: ReceivedRequest, *, exactly: bool) -> bool:
    """Whether each text with placeholders is the request's text.

    A placeholder stands for a single value. But a credential of the request may stand for a credential
    of the recorded request, and, unless `exactly`, any key for a key of a known form in a path.
    """

    def accepts(placeholder: str, text: str) -> bool:
        if asked.digests.is_of(placeholder, text):
            return True
        if digest_of(placeholder) in recorded.own_credentials and asked.repeats_own_credential(
            text
        ):
            return True
        return not exactly and stands_for_any_in_path(placeholder) and "/" not in text

    return all(fits(text, asked.text_at(steps), accepts) for steps, text in recorded.texts)
