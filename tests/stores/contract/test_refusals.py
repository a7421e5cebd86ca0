"""What no store takes: it says so, and nothing has changed."""

from dataclasses import replace

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import Recording, StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.errors import RequestError, StoreError
from tapeway.ports import CassetteStore
from tests.stores.contract.conftest import opened
from tests.stores.contract.kinds import Place
from tests.stores.large_bodies import kept
from tests.stores.recordings import HEAD, answers, bodies, recording

BAD_NAMES = [
    *("", ".", "..", "../x", "/etc/x", "a/../b", "a//b", "a/", "-a", ".a", "a b", "a\0b", "..%2fx"),
    *("ä", "\uff41", "a\n", "x" * 129, "/".join("abcdefghi"), "a\\b", "\udcff", "'", '"', "%"),
]


async def test_a_name_that_is_none_is_refused(store: CassetteStore) -> None:
    for name in BAD_NAMES:
        with pytest.raises(RequestError):
            await store.load(name, writable=True)
        with pytest.raises(RequestError):
            await store.append(name, HEAD, recording(0))
        with pytest.raises(RequestError):
            await store.save(name, StoredCassette(HEAD))
        with pytest.raises(RequestError):
            await store.release(name)
        with pytest.raises(RequestError):
            await store.stat(name)
        with pytest.raises(RequestError):
            await store.remove(name)
        with pytest.raises(RequestError):
            await kept(store, [b"body"], name)
    assert await store.names() == []


async def test_a_recording_that_could_not_be_read_again_is_refused(store: CassetteStore) -> None:
    good = recording(0)
    head = replace(good.exchange.response.head, status=101)
    response = replace(good.exchange.response, head=head)
    bad = Recording(replace(good.exchange, response=response))

    with pytest.raises(StoreError, match="status_code"):
        await store.append("x", HEAD, bad)
    await store.append("x", HEAD, good)
    with pytest.raises(StoreError, match="status_code"):
        await store.save("x", StoredCassette(HEAD, (bad.interaction,)))

    assert bodies(await store.load("x", writable=True)) == answers(0)


async def test_a_cassette_that_cannot_be_written_as_text_is_refused(store: CassetteStore) -> None:
    exchange = recording(1).exchange
    bad = replace(exchange, request=replace(exchange.request, route="half\ud800"))
    await store.append("x", HEAD, recording(0))

    with pytest.raises(StoreError):
        await store.save("x", StoredCassette(HEAD, (bad,)))

    assert bodies(await store.load("x", writable=True)) == answers(0)


def _deep(levels: int) -> Json:
    value: Json = 1
    for _ in range(levels):
        value = [value]
    return value


NO_JSON = ["\ud800", _deep(198), float("nan"), float("-inf"), 10**5000, {1: 2}, (1, 2), b"octets"]


@pytest.mark.parametrize("odd", NO_JSON, ids=lambda odd: type(odd).__name__)
async def test_what_would_not_be_read_again_as_it_is_is_refused(
    store: CassetteStore, odd: Json
) -> None:
    foreign = ForeignInteraction(1, {"kind": "tool", "request": {"args": odd}, "response": 1})
    exchange = replace(recording(1).exchange, metadata={"said": odd})
    await store.append("x", HEAD, recording(0))

    for bad in (foreign, exchange):
        with pytest.raises(StoreError):
            await store.append("x", HEAD, Recording(bad))
        with pytest.raises(StoreError):
            await store.save("x", StoredCassette(HEAD, (bad,)))
    with pytest.raises(StoreError):
        await store.save("x", StoredCassette(replace(HEAD, meta={"odd": odd})))

    await store.release("x")
    assert bodies(await store.load("x", writable=True)) == answers(0)


async def test_what_lies_deep_is_kept(place: Place) -> None:
    deep: dict[str, Json] = {"kind": "tool", "request": {"args": _deep(196)}, "response": 1}
    async with opened(place.again()) as store:
        await store.append("x", HEAD, Recording(ForeignInteraction(0, deep)))
        await store.save("y", StoredCassette(HEAD, (ForeignInteraction(0, deep),)))
        await store.release("x")

    async with opened(place.again()) as store:
        for name in ("x", "y"):
            found = await store.load(name, writable=False)
            assert found is not None
            (kept,) = found.interactions
            assert isinstance(kept, ForeignInteraction)
            assert kept.document["request"] == deep["request"]


async def test_a_recording_that_still_shows_a_credential_is_refused_and_says_where(
    store: CassetteStore,
) -> None:
    guard = LeakGuard([Secret("x-api-key", b"the-very-secret-value")])
    good = replace(recording(0), check=guard.check)
    leaking = replace(recording(1, body=b'{"answer": "the-very-secret-value"}'), check=guard.check)
    document: dict[str, Json] = {"kind": "tool", "request": {}, "response": "the-very-secret-value"}
    other = Recording(ForeignInteraction(1, document), check=guard.check)

    with pytest.raises(StoreError) as refused:
        await store.append("x", HEAD, leaking)
    assert await store.load("x", writable=True) is None
    await store.append("x", HEAD, good)
    with pytest.raises(StoreError, match="would still be in response;"):
        await store.append("x", HEAD, other)

    assert (refused.value.status, refused.value.code) == (502, "recording_failed")
    assert "'x-api-key' would still be in response.json.answer" in refused.value.message
    assert "very-secret" not in repr(refused.value)
    assert bodies(await store.load("x", writable=True)) == answers(0)
