"""Secrets on a WebSocket connection reach the other side, and no recording, log or journal."""

import json
from pathlib import Path

import pytest
from aiohttp import WSMsgType, web
from websockets.asyncio.client import connect

from tapeway.core.model.control import Mode
from tapeway.stores.file.store import FileStore
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.websocket_service import Service, serving

KEY = "sk-proj-Xw0Vb1jZk3Q9canary7Tf2Lr5Yh8Nd"
QUERY = "AIzaSyD4canaryKq8Zt3Wm6Xv1Bn9Lp2Rf5Hs7Jc"
FIELD = "q7Zt3Wm6canaryXv1Bn9Lp2Rf5Hs7Jc4Kq8"
ISSUED = "ek_68a1c4canary9d2e7f3b5a8c1d4e7f0a3b6c9d"
SECRETS = (KEY, QUERY, FIELD, ISSUED)


async def _answer(socket: web.WebSocketResponse) -> None:
    while True:
        message = await socket.receive()
        if message.type is not WSMsgType.TEXT:
            await socket.close(code=1000)
            return
        secret = {"type": "session.secret", "client_secret": {"value": ISSUED, "expires_at": 1}}
        await socket.send_json(secret)
        await socket.send_json({"type": "response.completed", "response": {"id": "resp_1"}})


async def _talk(url: str, path: str, service: Service, *, key: str) -> list[str]:
    offered = ["realtime", f"openai-insecure-api-key.{key}"]
    sent = {"type": "response.create", "input": "hi", "tools": [{"authorization_token": FIELD}]}
    async with connect(
        url.replace("http", "ws") + f"{path}?key={QUERY}",
        subprotocols=offered,  # type: ignore[arg-type]
    ) as client:
        assert client.subprotocol == "realtime"
        await client.send(json.dumps(sent))
        return [str(await client.recv()) for _ in range(2)]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime"])
async def test_no_secret_is_stored_and_the_recording_is_found_without_them(
    path: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    modes: tuple[Mode, ...] = ("record", "replay")
    async with serving(_answer, protocols=("realtime",)) as service:
        for mode in modes:
            async with running_proxy(
                routes={"openai": service.url}, mode=mode, store=FileStore(tmp_path)
            ) as proxy:
                key = KEY if mode == "record" else "sk-another"
                answers = await _talk(f"{proxy.url}/openai", path, service, key=key)
                await proxy.proxy.wait_until_idle()
                shown = "\n".join([repr(entry.written()) for entry in proxy.journal])
                assert proxy.journal.counts == {"recorded" if mode == "record" else "replayed": 1}
                assert not any(secret in shown for secret in SECRETS), shown
            if mode == "record":
                assert ISSUED in answers[0]
                handshake = service.handshakes[0]
                assert handshake.headers["sec-websocket-protocol"].endswith(KEY)
                assert handshake.query["key"] == QUERY

    stored = (tmp_path / "default.json").read_text()
    assert not any(secret in stored for secret in SECRETS), stored
    assert not any(secret in caplog.text for secret in SECRETS)
    assert len(service.handshakes) == 1
