"""What a store on another tapeway does when that, or what lies between, does not do as it should."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import replace

import pytest
from aiohttp import ClientSession, web

from tapeway.body_files import body_pieces
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.messages import BodyFile
from tapeway.errors import (
    CassetteCorrupt,
    CassetteEdited,
    CassetteLocked,
    ConfigError,
    StoreAway,
    StoreError,
    StoreFull,
    StorePoisoned,
)
from tapeway.stores.memory import MemoryStore
from tests.stores.contract.conftest import opened
from tests.stores.large_bodies import contents, large
from tests.stores.model_store import ModelPlace, ModelStore
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.stores.remote.between import (
    Between,
    Forward,
    Spoil,
    answered,
    between,
    broken,
    changed,
    lost,
    twice,
)
from tests.stores.remote.far_side import FarSide, far_side

APPEND = "POST /api/v1/cassettes/x/interactions"
COPY = "GET /api/v1/cassettes/x/copy"
PUT = "PUT /api/v1/cassettes/x/copy"


@pytest.fixture
async def far() -> AsyncIterator[FarSide]:
    async with far_side(MemoryStore()) as found:
        yield found


@pytest.fixture
async def way(far: FarSide) -> AsyncIterator[Between]:
    async with between(far.url) as found:
        yield found


def error(code: str, message: str = "it says why") -> str:
    return json.dumps({"error": {"code": code, "message": message}, "tapeway": {}})


async def kept(far: FarSide) -> list[bytes]:
    found = await far.broker.editor.stored("x")
    return [] if found is None else bodies(found)


@pytest.mark.parametrize(
    "faults",
    [
        [lost],
        [broken],
        [twice],
        [broken, lost, lost],
        [answered(503, error("draining"))],
        [answered(503, error("store_unreachable")), lost],
        [answered(429, error("too_many_attempts"))],
    ],
)
async def test_an_append_that_went_wrong_on_its_way_is_kept_once(
    far: FarSide, way: Between, faults: list[Spoil]
) -> None:
    store = way.store(patience_s=60)
    await store.open()
    way.spoil(APPEND, *faults)

    await store.append("x", HEAD, recording(0))
    await store.append("x", HEAD, recording(1))

    assert await kept(far) == answers(0, 1)
    keys = [headers["Idempotency-Key"] for _, path, headers in way.seen if "interactions" in path]
    assert len(set(keys)) == 2, "a repeated append has the key of the first"
    await store.close()


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (answered(500, error("internal")), StoreError),
        (answered(500, error("cassette_corrupt")), CassetteCorrupt),
        (answered(503, error("cassette_locked")), CassetteLocked),
        (answered(503, error("recording_failed")), StorePoisoned),
        (answered(507, error("recording_failed")), StoreFull),
        (answered(409, error("cassette_edited")), CassetteEdited),
        (answered(413, error("request_too_large")), StoreError),
        (answered(422, error("bad_cassette")), StoreError),
        (answered(500, "<html>oops</html>"), StoreError),
        (answered(200, "<html>welcome</html>"), StoreError),
        (answered(200, "{}"), StoreError),
        (answered(200, "[]"), StoreError),
        (answered(200, '{"head":"x","interactions":[]}'), StoreError),
        (answered(204), StoreError),
        (answered(302, "", Location="http://elsewhere.invalid/"), StoreError),
        (answered(308, "", Location="/api/v1/cassettes/x/interactions"), StoreError),
        (changed(lambda body: body.replace(b'"sha256":"', b'"sha256":"0')), StoreError),
        (changed(lambda body: body[:-2]), StoreError),
    ],
)
async def test_what_is_not_acknowledged_as_it_must_be_is_an_error(
    way: Between, fault: Spoil, raised: type[StoreError]
) -> None:
    store = way.store()
    await store.open()
    way.spoil(APPEND, fault)

    with pytest.raises(StoreError) as caught:
        await store.append("x", HEAD, recording(0))

    assert isinstance(caught.value, raised)
    assert store.url in caught.value.message
    assert "html" not in caught.value.message
    # It goes on by itself.
    await store.append("x", HEAD, recording(1))
    assert answers(1)[0] in bodies(await store.load("x", writable=False))
    await store.close()


@pytest.mark.parametrize(
    "fault",
    [
        answered(500, error("internal")),
        answered(200, "<html>"),
        changed(lambda body: body[:-2]),
        lost,
        broken,
    ],
)
async def test_an_append_of_unknown_outcome_is_settled_before_the_next_one(
    far: FarSide, way: Between, fault: Spoil
) -> None:
    store = way.store(patience_s=0)
    await store.open()
    await store.append("x", HEAD, recording(0))
    way.spoil(APPEND, fault)
    with pytest.raises(StoreError):
        await store.append("x", HEAD, recording(1, 0))

    # Whoever was told of the error takes the first recording for the last one.
    await store.append("x", HEAD, recording(2, 0))
    await store.append("x", HEAD, recording(3))

    assert await kept(far) == answers(2, 3)
    keys = [headers["Idempotency-Key"] for _, path, headers in way.seen if "interactions" in path]
    assert len(keys) == 5
    assert keys[1] == keys[2]
    await store.close()


async def test_a_refused_append_is_not_sent_again(far: FarSide, way: Between) -> None:
    store = way.store()
    await store.open()
    way.spoil(APPEND, answered(422, error("shows_secrets")))
    with pytest.raises(StoreError):
        await store.append("x", HEAD, recording(0))

    await store.append("x", HEAD, recording(1))

    assert await kept(far) == answers(1)
    await store.close()


async def test_a_stop_gives_back_every_cassette_and_raises_the_first_error(way: Between) -> None:
    store = way.store()
    await store.open()
    for name in ("a", "b", "c"):
        await store.append(name, HEAD, recording(0))
    way.spoil("POST /api/v1/cassettes/a/release", answered(500, error("internal", "the first")))
    way.spoil("POST /api/v1/cassettes/b/release", answered(500, error("internal", "the second")))

    with pytest.raises(StoreError, match="the first"):
        await store.close()

    released = [path for _, path, _ in way.seen if path.endswith("/release")]
    assert released == [f"/api/v1/cassettes/{name}/release" for name in ("a", "b", "c")]


async def test_a_far_side_that_stays_away_is_told_in_time(way: Between) -> None:
    store = way.store(patience_s=0.2)
    await store.open()
    way.spoil("POST", *[broken] * 20)

    with pytest.raises(StoreAway) as caught:
        await store.append("x", HEAD, recording(0))

    assert (caught.value.status, caught.value.code) == (503, "store_unreachable")
    assert store.url in caught.value.message
    assert caught.value.__cause__ is not None
    way.faults.clear()
    await store.append("x", HEAD, recording(1))
    await store.close()


async def test_a_far_side_that_says_nothing_is_not_waited_for(way: Between) -> None:
    store = way.store(patience_s=0.1, silence_s=0.1)
    await store.open()
    asked = asyncio.Event()

    async def silent(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    way.spoil(APPEND, *[silent] * 20)

    with pytest.raises(StoreAway, match="in time"):
        await store.append("x", HEAD, recording(0))

    assert asked.is_set()
    way.faults.clear()
    with suppress(StoreAway):  # it waits as little for the answer to the end of its claim
        await store.close()


async def test_a_stop_gives_back_what_there_is_time_for_and_says_what_it_left(
    far: FarSide, way: Between, caplog: pytest.LogCaptureFixture
) -> None:
    store = way.store(patience_s=60, silence_s=60)
    await store.open()
    for name in ("a", "b", "c"):
        await store.append(name, HEAD, recording(0))

    async def silent(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    way.spoil("POST", *[silent] * 3)
    async with asyncio.timeout(30):
        await store.close(within_s=0.05)

    assert "3 cassettes could not be given back" in caplog.text
    assert [await kept(far)] == [[]]


async def test_a_store_that_was_only_read_is_closed_without_its_far_side(way: Between) -> None:
    store = way.store()
    await store.open()
    assert await store.load("x", writable=False) is None
    way.spoil("", *[broken] * 20)

    await store.close()


async def test_one_that_is_refused_does_not_take_others_along(far: FarSide, way: Between) -> None:
    store = way.store(patience_s=60)
    await store.open()
    way.spoil(APPEND, answered(422, error("shows_secrets")))
    async with asyncio.TaskGroup() as tasks:
        sent = [
            tasks.create_task(_tried(store.append("x", HEAD, recording(at)))) for at in range(5)
        ]
    refused, *others = [task.result() for task in sent]
    assert isinstance(refused, StoreError)
    assert others == [None] * 4
    assert await kept(far) == answers(1, 2, 3, 4)
    await store.close()


async def _tried(work: Awaitable[None]) -> StoreError | None:
    try:
        await work
    except StoreError as exc:
        return exc
    return None


async def test_a_cut_copy_is_asked_for_again_and_never_taken_for_whole(way: Between) -> None:
    store = way.store(patience_s=60)
    await store.open()
    for at in range(3):
        await store.append("x", HEAD, recording(at))

    def without_end(copy: bytes) -> bytes:
        return b"".join(copy.splitlines(keepends=True)[:-1])

    way.spoil(COPY, changed(without_end), broken, changed(lambda copy: copy[:-9]))
    assert bodies(await store.load("x", writable=False)) == answers(0, 1, 2)

    way.spoil(COPY, *[changed(without_end)] * 50)
    impatient = way.store(patience_s=0.1)
    await impatient.open()
    with pytest.raises(StoreAway, match="cut"):
        await impatient.load("x", writable=False)
    way.spoil(COPY, changed(lambda copy: copy.replace(b'"kind":"http"', b'"kind":"htp"')))
    way.faults[:] = way.faults[-1:]
    with pytest.raises(StoreError, match="cannot be read"):
        await impatient.load("x", writable=False)
    await impatient.close()
    await store.close()


async def test_a_save_whose_answer_was_lost_is_known_for_its_own(
    far: FarSide, way: Between
) -> None:
    store = way.store(patience_s=60)
    await store.open()
    await store.append("x", HEAD, recording(0))
    await store.load("x", writable=True)
    way.spoil(PUT, lost)

    await store.save("x", StoredCassette(HEAD, (recording(1).interaction,)))
    await store.save("x", StoredCassette(HEAD, (recording(2).interaction,)))

    assert await kept(far) == answers(2)
    await store.close()


async def test_a_save_that_the_far_side_takes_for_another_cassette_is_an_error(
    far: FarSide, way: Between
) -> None:
    async with opened(way.store()) as store:
        way.spoil(PUT, changed(lambda body: body.replace(b'"sha256":"', b'"sha256":"0')))
        with pytest.raises(StoreError, match="no tapeway"):
            await store.save("x", StoredCassette(HEAD, (recording(1).interaction,)))


async def test_a_first_append_of_unknown_outcome_is_no_change_by_somebody_else(
    far: FarSide, way: Between
) -> None:
    async with opened(way.store(patience_s=0)) as store:
        await store.load("x", writable=False)
        way.spoil(APPEND, lost)
        with pytest.raises(StoreAway):
            await store.append("x", HEAD, recording(0))

        assert bodies(await store.load("x", writable=True)) == answers(0)
        await store.append("x", HEAD, recording(1))
        assert await kept(far) == answers(0, 1)


async def test_a_body_that_does_not_come_whole_is_asked_for_again(
    far: FarSide, way: Between
) -> None:
    store = way.store(patience_s=60)
    await store.open()
    body = b"large " * 1000
    file = await store.keep("x", [body])
    await store.append("x", HEAD, large(0, file))
    await store.close()
    again = way.store(patience_s=60)
    await again.open()
    way.spoil("GET /api/v1/cassettes/x/bodies", changed(lambda found: found[1:]), broken)

    assert await asyncio.to_thread(contents, await again.load("x", writable=False)) == [body]
    await again.close()


async def test_a_body_is_at_the_far_side_once_it_is_kept(far: FarSide, way: Between) -> None:
    async with opened(way.store()) as store:
        file = await store.keep("x", [b"large"])
        assert [(method, path) for method, path, _ in way.seen[1:]] == [
            ("PUT", f"/api/v1/cassettes/x/bodies/{file.digest}")
        ]
        way.seen.clear()
        await store.append("x", HEAD, large(0, file))
        assert not [path for _, path, _ in way.seen if "/bodies/" in path]
    async with opened(way.store()) as store:
        found = await store.load("x", writable=False)
        assert await asyncio.to_thread(contents, found) == [b"large"]


async def test_a_recording_whose_body_the_far_side_forgot_is_refused_and_may_be_made_anew(
    far: FarSide, way: Between
) -> None:
    async with opened(way.store()) as store:
        file = await store.keep("x", [b"large"])
        await far.broker.editor.release("x")
        with pytest.raises(StoreError, match=file.digest):
            await store.append("x", HEAD, large(0, file))
        assert await kept(far) == []

        await store.append("x", HEAD, large(1, await store.keep("x", [b"large"])))

        found = await store.load("x", writable=False)
        assert await asyncio.to_thread(contents, found) == [b"large"]


@pytest.mark.parametrize(
    ("fault", "raised", "said"),
    [
        (answered(200, "<html>"), StoreError, "no tapeway"),
        (answered(200, '{"version":"1"}'), StoreError, "no tapeway"),
        (answered(404, "not here"), StoreError, "404"),
        (answered(302, "", Location="http://h.invalid"), StoreError, "302"),
        (answered(401, error("unauthorized")), ConfigError, "TAPEWAY_STORE_TOKEN"),
        (answered(403, error("host_not_allowed")), ConfigError, "it says why"),
    ],
)
async def test_what_is_no_far_side_is_told_at_the_start(
    way: Between, fault: Spoil, raised: type[Exception], said: str
) -> None:
    way.spoil("GET /api/v1/status", fault)
    store = way.store()

    with pytest.raises(raised, match=said):
        await store.open()

    await store.close()


async def test_a_far_side_of_another_version_is_told_at_the_start() -> None:
    async with far_side(MemoryStore(), version="0.0.9") as other:
        with pytest.raises(
            ConfigError, match=r"has version 0\.0\.9, but .* the same version on both sides"
        ):
            await other.store().open()


async def test_a_far_side_refuses_the_calls_of_another_version(way: Between) -> None:
    async with ClientSession() as http:
        asked = {"Tapeway-Store-Version": "0.0.9"}
        for path in ("/api/v1/cassettes", "/api/v1/status"):
            async with http.get(way.target + path, headers=asked) as answer:
                assert answer.status == 409
                text = await answer.text()
                assert "store_version" in text
                assert "0.0.9" in text


async def test_a_far_side_that_was_updated_meanwhile_keeps_nothing(
    far: FarSide, way: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(way.store()) as store:
        monkeypatch.setattr("tapeway.stores.remote.client.VERSION", "0.0.9")
        with pytest.raises(StoreError, match="the same version on both sides"):
            await store.append("x", HEAD, recording(0))
        monkeypatch.undo()

    assert await kept(far) == []


async def test_a_kept_body_reads_as_it_was(far: FarSide) -> None:
    store = far.store()
    await store.open()
    file = await store.keep("x", [b"one ", b"two"])

    assert b"".join(body_pieces(file)) == b"one two"
    assert replace(file, path="") == BodyFile("", 7, file.digest)
    await store.close()


async def test_a_repeat_that_reaches_another_process_of_a_shared_store_is_kept_once() -> None:
    place = ModelPlace()
    async with (
        far_side(ModelStore(place)) as one,
        far_side(ModelStore(place)) as other,
        between(one.url) as way,
    ):
        store = way.store(patience_s=60)
        await store.open()
        await store.append("x", HEAD, recording(0))

        async def moved(request: web.BaseRequest, forward: Forward) -> web.StreamResponse:
            await forward()
            way.target = other.url
            return await broken(request, forward)

        way.spoil(APPEND, moved)
        await store.append("x", HEAD, recording(1, 0))
        # What says the same, but is not asked for again, is another recording.
        await store.append("x", HEAD, recording(1))

        assert await kept(other) == answers(1, 1)
        await store.close()
