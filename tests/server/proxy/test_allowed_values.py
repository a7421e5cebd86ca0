"""What a project says is no secret is stored as it is; credentials in headers never are."""

import json

import pytest

from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.known_values import Allowed
from tests.server.in_process_proxy import running_proxy
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
