"""The secrets of one test, and everything to be searched for them at its end."""

from collections.abc import Mapping

from tests.clients.programs.raw_socket import Wire
from tests.support.canary import canary, sightings


class Leaks:
    """Hands out secrets and collects what the proxy let out."""

    def __init__(self) -> None:
        self.canaries: dict[str, str] = {}
        self.pages: dict[str, bytes] = {}

    def secret(self, name: str) -> str:
        """A new secret of that name."""
        self.canaries[name] = canary()
        return self.canaries[name]

    def collect(self, when: str, pages: Mapping[str, bytes]) -> None:
        """Keep pages, named after when they were looked at, to be searched."""
        self.pages |= {f"{when}, {place}": content for place, content in pages.items()}

    def page(self, name: str, wire: Wire) -> Wire:
        """The answer, kept to be searched."""
        self.pages[name] = repr(wire.fields).encode() + wire.body
        return wire

    def found(self) -> list[str]:
        """Where any of the secrets is seen. There must be secrets, and pages to search."""
        assert self.canaries
        assert self.pages
        return sightings(self.canaries, self.pages)
