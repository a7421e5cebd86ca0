"""What a project says is no secret is stored as it is; credentials in headers never are."""

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from websockets.asyncio.client import connect

from tapeway.core.model.control import Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.known_values import Allowed
from tapeway.engine.editing.changes import Addition
from tapeway.errors import AdminError
from tapeway.stores.file.store import FileStore
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import running_proxy
from tests.server.websocket.websocket_service import serving
from tests.stores.contract.kinds import KINDS, Kind
from tests.support.socket_upstream import Peer

BUILD = "bld-4f6b2c9d8e1a7350"
OTHER = "tok-Zq7TnV4mXc9LpR2sWk8H"
FORM = "sk-proj-0123456789abcdefghij"
PIECES = [FORM[:9], FORM[9:]]
EVENTS = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in PIECES]
STREAM = "".join([f"data: {json.dumps(event)}\n\n" for event in EVENTS]).encode()


async def recorded(
    allowed: tuple[str, ...],
    body: object,
    *fields: bytes,
    target: str = "/v1/x",
    answer: bytes | None = None,
) -> Interaction:
    """The recording of such a request; the answer says the same."""
    sent = json.dumps(body).encode()
    said = sent if answer is None else answer
    kind = b"application/json" if answer is None else b"text/event-stream"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(said))
    async with (
        Peer().then(head + said) as upstream,
        running_proxy(upstream.url, allowed=Allowed(allowed)) as proxy,
    ):
        line = b"POST " + target.encode()
        got = await proxy.ask(line, b"Content-Type: application/json", *fields, body=sent)
        assert got.status == 200
        (item,) = await proxy.recorded()
    return item


@pytest.mark.parametrize("allowed", ["bld-*", "*8e1a7350", BUILD])
async def test_a_value_on_the_list_is_stored_as_it_is(allowed: str) -> None:
    body = {"api_key": OTHER, "client_secret": BUILD, "prompt": f"use HF_TOKEN={BUILD} now"}
    item = await recorded((allowed,), body, target=f"/v1/x?access_token={BUILD}")

    assert json.loads(item.request.body)["client_secret"] == BUILD
    assert f"HF_TOKEN={BUILD}" in json.loads(item.response.body)["prompt"]
    assert item.request.target == f"/v1/x?access_token={BUILD}"
    assert OTHER.encode() not in item.request.body + item.response.body


async def test_a_name_on_the_list_is_that_of_fields_parameters_and_assignments() -> None:
    body = {"api_key": OTHER, "client_secret": BUILD, "prompt": f"client_secret={BUILD}"}
    item = await recorded(("client_sec*",), body, target=f"/v1/x?client_secret={BUILD}")

    assert json.loads(item.request.body)["client_secret"] == BUILD
    assert json.loads(item.request.body)["prompt"] == f"client_secret={BUILD}"
    assert item.request.target == f"/v1/x?client_secret={BUILD}"
    assert OTHER.encode() not in item.request.body + item.response.body


async def test_a_value_under_another_name_is_replaced_everywhere() -> None:
    item = await recorded(("client_secret",), {"client_secret": BUILD, "api_key": BUILD})

    assert BUILD.encode() not in item.request.body + item.response.body


async def test_without_a_list_all_of_it_is_replaced() -> None:
    item = await recorded((), {"client_secret": BUILD}, target=f"/v1/x?access_token={BUILD}")

    assert BUILD.encode() not in item.request.body + item.response.body
    assert BUILD not in item.request.target


async def test_the_label_of_a_known_form_may_be_on_the_list() -> None:
    item = await recorded(("openai-key",), {"prompt": f"{FORM} is an example"}, answer=STREAM)

    assert FORM.encode() in item.request.body
    assert item.response.body == STREAM


