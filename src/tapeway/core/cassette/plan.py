"""What the broker decides about a request: replay a recording, ask the upstream, or report a miss.

Values made for every replay, and what is asked, are named tuples: a frozen dataclass takes several
times as long to make.
"""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tapeway.core.cassette.cursors import Take
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.http.content_codings import decoded_request
from tapeway.core.http.sdk_conventions import call_mark
from tapeway.core.json_text import ReadJson
from tapeway.core.matching.key import KeyAndBody
from tapeway.core.matching.received_request import ReceivedRequest
from tapeway.core.matching.rules import Rules
from tapeway.core.misses.miss import Miss
from tapeway.core.model.cassette import CassetteHead, Lease
from tapeway.core.model.control import Mode, ModePolicy, Outcome
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.spans import MARKS, PLACEHOLDER, label_of
from tapeway.core.streams.renamed_calls import names_in

_MOST_IDS_NAMED = 5


class LargeBodyDigests(NamedTuple):
    """The digests of a large body as received and, where no equal body answers, without secrets."""

    sent: BodyFile
    stored: BodyFile | None = None
    others: tuple[BodyFile, ...] = ()
    """As earlier versions recorded it, or processes that knew fewer values."""
    secrets: tuple[Secret, ...] = ()
    """The values that the body taught, and those of recorded placeholders in it."""
    compared: int = 0
    """How many recorded placeholders it was compared with."""
    coding: bytes = b""
    """The content coding that the body was decoded from for all of these."""

    def as_sent(self, request: Request) -> Request:
        """The request with the digest of its body as it was sent, decoded if it was decoded."""
        return replace(decoded_request(request) if self.coding else request, file=self.sent)


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """A request with a large body, prepared for a look-up in a thread.

    Valid for the rules and the salt of one cassette.
    """

    salt: str
    asked: ReceivedRequest
    redacted: Request | None = None
    """As the cassette would store it; None where it is not needed."""
    secrets: tuple[Secret, ...] = ()
    redacted_key: bytes = b""

    def is_for(self, head: CassetteHead, rules: Rules) -> bool:
        """Whether the preparation is for a cassette with this head and these rules."""
        return self.salt == head.run_id and self.asked.rules == rules


class Incoming(NamedTuple):
    """A request as the client sent it."""

    request: Request
    route_guessed: bool = False
    """Whether the route was derived from the path instead of named by the client."""
    mode: Mode | None = None
    """The mode in force at the arrival of the head, even if the body came later."""
    large_body: LargeBodyDigests | None = None
    """Set once the large body of the request was read."""
    take: int | None = None
    """The take of the request, if it may differ from the cassette's take at the decision:
    the take of the slot, or in mode `record` the take at the arrival.
    """
    large: LargeRequest | None = None
    """Set once the large body of the request, which is in memory, was read."""
    known: Collection[int] | None = None
    """The recordings of an equal request from before the wait for an equal call."""
    keyed: KeyAndBody | None = None
    """The match key, if known already."""
    only_looks: bool = False
    """Whether it is asked what would answer, and nothing counts as used."""

    def large_for(self, head: CassetteHead, rules: Rules) -> LargeRequest | None:
        """The digests of a large body, if computed for a cassette with this head and these rules."""
        large = self.large
        return large if large is not None and large.is_for(head, rules) else None


class Replay(NamedTuple):
    """A recording answers. `target` is the redacted target, or a function that makes it.

    `note` explains how the recording was found if not by its key.
    """

    cassette: CassetteIndex
    interaction: Interaction
    target: str | Callable[[], str]
    key: bytes
    note: str | None = None
    base: str = ""
    """The base that the recording is in, if the cassette has it from there."""


def in_its_base(cassette: CassetteIndex, interaction: Interaction) -> tuple[str, Interaction]:
    """The base that a recording is in, and the recording with its index there; "" for none."""
    if (found := cassette.in_base(interaction.index)) is None:
        return "", interaction
    base, index = found
    return base, replace(interaction, index=index)


