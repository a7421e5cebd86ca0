"""Functions of the user: what is recorded, what a replay gives, and what they are told of a miss."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tapeway.engine.hooks import Document, Hooks, load_hooks
from tapeway.errors import ConfigError
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import chunk, head
from tests.support.socket_upstream import Peer

KEY = b"sk-proj-abcdefghij0123456789ABCDEFGHIJ"
JSON = b"Content-Type: application/json"


def answer(body: bytes) -> bytes:
    fields = b"%b\r\nContent-Length: %d" % (JSON, len(body))
    return b"HTTP/1.1 200 OK\r\n%b\r\n\r\n%b" % (fields, body)


async def recorded_bodies(proxy: RunningProxy) -> list[bytes]:
    return [interaction.response.body for interaction in await proxy.recorded()]


async def test_a_recording_is_stored_as_the_hook_returns_it() -> None:
    seen: list[Document] = []

    def before_record(interaction: Any) -> Document | None:
        seen.append(json.loads(json.dumps(interaction)))
        if "/health" in interaction["request"]["url"]:
            return None
        interaction["response"]["json"]["name"] = "nobody"
        return interaction  # type: ignore[no-any-return] # a document

    async with (
        Peer() as peer,
        running_proxy(peer.url, hooks=Hooks(before_record=before_record)) as proxy,
    ):
        peer.then(answer(b'{"name":"somebody","n":1}'))
        peer.then(answer(b'{"name":"healthy"}'))
        first = await proxy.ask(b"POST /x", JSON, b"Authorization: Bearer " + KEY, body=b"{}")
        health = await proxy.ask(b"GET /health")
        stored = await recorded_bodies(proxy)
        notes = [entry.message for entry in proxy.journal]
        await proxy.broker.set_mode("replay")
        again = await proxy.ask(b"POST /x", JSON, body=b"{}")

    # The client of the recording run has the service's answer.
    assert (first.outcome, first.body) == (b"recorded", b'{"name":"somebody","n":1}')
    assert (health.outcome, health.body) == (b"live", b'{"name":"healthy"}')
    assert [json.loads(body) for body in stored] == [{"name": "nobody", "n": 1}]
    assert json.loads(again.body) == {"name": "nobody", "n": 1}
    assert any("the hook before_record leaves it out" in str(note) for note in notes)
    assert KEY.decode() not in json.dumps(seen)


async def test_a_changed_request_answers_what_it_says_now() -> None:
    def before_record(interaction: Any) -> Any:
        interaction["request"]["json"] = {"q": "any"}
        return interaction

    async with (
        Peer(answer(b"{}")) as peer,
        running_proxy(peer.url, hooks=Hooks(before_record=before_record)) as proxy,
    ):
        await proxy.ask(b"POST /x", JSON, body=b'{"q":"one"}')
        await proxy.broker.set_mode("replay")
        found = [
            await proxy.ask(b"POST /x", JSON, body=body)
            for body in (b'{"q":"any"}', b'{"q":"one"}')
        ]

    assert [each.outcome for each in found] == [b"replayed", b"miss"]


async def test_a_changed_stream_comes_in_one_chunk() -> None:
    def before_record(interaction: Any) -> Any:
        text = interaction["response"]["text"]
        interaction["response"]["text"] = text.replace("secret", "open")
        return interaction

    pieces = [chunk(b"data: secret\n\n"), chunk(b"data: two\n\n"), chunk(b"")]
    async with (
        Peer(head(b"text/event-stream") + b"".join(pieces)) as peer,
        running_proxy(peer.url, hooks=Hooks(before_record=before_record)) as proxy,
    ):
        await proxy.ask(b"GET /x")
        stored = await recorded_bodies(proxy)

    assert stored == [b"data: open\n\ndata: two\n\n"]


async def test_a_replay_is_given_as_the_hook_returns_it_and_stays_stored_as_it_was() -> None:
    def before_replay(request: Any, answer: Any) -> Any:
        assert KEY.decode() not in json.dumps(request)
        answer["json"]["asked"] = request["json"]["id"]
        answer["headers"]["X-Hooked"] = "yes"
        return answer

    async with (
        Peer(answer(b'{"n":1}')) as peer,
        running_proxy(peer.url, hooks=Hooks(before_replay=before_replay)) as proxy,
    ):
        auth = b"Authorization: Bearer " + KEY
        await proxy.ask(b"POST /x", JSON, auth, body=b'{"id":7}')
        await proxy.broker.set_mode("replay")
        given = [await proxy.ask(b"POST /x", JSON, auth, body=b'{"id":7}') for _ in range(2)]
        stored = await recorded_bodies(proxy)

    assert [json.loads(each.body) for each in given] == [{"n": 1, "asked": 7}] * 2
    assert [each.value(b"x-hooked") for each in given] == [b"yes"] * 2
    assert stored == [b'{"n":1}']


async def test_a_miss_is_told_with_the_nearest_recordings() -> None:
    told: list[tuple[Document, Sequence[Document]]] = []

    async with (
        Peer(answer(b"{}")) as peer,
        running_proxy(peer.url, hooks=Hooks(on_miss=lambda *given: told.append(given))) as proxy,
    ):
        await proxy.ask(b"POST /x", JSON, body=b'{"q":"one"}')
        await proxy.broker.set_mode("replay")
        missed = await proxy.ask(b"POST /x", JSON, body=b'{"q":"two"}')

    ((request, nearest),) = told
    assert missed.outcome == b"miss"
    assert request["json"] == {"q": "two"}
    assert nearest == [
        {
            "index": 0,
            "differences": [{"path": "body.q", "recorded": "one", "requested": "two"}],
            "more": 0,
        }
    ]


def _raise(*_: object) -> Any:
    raise KeyError("sky")


def _a_list(_: object) -> Any:
    return []


@pytest.mark.parametrize(
    ("hooks", "named"),
    [
        (Hooks(before_record=_raise), "KeyError: 'sky'"),
        (Hooks(before_record=_a_list), "before_record returned is no object"),
        (
            Hooks(before_record=lambda interaction: {**interaction, "response": {}}),
            "what before_record returned cannot be used: response: the field 'status_code' is missing",
        ),
    ],
)
async def test_a_failing_hook_is_named_and_nothing_half_done_is_stored(
    hooks: Hooks, named: str
) -> None:
    async with Peer(answer(b"{}")) as peer, running_proxy(peer.url, hooks=hooks) as proxy:
        found = await proxy.ask(b"GET /x")
        stored = await recorded_bodies(proxy)

    error = json.loads(found.body)
    assert (found.status, error["error"]["code"]) == (500, "hook_failed")
    assert named in error["message"]
    assert named[:8] != "KeyError" or "test_hooks.py:" in error["message"]
    assert stored == []


async def test_a_hook_that_fails_at_a_miss_leaves_the_miss_as_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        async with running_proxy(mode="replay", hooks=Hooks(on_miss=_raise)) as proxy:
            found = await proxy.ask(b"GET /x")

    assert found.status in (400, 404)
    assert found.status == 404 or "test_hooks.py:" in caplog.text


def test_hooks_are_found_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_hooks.py").write_text(
        "class Hooks:\n    @staticmethod\n    def on_miss(request, nearest): pass\n"
    )

    assert load_hooks("my_hooks:Hooks").on_miss is not None
    assert load_hooks(None) == load_hooks(None)


@pytest.mark.parametrize(
    ("place", "named"),
    [
        ("my_hooks", "write MODULE:OBJECT"),
        ("no_such_module:x", "ModuleNotFoundError"),
        ("json:nothing", "AttributeError"),
        ("json:dumps", "has no function called before_record, before_replay, on_miss"),
    ],
)
def test_hooks_that_are_not_there_are_named(place: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_hooks(place)