async def test_a_credential_in_a_header_is_replaced_wherever_it_stands() -> None:
    authorization = f"Authorization: Bearer {BUILD}".encode()
    item = await recorded(("bld-*", "authorization"), {"prompt": BUILD}, authorization)

    assert BUILD.encode() not in item.request.body + item.response.body
    assert BUILD not in repr(item.request.credentials)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_on_every_store_an_allowed_value_stands_as_it_is_wherever_it_is_met(
    kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    note = base64.b64encode(f"HF_TOKEN={BUILD}".encode()).decode()
    asked = {"clientSecret": "build7", "prompt": f"decode {note}", "client_secret": BUILD}
    large = f"BUILD_TOKEN={BUILD} ".encode() + b"words " * 250_000 + FORM.encode()
    place = f"Location: https://a.example/x?access_token={BUILD}"
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{place}\r\n"
    coded = gzip.compress(json.dumps({"access_token": BUILD}).encode())
    zipped = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\n"
        f"Content-Length: {len(coded)}\r\n\r\n"
    )
    upstream = Peer().then(f"{head}Content-Length: {len(large)}\r\n\r\n".encode() + large)
    upstream = upstream.then(zipped.encode() + coded)
    target = f"/v1/x?access_token={BUILD}".encode()
    allowed = Allowed(("bld-*", "clientsecret", "openai-key"))
    fields = b"Content-Type: application/json", f"Referer: http://a/?api_key={BUILD}".encode()
    async with kind.of_test(request, tmp_path) as place_of_store, upstream as service:
        modes: tuple[Mode, ...] = ("record", "replay")
        for mode in modes:
            store = place_of_store.again()
            async with running_proxy(service.url, mode=mode, store=store, allowed=allowed) as proxy:
                body = json.dumps(asked).encode()
                whole = await proxy.ask(b"POST " + target, *fields, body=body)
                assert (whole.status, whole.body) == (200, large)
                assert whole.value(b"location").endswith(BUILD.encode())
                assert (await proxy.ask(b"GET " + target)).body == coded
                first, later = await proxy.recorded()
                assert json.loads(first.request.body) == asked
                assert first.request.target == later.request.target == target.decode()
                assert all(BUILD in entry.path for entry in proxy.journal)
                assert proxy.journal.counts == {"recorded" if mode == "record" else "replayed": 2}


async def test_a_value_that_was_replaced_before_the_list_is_recorded_as_it_is_and_still_replays() -> (
    None
):
    store = MemoryStore()
    asked = [{"client_secret": BUILD}, {"prompt": f"say {BUILD}"}]
    bodies = [json.dumps(body).encode() for body in asked]
    upstream = Peer()
    for body in bodies:
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        upstream = upstream.then(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    json_type = b"Content-Type: application/json"
    async with upstream as service:
        async with running_proxy(service.url, store=store) as proxy:
            await proxy.ask(b"POST /v1/x", json_type, body=bodies[0])
        async with running_proxy(service.url, store=store, allowed=Allowed(["bld-*"])) as proxy:
            await proxy.ask(b"POST /v1/x", json_type, body=bodies[1])
            before, later = await proxy.recorded()
            assert BUILD.encode() not in before.request.body + before.response.body
            assert [later.request.body, later.response.body] == [bodies[1], bodies[1]]
        replaying = running_proxy(
            service.url, mode="replay", store=store, allowed=Allowed(["bld-*"])
        )
        async with replaying as proxy:
            for body in bodies:
                assert (await proxy.ask(b"POST /v1/x", json_type, body=body)).status == 200


async def test_a_recording_with_an_allowed_value_may_be_added_and_any_other_secret_is_refused() -> (
    None
):
    item = await recorded(("bld-*",), {"client_secret": BUILD})
    async with running_proxy(allowed=Allowed(["bld-*"])) as proxy:
        await proxy.broker.editor.append("default", [Addition(item)])
        (added,) = await proxy.recorded()
        body = json.dumps({"api_key": OTHER}).encode()
        leaking = replace(item, request=replace(item.request, body=body))
        with pytest.raises(AdminError, match="api_key"):
            await proxy.broker.editor.append("default", [Addition(leaking)])

    assert added.request.body == item.request.body


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime"])
async def test_a_message_of_a_connection_keeps_an_allowed_value(path: str, tmp_path: Path) -> None:
    async def answer(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_json(
            {"type": "response.completed", "response": {"id": "resp_1"}, "access_token": BUILD}
        )
        await socket.receive()

    store = FileStore(tmp_path)
    async with (
        serving(answer) as service,
        running_proxy(
            routes={"openai": service.url}, store=store, allowed=Allowed(["bld-*"])
        ) as proxy,
    ):
        url = f"{proxy.url}/openai{path}".replace("http", "ws")
        async with connect(url) as client:
            await client.send(
                json.dumps({"type": "response.create", "client_secret": BUILD, "api_key": OTHER})
            )
            await client.recv()
        await proxy.proxy.wait_until_idle()
    stored = (tmp_path / "default.json").read_text()

    assert stored.count(BUILD) >= 2
    assert OTHER not in stored


@pytest.mark.parametrize(
    ("pattern", "is_allowed"),
    [
        ("CLIENT_SECRET", True),
        ("client_*et", True),
        ("short-client_secret", False),
        ("client_secre", False),
        ("BLD-*", False),
        ("bld-*7*50", True),
        ("bld-*7*51", False),
        ("bld-*.*", False),
    ],
)
async def test_letter_case_counts_in_values_alone(pattern: str, is_allowed: bool) -> None:
    item = await recorded((pattern,), {"client_secret": BUILD})

    assert (BUILD.encode() in item.request.body) is is_allowed