class LiveCall(NamedTuple):
    """The upstream will be called; take and policy are those in force when the request arrived."""

    cassette: CassetteIndex
    take: Take
    policy: ModePolicy
    request: Request
    redacted: Request
    secrets: tuple[Secret, ...]
    """The secrets of the request, to be replaced wherever the answer repeats them."""
    key: bytes
    variant: bytes = b""
    """A digest of the values of credential fields."""
    caller: bytes = b""
    """What tells its caller from others."""
    writes_before: int = 0
    """How many writes the take has asked live on the route: a later one gets no earlier answer."""
    may_be_joined: bool = False
    """Whether equal requests that come meanwhile get the same answer: in a mode that replays they may
    for calls to a model and reads, never for two writes."""
    asked_again: str | None = None
    """Why the upstream is asked despite a recording."""
    replayed_ids: tuple[str, ...] = ()
    """Identifiers issued by recordings of other takes: the upstream may not know them."""
    incoming: Incoming | None = None
    """The decided request, for a second decision."""
    shared: bool = False
    """Whether more instances record into the store."""
    lease: Lease | None = None
    reserved: int | None = None
    """The index that is reserved for the recording in a shared store."""
    sets: str = ""
    """What the cassette has set in the body, for people."""
    read: ReadJson | None = None
    """The parsed body of `redacted`, if parsed without loss."""

    @property
    def target(self) -> str:
        return self.redacted.target

    @property
    def mark(self) -> bytes:
        """What the client repeats when it retries the call, b"" for nothing."""
        return call_mark(self.request.fields.first)

    @property
    def shows_secrets(self) -> bool:
        """Whether secrets were replaced in what the match key covers."""
        sent, stored, digests = self.request, self.redacted, self.digests
        if digests is not None and stored.file is not None:
            same_body = stored.file.digest == digests.sent.digest
        else:
            same_body = stored.body is sent.body
        return not same_body or stored.target != sent.target

    @property
    def digests(self) -> LargeBodyDigests | None:
        """Those of the large body of the request."""
        return None if self.incoming is None else self.incoming.large_body

    @property
    def flight(self) -> bytes:
        """A key, equal for requests that may share a call.

        Such requests have one caller and equal credentials, with no write in between, and the
        answer names its call to no other.
        """
        told_apart = b"%b\0%b\0%d" % (self.variant, self.caller, self.writes_before)
        names = [name or b"" for call in names_in(self.request) for name in call]
        return self.key + hashlib.sha256(b"\0".join([told_apart, *names])).digest()

    @property
    def note(self) -> str | None:
        """The note for the journal, or None."""
        notes = [] if self.asked_again is None else [f"asked live: {self.asked_again}"]
        if self.sets:
            notes.append(f"asked with {self.sets}")
        if self.replayed_ids:
            more = " …" if len(self.replayed_ids) > _MOST_IDS_NAMED else ""
            notes.append(
                "sent upstream with identifiers from a recording, which the upstream may not know: "
                f"{', '.join(self.replayed_ids[:_MOST_IDS_NAMED])}{more}"
            )
        return "; ".join(notes) or None


Plan = Replay | LiveCall | Miss


class Answer(NamedTuple):
    """A whole answer and its origin. `index` names the recording, if any.

    `note` explains why a successful answer was not recorded, or why the recording is in doubt.
    """

    outcome: Outcome
    cassette: str
    response: Response
    index: int | None  # type: ignore[assignment] # of no use here is the method of tuples
    key: bytes
    note: str | None = None
    recorded: Interaction | None = None
    """The recording as it is stored."""

    @property
    def redacted(self) -> Sequence[str]:
        """The kind of each secret that was replaced in the new recording, as its placeholder has it."""
        if self.outcome != "recorded" or self.recorded is None:
            return ()
        request, response = self.recorded.request, self.recorded.response
        held = [request.target.encode("utf-8", "surrogateescape"), request.body]
        held += [value for _, value in request.headers]
        # Most responses are stored as they came.
        if response is not self.response:
            held += [response.body, *[value for _, value in response.headers]]
        text = b"\n".join(held)
        if max(map(text.find, MARKS)) < 0:
            return ()
        return [label_of(placeholder) for placeholder in {*PLACEHOLDER.findall(text)}]
