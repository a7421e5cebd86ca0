"""Plain hits in mode auto: what a run recorded is replayed in the same run."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from tapeway.core.matching import document
from tapeway.core.model.control import Mode
from tapeway.ports import CassetteStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.server.in_process_proxy import HitsOn, running_proxy
from tests.server.test_hits import PLAIN, PROMPT
from tests.server.test_hits_shared import hits_of
from tests.stores.model_store import ModelPlace, ModelStore
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer
from tests.support.thoroughness import step

MakeStore = Callable[[], CassetteStore]
CALLERS = (
    b"",
    b"Authorization: Bearer sk-one-0123456789abcdef\r\n",
    b"Authorization: Bearer sk-two-0123456789abcdef\r\n",
    b"Authorization: AWS4-HMAC-SHA256 Credential=AKID/1, Signature=%032x\r\n",
)
CODEX = b"User-Agent: codex_cli_rs/0.42.0\r\n"


@pytest.fixture(params=["memory", "sqlite", "shared"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    if request.param == "memory":
        return MemoryStore
    if request.param == "shared":
        return lambda: ModelStore(ModelPlace())
    return lambda: SqliteStore(tmp_path / f"{len([*tmp_path.iterdir()])}.db")


def answering(count: int) -> Peer:
    """An upstream whose answers are numbered."""
    peer = Peer()
    for number in range(count):
        body = b"answer %d" % number
        peer.then(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    return peer


def asked(fields: bytes, prompt: bytes = b"hello") -> bytes:
    assert len(prompt) == len(b"hello")
    return b"POST /ask HTTP/1.1\r\n" + fields + PLAIN + PROMPT.replace(b"hello", prompt)


async def test_what_a_run_recorded_answers_its_caller_at_once(
    make_store: MakeStore,
) -> None:
    async with (
        answering(2) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, store=make_store()) as proxy,
        proxy.connect() as client,
    ):
        first = [await client.ask(asked(CALLERS[1])) for _ in range(4)]
        taken = hits_of(proxy).count
        other = [await client.ask(asked(CALLERS[2])) for _ in range(2)]
        again = await client.ask(asked(CALLERS[1]))

    assert [answer.outcome for answer in first] == [b"recorded", *[b"replayed"] * 3]
    assert [answer.outcome for answer in other] == [b"recorded", b"replayed"]
    assert {answer.body for answer in (*first, again)} == {b"answer 0"}
    assert {answer.body for answer in other} == {b"answer 1"}
    # In a shared store the first replay looks the recording up.
    assert taken >= 2


@pytest.mark.parametrize(
    "field",
    [
        *(
            b"Authorization: Bearer sk-%d-0123456789abcdef",
            b"authorization:Bearer sk-%d-0123456789",
        ),
        *(
            b"Cookie: theme=dark; session=0123456789abcdef-%d",
            b"X-Api-Key: key-%d-0123456789abcdef",
        ),
    ],
)
async def test_an_answer_given_at_once_goes_to_its_own_caller_alone(field: bytes) -> None:
    first, other = [field % number + b"\r\n" for number in range(2)]
    async with (
        answering(2) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        proxy.connect() as client,
    ):
        own = [await client.ask(asked(first)) for _ in range(3)]
        assert hits_of(proxy).count == 2
        in_turn = [await client.ask(asked(caller)) for caller in (other, first) * 2]

    assert [answer.body for answer in own] == [b"answer 0"] * 3
    assert [answer.body for answer in in_turn] == [b"answer 1", b"answer 0"] * 2


async def test_the_body_of_what_a_run_recorded_is_parsed_for_its_first_replay_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        answering(1) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED) as proxy,
        proxy.connect() as client,
    ):
        for _ in range(2):
            await client.ask(asked(b""))
        monkeypatch.delattr(document, "read_json")
        again = await client.ask(asked(b""))

    assert (again.outcome, again.body) == (b"replayed", b"answer 0")


@pytest.mark.parametrize("seed", range(0, 8, step(2)))
async def test_callers_get_the_same_answers_on_both_paths(make_store: MakeStore, seed: int) -> None:
    found: list[list[tuple[bytes, bytes]]] = []
    taken: list[int] = []
    for hits in get_args(HitsOn):
        chance = random.Random(seed)
        answers: list[tuple[bytes, bytes]] = []
        async with (
            answering(120) as peer,
            running_proxy(
                peer.url, mode="auto", rules=REUSED, store=make_store(), hits=hits
            ) as proxy,
            proxy.connect() as client,
        ):
            for number in range(120):
                fields = chance.choice(CALLERS[: 1 + seed % 4])
                if b"%" in fields:
                    fields %= number
                answer = await client.ask(asked(fields, b"say %x" % chance.randrange(6)))
                answers.append((answer.outcome, answer.body))
                if chance.random() < 0.05:
                    await proxy.broker.rewind()
                # What is recorded once more comes after what was replayed, however often that was.
                mode: Mode = "record" if chance.random() < 0.05 else "auto"
                if mode != proxy.broker.mode:
                    await proxy.broker.set_mode(mode)
            if proxy.proxy.hits is not None:
                taken.append(hits_of(proxy).count)
        found.append(answers)

    assert found[0] == found[1] == found[2]
    assert {outcome for outcome, _ in found[0]} == {b"recorded", b"replayed"}
    assert taken[0] > 0


async def test_a_caller_is_told_by_the_salt_of_the_cassette_in_use(make_store: MakeStore) -> None:
    async with (
        answering(2) as peer,
        running_proxy(peer.url, mode="auto", rules=REUSED, store=make_store()) as proxy,
        proxy.connect() as client,
    ):
        found: list[bytes] = []
        taken: list[int] = []
        for cassette in ("one", "two", "one", "two"):
            await proxy.broker.insert(cassette)
            answers = [await client.ask(asked(CALLERS[1])) for _ in range(3)]
            found.append(answers[-1].body)
            taken.append(hits_of(proxy).count)

    assert found == [b"answer 0", b"answer 1"] * 2
    assert taken == sorted({*taken})
    assert len(peer.requests) == 2


async def test_the_preset_of_another_client_is_added_once_no_recording_answers_it(
    make_store: MakeStore,
) -> None:
    async with (
        answering(2) as peer,
        running_proxy(
            peer.url, mode="auto", rules=REUSED, store=make_store(), presets=True
        ) as proxy,
        proxy.connect() as client,
    ):
        for _ in range(3):
            await client.ask(asked(b"User-Agent: app/1\r\n"))
        before = hits_of(proxy).count
        outcomes = [(await client.ask(asked(CODEX))).outcome]
        during = hits_of(proxy).count
        then = await proxy.store.load("default", writable=False)
        outcomes += [(await client.ask(asked(CODEX, b"HELLO"))).outcome for _ in range(2)]
        stored = await proxy.store.load("default", writable=False)

        assert then is not None
        assert stored is not None
        assert "codex" not in str(then.head.meta)
        assert "codex" in str(stored.head.meta)
        assert outcomes == [b"replayed", b"recorded", b"replayed"]
        assert during > before
