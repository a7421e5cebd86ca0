"""A cassette that stands on another one, on every store."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tapeway.core.cassette.branches import BASE_FIELD
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode
from tapeway.ports import CassetteStore
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.stores.contract.kinds import KINDS, Kind, Place
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

CHAT = b"POST /@%b/v1/chat/completions"


@dataclass(slots=True)
class Runs:
    """Proxies over one place of cassettes, one after the other or two together."""

    kind: Kind
    place: Place
    peer: Peer
    given: list[bytes] = field(default_factory=list)

    def will_answer(self, *texts: str) -> None:
        for text in texts:
            self.peer.then(answer(text.encode()))

    async def start(self, stack: AsyncExitStack, mode: Mode) -> RunningProxy:
        store = self.place.again()
        return await stack.enter_async_context(running_proxy(self.peer.url, mode=mode, store=store))

    async def record(self, name: str, *asked: str) -> None:
        """Record one call for each prompt; the answer repeats the prompt."""
        self.will_answer(*[f"{name} {prompt}" for prompt in asked])
        async with AsyncExitStack() as stack:
            proxy = await self.start(stack, "record")
            for prompt in asked:
                assert (await ask(proxy, name, prompt)).status == 200
            await proxy.broker.eject(name)

    async def stand(self, name: str, **base: Json) -> None:
        """Have a cassette stand on another one, as `tapeway cassette branch` does."""
        async with AsyncExitStack() as stack:
            store = await opened(stack, self.place.again())
            below = await store.outline(str(base["cassette"]))
            run_id = below.head.run_id if below is not None else "r"
            now = await store.load(name, writable=False) or StoredCassette(
                CassetteHead("2026-01-01T00:00:00Z", run_id)
            )
            head = replace(now.head, meta={**now.head.meta, BASE_FIELD: base})
            await store.save(name, replace(now, head=head))
            await store.release(name)

    async def stored(self, name: str) -> list[bytes]:
        async with AsyncExitStack() as stack:
            store = await opened(stack, self.place.again())
            stored = await store.load(name, writable=False)
            items = () if stored is None else stored.interactions
            return [item.response.body for item in items]  # type: ignore[union-attr] # all are HTTP


async def opened(stack: AsyncExitStack, store: CassetteStore) -> CassetteStore:
    await store.open()
    stack.push_async_callback(store.close)
    return store


@pytest.fixture(params=[kind for kind in KINDS if kind.name != "memory"], ids=str)
async def runs(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Runs]:
    kind: Kind = request.param
    async with kind.of_test(request, tmp_path) as place, Peer() as peer:
        yield Runs(kind, place, peer)


def answer(body: bytes) -> bytes:
    fields = b"Content-Type: application/json\r\nContent-Length: %d" % len(body)
    return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (fields, body)


def prompt_body(prompt: str, model: str = "gpt-4o") -> bytes:
    message = {"role": "user", "content": prompt}
    return json.dumps({"model": model, "messages": [message]}).encode()


async def ask(proxy: RunningProxy, name: str, prompt: str) -> Answer:
    line, kind = CHAT % name.encode(), b"Content-Type: application/json"
    return await proxy.ask(line, kind, body=prompt_body(prompt))


def sources(answers: Sequence[Answer]) -> list[tuple[str, str, str]]:
    """The text of each answer, its outcome, and the base it is from."""
    return [
        (
            found.body.decode(),
            found.outcome.decode(),
            found.value(b"tapeway-base").decode(),
        )
        for found in answers
    ]


async def test_a_run_is_replayed_to_a_point_and_goes_on_live_from_there(runs: Runs) -> None:
    await runs.record("run", "one", "two", "three")
    await runs.stand("fix", cassette="run", until=2)
    runs.will_answer("fix other", "fix three")
    asked = ("one", "two", "other", "three")

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "auto")
        live = [await ask(proxy, "fix", prompt) for prompt in asked]
        await proxy.broker.eject("fix")
    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "replay")
        replayed = [await ask(proxy, "fix", prompt) for prompt in asked]

    from_base = [("run one", "replayed", "run"), ("run two", "replayed", "run")]
    assert sources(live) == [
        *from_base,
        ("fix other", "recorded", ""),
        ("fix three", "recorded", ""),
    ]
    assert sources(replayed) == [
        *from_base,
        ("fix other", "replayed", ""),
        ("fix three", "replayed", ""),
    ]
    assert [found.value(b"tapeway-interaction") for found in replayed] == [
        *(b"0", b"1", b"0", b"1")
    ]
    assert await runs.stored("run") == [b"run one", b"run two", b"run three"]
    assert await runs.stored("fix") == [b"fix other", b"fix three"]


async def test_before_the_point_a_request_that_misses_is_a_miss_and_not_asked(runs: Runs) -> None:
    await runs.record("run", "one", "two", "three")
    await runs.stand("fix", cassette="run", until=2)

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "auto")
        asked = [await ask(proxy, "fix", prompt) for prompt in ("one", "other", "three", "two")]
        runs.will_answer("fix three")
        after = await ask(proxy, "fix", "three")

    assert [found.status for found in asked] == [200, 400, 400, 200]
    message = json.loads(asked[1].body)["message"]
    assert "once the first 2 recordings of 'run' have answered: 1 have not" in message
    assert "POST /v1/chat/completions is the next" in message
    nearest = json.loads(asked[1].body)["tapeway"]["nearest"]
    assert (nearest[0]["index"], nearest[0]["base"]) in ((0, "run"), (1, "run"))
    assert sources([after]) == [("fix three", "recorded", "")]


async def test_own_recordings_come_first_and_the_base_stays_as_it_is(runs: Runs) -> None:
    await runs.record("shared", "one", "two")
    await runs.record("test", "one")
    await runs.stand("test", cassette="shared")
    runs.will_answer("test three")

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "auto")
        found = [await ask(proxy, "test", prompt) for prompt in ("one", "two", "three", "one")]

    assert sources(found) == [
        ("test one", "replayed", ""),
        ("shared two", "replayed", "shared"),
        ("test three", "recorded", ""),
        ("test one", "replayed", ""),
    ]
    assert await runs.stored("shared") == [b"shared one", b"shared two"]
    assert await runs.stored("test") == [b"test one", b"test three"]


async def test_several_cassettes_stand_on_each_other(runs: Runs) -> None:
    await runs.record("a", "one", "two")
    await runs.record("b", "two", "three")
    await runs.stand("b", cassette="a")
    await runs.stand("c", cassette="b", until=1)

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "replay")
        found = [await ask(proxy, "c", prompt) for prompt in ("one", "two", "three")]

    assert sources(found)[:2] == [("a one", "replayed", "a"), ("b two", "replayed", "b")]
    assert found[2].status == 400


async def test_each_cassette_above_a_base_has_cursors_of_its_own(runs: Runs) -> None:
    await runs.record("shared", "one")
    await runs.record("shared2", "x")
    runs.will_answer("first", "second")
    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "record")
        for _ in range(2):
            await ask(proxy, "polled", "poll")
        await proxy.broker.eject("polled")
    await runs.stand("a", cassette="polled")
    await runs.stand("b", cassette="polled")

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "replay")
        found = [await ask(proxy, name, "poll") for name in ("a", "b", "a", "polled", "b")]

    assert [text for text, _, _ in sources(found)] == [
        *("first", "first", "second", "first", "second")
    ]


async def test_by_position_the_next_answer_comes_whatever_is_asked(runs: Runs) -> None:
    await runs.record("run", "one", "two", "three")
    await runs.stand("fix", cassette="run", until=2, positional=True)
    runs.will_answer("fix three")

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "auto")
        other = await proxy.ask(b"GET /@fix/v1/models")
        found = [await ask(proxy, "fix", prompt) for prompt in ("changed", "two", "three")]
        notes = [entry.message for entry in proxy.journal if entry.outcome == "replayed"]

    assert other.status == 400
    assert sources(found) == [
        ("run one", "replayed", "run"),
        ("run two", "replayed", "run"),
        ("fix three", "recorded", ""),
    ]
    assert notes == ["answered by its place in the base, whatever it asks"] * 2


async def test_values_are_set_in_live_requests_alone(runs: Runs) -> None:
    await runs.record("run", "one")
    sets: dict[str, Json] = {"body.model": "gpt-5", "body.messages[0].role": "developer"}
    await runs.stand("fix", cassette="run", until=1, set=sets)
    runs.will_answer("fix two")

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "auto")
        live = [await ask(proxy, "fix", prompt) for prompt in ("one", "two")]
        notes = [entry.message for entry in proxy.journal]
        await proxy.broker.set_mode("replay")
        replayed = await ask(proxy, "fix", "two")

    assert [outcome for _, outcome, _ in sources([*live, replayed])] == [
        *("replayed", "recorded", "replayed")
    ]
    body = runs.peer.requests[-1].partition(b"\r\n\r\n")[2]
    sent = json.loads(body)
    assert (sent["model"], sent["messages"][0]) == (
        "gpt-5",
        {"role": "developer", "content": "two"},
    )
    assert any('asked with body.model = "gpt-5"' in str(note) for note in notes)


@pytest.mark.parametrize(
    ("base", "named"),
    [
        ({"cassette": "nowhere"}, "stands on 'nowhere', which does not exist"),
        ({"cassette": "fix"}, "stands on itself"),
        ({"cassette": "run", "until": -1}, "meta.base.until: it is no count"),
        ({"cassette": "run", "at": 1}, "meta.base.at: there is no such member"),
        ({"cassette": "run", "positional": True}, "meta.base.positional"),
        ({"cassette": "run", "set": {"query.x": 1}}, "it leads to no single value of the body"),
    ],
)
async def test_a_base_that_cannot_be_is_a_clear_error(
    runs: Runs, base: dict[str, Json], named: str
) -> None:
    await runs.record("run", "one")
    await runs.stand("fix", **base)

    async with AsyncExitStack() as stack:
        proxy = await runs.start(stack, "replay")
        found = await ask(proxy, "fix", "one")

    assert found.status >= 500
    assert named in json.loads(found.body)["message"]


async def test_instances_of_one_store_count_together(runs: Runs) -> None:
    if not runs.kind.shared:
        pytest.skip("one process at a time has such a store")
    await runs.record("run", "one", "two", "three")
    await runs.stand("fix", cassette="run", until=2, positional=True)

    async with AsyncExitStack() as stack:
        one, other = [await runs.start(stack, "auto") for _ in range(2)]
        # Both know the cassette before the first answer.
        missed = [await proxy.ask(b"GET /@fix/v1/models") for proxy in (one, other)]
        found = [await ask(one, "fix", "a"), await ask(other, "fix", "b")]
        runs.will_answer("fix c")
        found.append(await ask(one, "fix", "c"))
        found.append(await ask(other, "fix", "c"))

    assert [each.status for each in missed] == [400, 400]
    assert sources(found) == [
        ("run one", "replayed", "run"),
        ("run two", "replayed", "run"),
        ("fix c", "recorded", ""),
        ("fix c", "replayed", ""),
    ]
