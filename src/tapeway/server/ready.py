"""Replays as they leave, kept for the next time: the same recording is the same bytes."""

from dataclasses import replace

from tapeway.core.http.headers import find
from tapeway.core.model.interaction import Interaction
from tapeway.core.streams.pacing import AT_ONCE, paced
from tapeway.server.wire import marks, serialise

KEPT = 256
KEPT_BYTES = 64 * 1024
"""Larger answers are serialised anew: at most 16 MiB are kept for this."""

_Variant = tuple[int, bool, tuple[int, int], bool]


class ReadyAnswers:
    """Serialises replays, remembering the last ones."""

    def __init__(self) -> None:
        self._kept: dict[_Variant, tuple[Interaction, list[bytes]]] = {}

    def pieces(
        self,
        interaction: Interaction,
        cassette: str,
        *,
        method: str,
        version: tuple[int, int],
        keep_alive: bool,
    ) -> list[bytes] | None:
        """The bytes of a recorded answer for this kind of request.

        None where it has a Location, since what that must say depends on the request, and for a
        large body.
        """
        variant = (id(interaction), method == "HEAD", version, keep_alive)
        kept = self._kept.get(variant)
        # An id may be given out again; holding the interaction shows that it was not.
        if kept is not None and kept[0] is interaction:
            return kept[1]
        response = interaction.response
        if find(response.headers, b"location") is not None or response.file is not None:
            return None
        head = paced(response.head, AT_ONCE)
        pieces = serialise(
            response if head is response.head else replace(response, head=head),
            marks("replayed", cassette, interaction.index),
            method=method,
            version=version,
            keep_alive=keep_alive,
        )
        if sum(map(len, pieces)) <= KEPT_BYTES:
            if len(self._kept) >= KEPT:
                self._kept.clear()
            self._kept[variant] = (interaction, pieces)
        return pieces
