"""The login of a client's connection, where a login holds for the connection and not for a request."""

from collections.abc import Callable, Hashable
from typing import Protocol


class Kept(Protocol):
    """A connection to an upstream."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, by whom ever."""

    def close(self) -> None:
        """Close it."""


class ClientLogin:
    """Whether a client's connection has logged in, and its own connections to upstreams.

    NTLM and its kin authenticate a connection: whoever sends the next request on it is the user. So
    the connections over which a client logs in are the client's alone, and end with its connection.
    """

    __slots__ = ("_kept", "_new_id", "id", "is_over")

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.id = ""
        """Tells the user of the connection from others; empty until somebody logs in."""
        self.is_over = False
        """Whether the client's connection has ended."""
        self._kept: dict[Hashable, Kept] = {}

    def begin(self) -> None:
        """A step of a login: from now on the user may be another one."""
        self.id = self._new_id()

    def keep(self, place: Hashable, connection: Kept) -> None:
        """Keep a connection to a place for the client's next request."""
        if self.is_over or place in self._kept:
            connection.close()
        else:
            self._kept[place] = connection

    def take(self, place: Hashable) -> Kept | None:
        """The client's own connection to a place, if one is open and not in use."""
        own = self._kept.pop(place, None) if self._kept else None
        if own is None or not own.closed:
            return own
        own.close()
        return None

    def end(self) -> None:
        """The client's connection has ended, and with it what is kept."""
        self.is_over = True
        while self._kept:
            self._kept.popitem()[1].close()
