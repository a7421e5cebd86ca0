"""The conversations of a cassette as JSON texts, for pages and for searches."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from tapeway.conversations.model import ConversationMessage, document
from tapeway.conversations.transcript import Transcript
from tapeway.conversations.turns import CallTurn, CassetteTurns
from tapeway.cooperative import Yielding
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.json_paths import texts_in
from tapeway.core.model.interaction import Interaction
from tapeway.inspection.session import session

_MOST_LEFT_OUT = 1000


@dataclass(frozen=True, slots=True)
class WantedMessages:
    """Which messages are wanted: of a conversation, of a range of interactions, with a text."""

    conversation: int | None = None
    first: int | None = None
    last: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class _WrittenMessage:
    number: int
    conversation: int
    interaction: int
    text: bytes
    says: str


@dataclass(frozen=True, slots=True)
class _WrittenTurn:
    number: int
    conversation: int
    text: bytes
    outline: bytes
    """The text of the turn without the new messages."""


class Conversations:
    """All messages and turns of one version of a cassette."""

    def __init__(
        self, transcript: Transcript, turns: CassetteTurns, sessions: Iterable[Interaction] = ()
    ) -> None:
        """Read both, and those of the sessions in which something is said; call it in a thread."""
        yielding = Yielding()
        self._messages: list[_WrittenMessage] = []
        self._turns: list[_WrittenTurn] = []
        for number, message in enumerate(transcript.messages):
            self._messages.append(_message(number, message))
            yielding.step()
        for number, turn in enumerate(turns.turns):
            self._turns.append(_turn(number, turn))
            yielding.step()
        self._left_out: list[Json] = [asdict(call) for call in transcript.left_out[:_MOST_LEFT_OUT]]
        self._rest: dict[str, Json] = {
            "sums": turns.sums,
            "largest_results": [asdict(result) for result in turns.largest_results],
            "left_out": self._left_out,
            "sessions": [item.index for item in sessions if _is_spoken(item)],
        }
        self.size = sum(
            len(message.text) + sys.getsizeof(message.says) for message in self._messages
        )
        self.size += sum(len(turn.text) + len(turn.outline) for turn in self._turns)

    def messages(self, query: WantedMessages, after: int | None, limit: int) -> bytes:
        """A page of messages as the API returns it."""
        matching = [*self._matching(query)]
        later = [message for message in matching if after is None or message.number > after]
        page = later[:limit]
        rest: dict[str, Json] = {
            "left_out": self._left_out,
            "found": len(matching),
            "next": page[-1].number if len(later) > limit else None,
        }
        return b'{"messages":%b,%b' % (_list([item.text for item in page]), dump(rest)[1:])

    def turns(self, conversation: int | None, after: int | None, limit: int) -> bytes:
        """A page of turns as the API returns it."""
        page, following = self._page(conversation, after, limit)
        return self._written([item.text for item in page], following)

    def outlines(self, conversation: int | None, after: int | None) -> bytes:
        """All turns, without their new messages."""
        page, _ = self._page(conversation, after, len(self._turns))
        return self._written([item.outline for item in page], None)

    def _matching(self, query: WantedMessages) -> Iterator[_WrittenMessage]:
        words = query.text.casefold()
        first = 0 if query.first is None else query.first
        for message in self._messages:
            if query.conversation in (None, message.conversation) and (
                first <= message.interaction
                and (query.last is None or message.interaction <= query.last)
                and words in message.says
            ):
                yield message

    def _page(
        self, conversation: int | None, after: int | None, limit: int
    ) -> tuple[Sequence[_WrittenTurn], int | None]:
        start = 0 if after is None else after + 1
        later = self._turns[start:]
        if conversation is not None:
            later = [message for message in later if message.conversation == conversation]
        page = later[:limit]
        return page, page[-1].number if len(later) > len(page) else None

    def _written(self, turns: Sequence[bytes], following: int | None) -> bytes:
        rest = self._rest | {"next": following}
        return b'{"turns":%b,%b' % (_list(turns), dump(rest)[1:])


def _is_spoken(item: Interaction) -> bool:
    found = session(item)
    return found is not None and bool(found["transcript"])


def _message(number: int, message: ConversationMessage) -> _WrittenMessage:
    written = document(message)
    says = [part.text for part in message.parts if part.text]
    for part in message.parts:
        if part.kind in ("call", "attachment"):
            says += [part.name, *[text for _, text in texts_in(part.value)], _written(part.value)]
    return _WrittenMessage(
        number,
        message.conversation,
        message.interaction,
        dump({"number": number, **written}),
        "\0".join(says).casefold(),
    )


def _written(value: Json) -> str:
    return dump(value).decode("utf-8", "replace")


def _turn(number: int, turn: CallTurn) -> _WrittenTurn:
    members: dict[str, Json] = {"number": number, **turn.document}
    outline: dict[str, Json] = members | {"new": [], "largest_results": []}
    return _WrittenTurn(number, turn.conversation, dump(members), dump(outline))


def _list(texts: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(texts)
