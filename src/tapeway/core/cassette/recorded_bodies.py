"""The match keys of recorded JSON bodies, by the bytes of these bodies.

Clients repeat what they sent when it was recorded. A body with the same bytes, sent in the same way,
has the same match key, so it is neither parsed nor hashed: for a long conversation that takes longer
than all else that a replay needs.
"""

from tapeway.core.http.headers import request_fields
from tapeway.core.model.filed import FiledInteraction
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request

Way = tuple[str, str, Headers]
"""Method, target, and the header fields that belong to the match key."""


def way_of(request: Request) -> Way | None:
    """How a request is sent; None where its body is not said to be plain JSON."""
    fields = request_fields(request.headers)
    if not fields.is_plain_json or request.coding:
        return None
    return request.method, request.target, fields.selecting


class RecordedBodies:
    """What is known of one cassette's recordings, whatever their route.

    Nothing in it becomes wrong while the rules of the cassette stay: a match key depends on nothing
    else than way, body and rules. It holds no copies of bodies, but for those of requests that
    recordings in a file have answered.
    """

    def __init__(self) -> None:
        self._keys: dict[Way, dict[bytes, bytes]] = {}
        """Each body's match key on the route where it was recorded, by the way it is sent."""
        self._asked: list[tuple[Way, bytes]] = []

    def key_of(self, way: Way, body: bytes) -> bytes | None:
        """The match key of a request that is sent so, on the route where it was recorded.

        None where its body is not known.
        """
        keys = self._keys.get(way)
        return None if keys is None else keys.get(body)

    def add(self, recorded: Interaction, key: bytes) -> None:
        """Know a recording, and the match key that was made of its request."""
        request = recorded.request
        # A recording by AgentTape may have a key that differs from its request's key.
        if request.body and not recorded.stored_keys and (way := way_of(request)) is not None:
            self._keys.setdefault(way, {})[request.body] = key

    def add_asked(self, request: Request, key: bytes) -> None:
        """Know the key of a request that was asked, whose recording is in a file."""
        if request.body and (way := way_of(request)) is not None:
            self._keys.setdefault(way, {})[request.body] = key
            self._asked.append((way, request.body))

    def forget_asked(self) -> None:
        """Let go of what `add_asked` added."""
        for way, body in self._asked:
            self._keys[way].pop(body, None)
        self._asked.clear()

    def discard(self, recorded: Interaction) -> None:
        """Let go of the body of a recording that is removed."""
        if isinstance(recorded, FiledInteraction):
            # What was asked for it leads to a key that nothing has any more.
            return
        request = recorded.request
        if (way := way_of(request)) in self._keys:
            self._keys[way].pop(request.body, None)
