"""Sessions: one recording a connection, replayed by what the client sends."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tapeway.core.model.control import Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.engine.recording.selection import Policy
from tapeway.engine.report.forms import text_report
from tapeway.ports import CassetteStore
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.process.serving import eventually
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.websocket.websocket_service import serving
from tests.stores.model_store import ModelPlace, ModelStore

REALTIME = "/v1/realtime?model=gpt-realtime"


@asynccontextmanager
async def _client(
    proxy: RunningProxy, path: str = "/feed", key: str = "sk-synthetic-1"
) -> AsyncIterator[ClientConnection]:
    url, headers = proxy.url.replace("http", "ws") + path, {"Authorization": f"Bearer {key}"}
    async with connect(url, additional_headers=headers) as client:
        yield client


async def _answer_loudly(socket: web.WebSocketResponse) -> None:
    """Answer each text in capitals, and `end` with a close."""
    while True:
        message = await socket.receive()
        if message.type is WSMsgType.CLOSE:
            await socket.close(code=message.data or 1000)
            return
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data[::-1])
            continue
        if message.type is not WSMsgType.TEXT:
            return
        if message.data == "end":
            await socket.close(code=4001, message=b"enough")
            return
        await socket.send_str(message.data.upper())


async def _speak_first(socket: web.WebSocketResponse) -> None:
    """A little of Realtime: the service speaks first, and answers events."""
    await socket.send_json({"type": "session.created", "event_id": "event_1", "session": {}})
    while True:
        message = await socket.receive()
        if message.type is not WSMsgType.TEXT:
            await socket.close(code=1000)
            return
        event = json.loads(message.data)
        await socket.send_json({"type": f"{event['type']}.done", "event_id": "event_2"})


async def _said(client: ClientConnection) -> Any:
    return await asyncio.wait_for(client.recv(), 60)


async def _ended(client: ClientConnection) -> tuple[int | None, str | None]:
    with pytest.raises(ConnectionClosed):
        await _said(client)
    return client.close_code, client.close_reason


async def test_a_session_is_recorded_and_replayed_without_the_upstream() -> None:
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode in ("record", "replay"):
            await proxy.broker.set_mode(mode)
            async with _client(proxy) as client:
                await client.send("hello")
                assert await _said(client) == "HELLO"
                await client.send(b"\x00\x01\xff")
                assert await _said(client) == b"\xff\x01\x00"
                await client.send("end")
                assert await _ended(client) == (4001, "enough")
            await proxy.proxy.wait_until_idle()

        assert len(service.handshakes) == 1
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1}
        [item] = await proxy.recorded()
        lines = [json.loads(line) for line in item.response.body.splitlines()]
        assert lines == [
            {"client_text": "hello"},
            {"service_text": "HELLO"},
            {"client_binary": "AAH/"},
            {"service_binary": "/wEA"},
            {"client_text": "end"},
            {"close": {"code": 4001, "reason": "enough", "by": "service"}},
        ]


async def test_a_service_may_speak_first() -> None:
    async with (
        serving(_speak_first) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode in ("record", "replay"):
            await proxy.broker.set_mode(mode)
            async with _client(proxy, REALTIME) as client:
                assert json.loads(await _said(client))["type"] == "session.created"
                await client.send('{"type":"session.update","session":{}}')
                assert json.loads(await _said(client))["type"] == "session.update.done"
            await proxy.proxy.wait_until_idle()

        assert len(service.handshakes) == 1
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1}


async def test_a_message_that_differs_is_a_miss_and_closes_the_connection() -> None:
    async with (
        serving(_speak_first) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        async with _client(proxy, REALTIME) as client:
            await _said(client)
            for kind in ("session.update", "response.create"):
                await client.send(json.dumps({"type": kind, "n": 1}))
                await _said(client)
        await proxy.proxy.wait_until_idle()
        await proxy.broker.set_mode("replay")
        async with _client(proxy, REALTIME) as client:
            await _said(client)
            await client.send('{"type":"session.update","n":1}')
            await _said(client)
            await client.send('{"type":"response.create","n":2}')
            event = json.loads(await _said(client))
            code, reason = await _ended(client)

        assert event["error"]["code"] == "replay_miss"
        assert (code, reason is not None and "replay miss" in reason) == (4424, True)
        await proxy.proxy.wait_until_idle()
        assert proxy.journal.counts == {"recorded": 1, "replayed": 1, "miss": 1}


async def test_a_long_last_message_is_recorded_before_its_client_can_leave() -> None:
    data = bytes(range(256)) * 4096
    async with (
        serving() as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode in ("record", "replay"):
            await proxy.broker.set_mode(mode)
            async with connect(proxy.url.replace("http", "ws") + "/feed", max_size=None) as client:
                await client.send("begin")
                assert await client.recv() == "begin"
                await client.send(data)
                assert await asyncio.wait_for(client.recv(), 60) == data
            await proxy.proxy.wait_until_idle()


def _edited(item: Interaction) -> Interaction:
    return replace(item, metadata={**item.metadata, "by": "hand"})


async def _with_lines(proxy: RunningProxy, count: int) -> Interaction:
    """The recording of a running session once so many messages are stored."""
    while True:
        for item in await proxy.recorded():
            if len(item.response.body.splitlines()) == count:
                return item
        # The recorder stores the messages after a pause, and tells nobody.
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("change", [lambda _: None, _edited], ids=["removed", "edited"])
@pytest.mark.parametrize("says_more", [True, False])
async def test_a_running_session_whose_recording_somebody_changed_is_recorded_no_further(
    says_more: bool, change: Callable[[Interaction], Interaction | None]
) -> None:
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record", store=ModelStore(ModelPlace())) as proxy,
    ):
        async with _client(proxy) as client:
            await client.send("hello")
            assert await _said(client) == "HELLO"
            item = await _with_lines(proxy, 2)
            await proxy.broker.editor.edit("default", item.index, changed := change(item))
            if says_more:
                await client.send("one")
                assert await _said(client) == "ONE"
                await eventually(lambda: not proxy.broker.recorder.under_way)
                await client.send("two")
                assert await _said(client) == "TWO"
        await proxy.proxy.wait_until_idle()

        kept = [] if changed is None else [(changed.metadata, item.response.body)]
        assert [
            (exchange.metadata, exchange.response.body) for exchange in await proxy.recorded()
        ] == kept
        assert proxy.journal.counts == {"recorded": 1}
        [report] = await proxy.broker.reports()
        [unrecorded] = report.unrecorded
        assert unrecorded.reason.startswith(
            "somebody has edited or removed the recording of the se"
        )


@pytest.mark.parametrize("change", [lambda _: None, _edited], ids=["removed", "edited"])
@pytest.mark.parametrize("kind", ["memory", "folder", "sqlite"])
async def test_a_change_of_its_recording_ends_the_recording_of_a_session_in_a_store_of_one_process(
    kind: str, change: Callable[[Interaction], Interaction | None], tmp_path: Path
) -> None:
    stores: dict[str, CassetteStore] = {
        "memory": MemoryStore(),
        "folder": FileStore(tmp_path),
        "sqlite": SqliteStore(tmp_path / "c.db"),
    }
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record", store=stores[kind]) as proxy,
    ):
        async with _client(proxy) as client:
            await client.send("hello")
            assert await _said(client) == "HELLO"
            item = await _with_lines(proxy, 2)
            await proxy.broker.editor.edit("default", item.index, changed := change(item))
            await client.send("one")
            assert await _said(client) == "ONE"
        await proxy.proxy.wait_until_idle()

        kept = [] if changed is None else [(changed.metadata, item.response.body)]
        assert [
            (exchange.metadata, exchange.response.body) for exchange in await proxy.recorded()
        ] == kept
        assert proxy.journal.counts == {"recorded": 1}


@pytest.mark.parametrize("replays", [("one",), ("all", "one"), ("one", "all")])
async def test_the_report_names_a_session_whose_tail_no_client_reached(
    replays: tuple[str, ...],
) -> None:
    texts = {"all": ("one", "two", "three"), "one": ("one",)}
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for number, spoken in enumerate(("all", *replays)):
            if number == 1:
                await proxy.broker.set_mode("replay")
            async with _client(proxy) as client:
                for text in texts[spoken]:
                    await client.send(text)
                    assert await _said(client) == text.upper()
            await proxy.proxy.wait_until_idle()
        [report] = await proxy.broker.reports()

    assert report.unused == ()
    found = [
        (recording.index, recording.method, recording.first, recording.count)
        for recording in report.unreached
    ]
    assert found == ([] if "all" in replays else [(0, "WEBSOCKET", 2, 4)])
    lines = text_report([report]).splitlines()
    assert [line for line in lines if "not reached to its end: #0 WEBSOCKET" in line] == [
        "  not reached to its end: #0 WEBSOCKET "
        + report.unreached[0].path
        + ": the session ended "
        "before 4 of its messages, from message 2 on; it waited for message 2 of the recording, a "
        "text of the client"
        for _ in found
    ]


async def test_the_journal_names_what_a_client_has_not_reached() -> None:
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record") as proxy,
    ):
        for mode, texts in (("record", ("one", "two", "three")), ("replay", ("one",))):
            await proxy.broker.set_mode(mode)  # type: ignore[arg-type]
            async with _client(proxy) as client:
                for text in texts:
                    await client.send(text)
                    assert await _said(client) == text.upper()
            await proxy.proxy.wait_until_idle()

        entry = next(answer for answer in proxy.journal if answer.outcome == "replayed")
        assert entry.message == (
            "the session ended before 4 of its messages, from message 2 on; it waited for message 2 "
            "of the recording, a text of the client"
        )


async def test_a_session_that_nothing_recorded_is_a_miss() -> None:
    async with running_proxy("http://up.invalid", mode="replay") as proxy:
        async with _client(proxy) as client:
            await client.send("hello")
            code, reason = await _ended(client)

        assert (code, (reason or "").startswith("replay miss:")) == (4424, True)
        assert proxy.journal.counts == {"miss": 1}


async def test_an_open_session_is_stored_at_the_eject() -> None:
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record") as proxy,
        _client(proxy) as client,
    ):
        await client.send("hello")
        await _said(client)
        await proxy.broker.eject("default")

        [item] = await proxy.recorded()
        assert item.response.verdict == "open"
        await client.send("more")
        assert await _said(client) == "MORE"


async def _update(client: ClientConnection) -> list[str]:
    """What a client of the service that speaks first is told, up to the answer to its first message."""
    await client.send('{"type":"session.update","session":{}}')
    return [json.loads(await _said(client))["type"] for _ in range(2)]


def _is_recorded(proxy: RunningProxy) -> bool:
    """Whether a session is among the recordings; one that runs is stored after a pause."""
    cassette = proxy.broker.cassette("default")
    return cassette is not None and cassette.snapshot() != []


_UPDATED = ["session.created", "session.update.done"]


async def test_a_session_that_is_still_recorded_answers_nobody_else_in_auto() -> None:
    async with (
        serving(_speak_first) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        async with _client(proxy, REALTIME) as one:
            assert await _update(one) == _UPDATED
            await eventually(lambda: _is_recorded(proxy))
            async with _client(proxy, REALTIME) as two:
                assert await _update(two) == _UPDATED
        await proxy.proxy.wait_until_idle()

        assert len(service.handshakes) == 2
        assert proxy.journal.counts == {"recorded": 2}


async def test_a_session_that_has_begun_live_goes_on_when_an_equal_one_was_recorded_before() -> (
    None
):
    async with (
        serving(_speak_first) as service,
        running_proxy(service.url, mode="auto") as proxy,
    ):
        async with _client(proxy, REALTIME) as late:
            async with _client(proxy, REALTIME) as early:
                assert await _update(early) == _UPDATED
            await eventually(lambda: proxy.journal.counts.get("recorded") == 1)
            assert await _update(late) == _UPDATED
        await proxy.proxy.wait_until_idle()
        assert (len(service.handshakes), proxy.journal.counts) == (2, {"recorded": 2})

        await proxy.broker.rewind()
        async with _client(proxy, REALTIME) as again:
            assert await _update(again) == _UPDATED
        await proxy.proxy.wait_until_idle()
        assert (len(service.handshakes), proxy.journal.counts["replayed"]) == (2, 1)


@pytest.mark.parametrize(
    ("repeats", "key"),
    [("last", "sk-synthetic-1"), ("last", "sk-synthetic-2"), ("miss", "sk-synthetic-1")],
)
async def test_in_auto_a_session_is_asked_for_again_in_the_take_that_recorded_it(
    repeats: Repeats, key: str
) -> None:
    async with (
        serving(_speak_first) as service,
        running_proxy(service.url, mode="auto", policy=Policy(repeats=repeats)) as proxy,
    ):
        for api_key in ("sk-synthetic-1", key):
            async with _client(proxy, REALTIME, api_key) as client:
                assert await _update(client) == _UPDATED
            await proxy.proxy.wait_until_idle()

        assert [entry.outcome for entry in proxy.journal] == ["recorded", "recorded"]
        assert len(service.handshakes) == 2


async def test_a_session_that_is_too_large_ends_without_a_close_frame_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        serving(_answer_loudly) as service,
        running_proxy(service.url, mode="record", policy=Policy(max_body=500)) as proxy,
        _client(proxy) as client,
    ):
        for _ in range(4):
            await client.send("x" * 100)
            assert await client.recv() == "X" * 100
        await client.close()
        assert client.close_code == 1006
        await proxy.proxy.wait_until_idle()
        assert (await proxy.recorded(), proxy.journal.counts) == ([], {"error": 1})
        [report] = await proxy.broker.reports()
        assert report.failed == {"upstream_too_large": 1}

    (warning,) = [entry for entry in caplog.records if entry.name.startswith("tapeway.")]
    said = vars(warning)
    assert (said["cassette"], said["method"], said["code"]) == (
        *("default", "WEBSOCKET"),
        "upstream_too_large",
    )
    assert "larger than --max-body (500 bytes)" in warning.getMessage()
