"""Whatever a recording may say comes back as it was, under whatever name."""

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Failure, Request, Response, ResponseHead
from tapeway.formats.native import document
from tapeway.ports import CassetteStore
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import Kind, Place
from tests.stores.large_bodies import body, contents, kept, large
from tests.stores.recordings import HEAD, answers, bodies, record, recording
from tests.support.exchanges import interaction
from tests.support.thoroughness import examples

SEGMENT = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)
NAME = st.lists(SEGMENT, min_size=1, max_size=8).map("/".join).filter(valid_cassette_name)
"""Not those that Windows cannot hold, such as `CON` and `a.`."""
ODD = "\0 \x1b \u2028 \ufeff \U0001f3bc é"
EVENTS = ((b"data: 1\n", 1.5), (b"\n\0\xff", 20.25))
META: dict[str, Json] = {"deep": [{"er": [None, 1, 1.5, 2**70, "1", True, ODD]}], ODD: {}}
BARE = Request("default", "GET", "/\udcff?a=\udcfe", ((b"X-A", b"\xff\x80"),), b"\0\xff\xfe")
OTHER_KINDS = ("llm", "tool", "retrieval", "memory_read", "memory_write")


def _exchanges() -> Iterable[Interaction]:
    plain = interaction()
    yield replace(plain, tags=("smoke", ODD), usage=META, metadata=META)
    odd = ResponseHead(200, "\udcff", framing="chunked")
    yield replace(plain, response=Response.of_chunks(odd, EVENTS))
    yield Interaction(0, BARE, Response(ResponseHead(204, framing="close", version="HTTP/1.0")))
    yield replace(plain, failure=Failure("cut", f"it broke off {ODD}"))
    yield replace(plain, response=Response(ResponseHead(0)), failure=Failure("timeout", "silent"))


def _foreign() -> Iterable[ForeignInteraction]:
    for kind in OTHER_KINDS:
        fields: dict[str, Json] = {"kind": kind, "boundary": ODD, "request": {"args": META}}
        yield ForeignInteraction(0, {**fields, "response": META, "match_key": "k", "unknown": ODD})
        yield ForeignInteraction(0, {**fields, "error": {"type": "ValueError", "message": ODD}})
    fields = {"kind": "http", "request": {"method": "GET", "url": "http://h/"}}
    yield ForeignInteraction(0, {**fields, "error": {"type": "ReadTimeout", "module": "httpx"}})


EVERYTHING: list[AnyInteraction] = [
    *[replace(exchange, index=at) for at, exchange in enumerate(_exchanges())],
    *[replace(item, index=at) for at, item in enumerate(_foreign(), 5)],
]


@pytest.mark.parametrize("saved", [False, True])
async def test_every_kind_of_interaction_comes_back_as_it_was(place: Place, saved: bool) -> None:
    head = CassetteHead("2026-11-21T20:35:14.904097+05:30", ODD, META)
    given = StoredCassette(head, tuple(EVERYTHING))
    async with opened(place.again()) as store:
        if saved:
            await store.save("x", given)
        else:
            for item in EVERYTHING:
                await store.append("x", head, Recording(item))
        await store.release("x")

    async with opened(place.again()) as store:
        found = await store.load("x", writable=False)

    assert found is not None
    assert found.head == head
    assert [item.index for item in found.interactions] == [item.index for item in EVERYTHING]
    assert _settled(found) == _settled(given)


def _settled(cassette: StoredCassette) -> StoredCassette:
    # A file says an octet of a path as `%FF`, however it came, and the next one has a key for that.
    once = document.load(document.save(cassette))
    return document.load(document.save(once))


@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(name=NAME, content=st.binary(max_size=99))
async def test_any_name_and_any_octet_is_kept(
    kind: Kind, server: str, tmp_path_factory: pytest.TempPathFactory, name: str, content: bytes
) -> None:
    # A place for each example: a folder refuses a name that differs only in case from one it holds,
    # and the folders of `Z/0` stay when that cassette is removed.
    folder = tmp_path_factory.mktemp("example")
    async with kind.place(folder, server) as place, opened(place.again()) as store:
        await store.append(name, HEAD, recording(0, body=content))
        await store.release(name)
        assert await store.names() == [name]
        assert bodies(await store.load(name, writable=False)) == [content or answers(0)[0]]
        await store.release(name)
        assert await store.remove(name)
        assert await store.names() == []


async def test_the_longest_names_are_kept(place: Place) -> None:
    names = ["/".join(letter * 128 for letter in "abcdefgh"), "a" * 128, "0.-_", "a." * 63 + "ab"]
    async with opened(place.again()) as store:
        for number, name in enumerate(names):
            await record(store, number, name=name)

    async with opened(place.again()) as store:
        assert await store.names() == sorted(names)
        for number, name in enumerate(names):
            assert bodies(await store.load(name, writable=False)) == answers(number)


async def test_a_large_body_is_kept_and_handed_out_as_a_file(place: Place) -> None:
    content = bytes(range(256)) * 10_000
    pieces = [content[at : at + 100_000] for at in range(0, len(content), 100_000)]
    async with opened(place.again()) as store:
        first = await kept(store, pieces)
        await store.append("x", HEAD, large(0, first))
        second = await kept(store, [body(1)])
        await store.append("x", HEAD, large(1, second))
        await store.append("x", HEAD, recording(2, 1))

        assert (first.size, first.digest) == (len(content), hashlib.sha256(content).hexdigest())
        assert await asyncio.to_thread(contents, await store.load("x", writable=True)) == [
            content,
            *answers(2),
        ]
        await store.release("x")

    async with opened(place.again()) as store:
        found = await store.load("x", writable=False)
        assert await asyncio.to_thread(contents, found) == [content, *answers(2)]
        assert found is not None
        (item, _) = found.interactions
        assert isinstance(item, Interaction)
        assert item.response.file is not None
        assert item.response.file.digest == first.digest
        assert item.response.chunk_times == large(0, first).exchange.response.chunk_times


async def test_a_large_body_that_breaks_off_leaves_nothing(store: CassetteStore) -> None:
    def broken() -> Iterable[bytes]:
        yield body(0)
        raise ValueError("the upstream left")

    with pytest.raises(ValueError, match="the upstream left"):
        await kept(store, broken())
    await store.append("x", HEAD, large(0, await kept(store, [body(1)])))

    assert await asyncio.to_thread(contents, await store.load("x", writable=False)) == [body(1)]
