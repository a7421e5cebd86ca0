"""Whether all of a cassette is what it says: large bodies, keys, and a way there and back."""

from collections.abc import Iterator
from dataclasses import replace

from tapeway.body_files import pieces
from tapeway.cli.keys import Keys, Problem
from tapeway.core.agenttape import key
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, Held
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.errors import StoreError
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.document import encode, load, write
from tapeway.paging import large_bodies
from tapeway.ports import CassetteStore, SharedStore


class Verification:
    """Looks at the interactions of a cassette as they go by; `bodies` are the large ones among them.

    In a store with an index they have to be found there where their requests say.
    """

    def __init__(self, store: CassetteStore, name: str, rules: Rules) -> None:
        self.interactions = 0
        self.bodies: set[str] = set()
        self._keys = Keys(store, name, rules) if isinstance(store, SharedStore) else None

    async def problems(self, item: Held) -> list[Problem]:
        """All there are with this one. A large body is read, once. Raises StoreError."""
        self.interactions += 1
        found = [*self._of_files(item), *_of_item(item)]
        misplaced = await self._keys.problems(item) if self._keys is not None else []
        return [*[Problem(item.index, each) for each in found], *misplaced]

    def left(self) -> list[Problem]:
        """What is known only at the end."""
        return self._keys.left() if self._keys is not None else []

    def _of_files(self, item: Held) -> Iterator[str]:
        for file in large_bodies(item):
            if file.digest not in self.bodies:
                self.bodies.add(file.digest)
                yield from _of_file(file)


def _of_item(item: Held) -> Iterator[str]:
    if isinstance(item, Interaction):
        yield from _of_key(item)
    yield from _of_the_way_back(item)


def _of_file(file: BodyFile) -> Iterator[str]:
    try:
        for _ in pieces(file):
            pass
    except StoreError as exc:
        yield exc.message


def _of_key(item: Interaction) -> Iterator[str]:
    # Of another tool's recording, the key is that of a request nobody has seen.
    if item.stored_keys or not item.match_key:
        return
    made = key.of_http(item.request)
    if made and made != item.match_key:
        yield (
            "its match_key is not that of the request as it stands: tapeway takes its own from the "
            f"request, AgentTape's tools would look for {made}"
        )


def _of_the_way_back(item: Held) -> Iterator[str]:
    try:
        written = write(_NO_HEAD, [encode(item)])
        found = load(written).interactions[0]
    except FormatFault as fault:
        yield f"it cannot be written and read again: {fault}"
        return
    if _plain(found) != _plain(item):
        yield "written and read again, it is another one"


def _plain(item: Held) -> Held:
    """The interaction without what only its place in a store gives it."""
    if isinstance(item, ForeignInteraction):
        document = {name: each for name, each in item.document.items() if name != "index"}
        return ForeignInteraction(0, document)
    request: Request = item.request
    response: Response = item.response
    if request.file is not None:
        request = replace(request, file=replace(request.file, path=""))
    if response.file is not None:
        response = replace(response, file=replace(response.file, path=""))
    return replace(item, index=0, request=request, response=response, match_key="")


_NO_HEAD = CassetteHead("", "")
