"""Whether all of a cassette is what it says: large bodies, keys, and a way there and back."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tapeway.core import match_key
from tapeway.core.model import (
    BodyFile,
    CassetteHead,
    ForeignInteraction,
    Interaction,
    Request,
    Response,
    StoredCassette,
)
from tapeway.errors import StoreError
from tapeway.formats import native
from tapeway.formats.fault import FormatFault
from tapeway.spool import pieces

Held = Interaction | ForeignInteraction


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an interaction, by its index."""

    index: int
    reason: str


def problems(stored: StoredCassette) -> Iterator[Problem]:
    """All there are. Large bodies are read from their files, once each."""
    read: set[str] = set()
    for item in stored.interactions:
        if isinstance(item, Interaction):
            for file in large_bodies(item):
                if file.digest not in read:
                    read.add(file.digest)
                    yield from [Problem(item.index, each) for each in _of_file(file)]
            yield from [Problem(item.index, each) for each in _of_key(item)]
        yield from [Problem(item.index, each) for each in _of_the_way_back(item)]


def large_bodies(item: Held) -> list[BodyFile]:
    """The bodies of an interaction that lie in files."""
    if isinstance(item, ForeignInteraction):
        return []
    return [file for file in (item.request.file, item.response.file) if file is not None]


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
    made = match_key.of_http(item.request)
    if made and made != item.match_key:
        yield (
            "its match_key is not that of the request as it stands: tapeway takes its own from the "
            f"request, AgentTape's tools would look for {made}"
        )


def _of_the_way_back(item: Held) -> Iterator[str]:
    try:
        written = native.write(_NO_HEAD, [native.encode(item)])
        found = native.load(written).interactions[0]
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
