"""The match keys of recorded JSON bodies, by the bytes of the bodies.

Clients repeat the recorded requests. A body with equal bytes, sent with an equal head,
has an equal match key, and is neither parsed nor hashed: for a long conversation both take longer
than the rest of a replay.
"""

from tapeway.core.model.interaction import Interaction
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import Headers, Request

SelectingHead = tuple[str, str, Headers]
"""Method, target, and the header fields that belong to the match key."""


def selecting_head(request: Request) -> SelectingHead | None:
    """The part of the head that decides the match key; None if the type is not plain JSON."""
    fields = request.fields
    if not fields.is_plain_json or request.coding:
        return None
    return request.method, request.target, fields.selecting


class RecordedBodies:
    """The known bodies of one cassette's recordings on any route.

    Entries stay right while the rules of the cassette stay: a match key depends only on head, body
    and rules. Bodies are not copied, except bodies of requests that
    recordings in a file have answered.
    """

    def __init__(self) -> None:
        self._keys: dict[SelectingHead, dict[bytes, bytes]] = {}
        """The match key of each body on the recorded route, by head."""
        self._asked: list[tuple[SelectingHead, bytes]] = []

    def key_of(self, head: SelectingHead, body: bytes) -> bytes | None:
        """The match key of a request on the recorded route.

        None for an unknown body.
        """
        keys = self._keys.get(head)
        return None if keys is None else keys.get(body)

    def add(self, recorded: Interaction, key: bytes) -> None:
        """Remember a recording with the match key of the request."""
        request = recorded.request
        # A recording by AgentTape may have a key that differs from the request's key.
        if (
            request.body
            and not recorded.stored_keys
            and (head := selecting_head(request)) is not None
        ):
            self._keys.setdefault(head, {})[request.body] = key

    def add_asked(self, request: Request, key: bytes) -> None:
        """Remember the key of a request whose recording is in a file."""
        if request.body and (head := selecting_head(request)) is not None:
            self._keys.setdefault(head, {})[request.body] = key
            self._asked.append((head, request.body))

    def forget_asked(self) -> None:
        """Let go of what `add_asked` added."""
        for head, body in self._asked:
            self._keys[head].pop(body, None)
        self._asked.clear()

    def discard(self, recorded: Interaction) -> None:
        """Let go of the body of a recording that is removed."""
        if isinstance(recorded, LazyInteraction):
            # The remembered requests lead to a key without recordings.
            return
        request = recorded.request
        if (head := selecting_head(request)) in self._keys:
            self._keys[head].pop(request.body, None)
