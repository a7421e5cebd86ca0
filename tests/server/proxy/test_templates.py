"""Answers by hand that repeat the request, name a time or a new id."""

import json

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.messages import Response, ResponseHead
from tapeway.formats.errors import FormatFault
from tapeway.formats.native import document
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import running_proxy

JSON = b"Content-Type: application/json"


def cassette(answer: Json, *, template: object = True) -> bytes:
    response = {"status_code": 200, "json": answer, "template": template}
    interaction = {
        "kind": "http",
        "request": {"method": "POST", "url": "https://a.example/v1/jobs?page=2"},
        "response": response,
    }
    return json.dumps({"version": "1", "interactions": [interaction]}).encode()


async def given(text: bytes, *fields: bytes, body: bytes = b"", times: int = 1) -> list[Json]:
    store = MemoryStore()
    await store.save("default", document.load(text))
    async with running_proxy(
        mode="replay", routes={"default": "https://a.example"}, store=store
    ) as proxy:
        found = [await proxy.ask(b"POST /v1/jobs?page=2", *fields, body=body) for _ in range(times)]
        kept = await store.load("default", writable=False)

    assert kept is not None
    assert document.save(kept) == document.save(document.load(text))
    return [json.loads(each.body) for each in found]


async def test_each_replay_fills_the_places_of_a_template() -> None:
    answer: Json = {
        "page": {"$request": "query.page"},
        "method": {"$request": "method"},
        "expires_at": {"$now": "+3600"},
        "ids": [{"$uuid": "a"}, {"$uuid": "b"}, {"$uuid": "a"}],
        "$ref": {"$ref": "#/x"},
    }

    first, second = await given(cassette(answer), times=2)

    assert isinstance(first, dict)
    assert isinstance(second, dict)
    assert (first["page"], first["method"], first["$ref"]) == ("2", "POST", {"$ref": "#/x"})
    assert isinstance(first["expires_at"], int)
    ids, others = first["ids"], second["ids"]
    assert isinstance(ids, list)
    assert isinstance(others, list)
    assert ids[0] == ids[2] != ids[1]
    assert ids[0] not in others


async def test_a_value_that_the_request_lacks_is_an_error_that_names_it() -> None:
    (error,) = await given(cassette({"id": {"$request": "body.id"}}))

    assert isinstance(error, dict)
    assert (
        "cassette 'default' #0: its answer is a template, but the request has nothing at body.id"
        in str(error["message"])
    )


async def test_an_answer_that_is_no_template_stays_as_it_is() -> None:
    answer: Json = {"id": {"$request": "body.id"}}

    assert await given(cassette(answer, template=False)) == [answer]


@pytest.mark.parametrize(
    ("answer", "template", "named"),
    [
        ({"a": {"$now": "later"}}, True, "'later' is no offset in seconds"),
        ({"a": {"$request": "body.**"}}, True, "leads to more than one value"),
        ({"a": {"$uuid": 1}}, True, "what $uuid names is no text"),
        ({"a": 1}, "yes", "template"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused_when_it_is_read(
    answer: Json, template: object, named: str
) -> None:
    with pytest.raises(FormatFault) as caught:
        document.load(cassette(answer, template=template))

    assert named in str(caught.value)


def test_a_template_is_written_as_it_was_read() -> None:
    text = document.save(document.load(cassette({"a": {"$uuid": "x"}})))

    assert json.loads(text)["interactions"][0]["response"]["template"] is True
    assert not Response(ResponseHead(200), b"{}").template
