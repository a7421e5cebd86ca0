"""What the journal keeps of calls that no recording holds: request and answer, without secrets."""

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from tapeway.core.model.messages import LARGE_BODY, Request, Response, ResponseHead
from tapeway.engine.kept_calls import KeptCall, KeptCalls
from tapeway.errors import UpstreamError
from tests.admin.admin_and_proxy import LiveAnswer as WholeAnswer
from tests.admin.admin_and_proxy import Service, World, world

KEY = "sk-proj-Zk3mQ8vT1xW5yB7nD2fH4jL6pR9sA0cE"
ISSUED = "gho_16C7e42F292c6912E7710c838347Ae178B4a"
PATH = "/v1/chat/completions"
BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": f"Is {KEY} a key?"}]}
LIMITED = b'{"error":{"type":"rate_limit","message":"Slow down, %s"}}'
JSON = (b"Content-Type", b"application/json")

LIMITED_HEAD = ResponseHead(429, "Too Many Requests", (JSON,))


class BrokenAnswer(WholeAnswer):
    """An answer that breaks off after its first piece."""

    async def pieces(self) -> AsyncIterator[bytes]:
        yield self.body
        raise UpstreamError("the upstream broke off", code="upstream_truncated")


@dataclass(slots=True)
class Answering(Service):
    """A service that gives one answer, whole or cut."""

    head: ResponseHead = LIMITED_HEAD
    said: bytes = LIMITED % ISSUED.encode()
    cut: bool = False
    fails: bool = False

    @asynccontextmanager
    async def ask(self, request: Request) -> AsyncIterator[WholeAnswer]:
        if self.fails:
            raise UpstreamError("the upstream is away", code="upstream_connect")
        made = BrokenAnswer if self.cut else WholeAnswer
        yield made(self.head, self.said)


async def asked(found: World, body: object = BODY, path: str = PATH) -> Any:
    """Ask with a key in the head and in the body; the journal's entry of it."""
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        async with found.http.post(found.proxy + path, json=body, headers=headers) as response:
            await response.read()
    except ClientPayloadError:
        pass
    return (await found.got("/api/v1/journal?limit=1&gist=true"))["entries"][0]


async def call_of(found: World, entry: Any) -> tuple[Any, str]:
    """The call of an entry, and all that the API says of it as text."""
    texts = [
        await (await found.call("GET", path)).text()
        for path in (
            "/api/v1/journal?gist=true",
            f"/api/v1/journal/{entry['id']}",
            f"/api/v1/journal/{entry['id']}/call",
        )
    ]
    return await found.got(f"/api/v1/journal/{entry['id']}/call"), "".join(texts)


@pytest.mark.parametrize(
    "large",
    [
        Request("r", "POST", "/", (), b"x" * 3000),
        Request("r", "POST", "/" + "x" * 3000),
        Request("r", "POST", "/", ((b"x-id", b"x" * 3000),)),
    ],
    ids=["body", "target", "header"],
)
def test_calls_are_kept_up_to_a_size_and_the_oldest_make_room(large: Request) -> None:
    kept = KeptCalls(10, 10_000)

    for number in range(4):
        kept.add(str(number), KeptCall.of(large, Response(ResponseHead(400))))

    assert [kept.get(str(number)) is not None for number in range(4)] == [False, False, True, True]


def test_as_many_calls_are_kept_as_the_journal_has_entries() -> None:
    kept = KeptCalls(2, 10_000)

    for number in range(3):
        kept.add(str(number), KeptCall.of(Request("r", "GET", "/"), Response(ResponseHead(400))))

    assert [kept.get(str(number)) is not None for number in range(3)] == [False, True, True]


def test_a_body_above_a_mebibyte_is_not_kept_and_its_size_is() -> None:
    request = Request("r", "POST", "/", (), b"x" * (LARGE_BODY + 1))
    response = Response(ResponseHead(200), b"y" * (LARGE_BODY + 2))

    kept = KeptCall.of(request, response).exchange

    assert (kept.request.body, kept.response.body) == (b"", b"")
    assert kept.request.file is not None
    assert (kept.request.file.size, kept.response.size) == (LARGE_BODY + 1, LARGE_BODY + 2)


@pytest.mark.parametrize("mode", ["passthrough", "auto"])
@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
async def test_a_call_that_is_passed_on_is_kept_without_its_secrets(mode: str, coded: bool) -> None:
    service = Answering()
    if coded:
        service.head = ResponseHead(429, "", (JSON, (b"Content-Encoding", b"gzip")))
        service.said = gzip.compress(service.said)
    async with world(service=service) as found:
        await found.done("PUT", "/api/v1/mode", {"mode": mode})
        entry = await asked(found)
        call, said = await call_of(found, entry)

    assert entry["outcome"] == "live"
    assert entry["answered"].startswith("429 ")
    assert call["response"]["status"] == 429
    assert "Slow down" in call["response"]["body"]["text"]
    assert call["model"] == "gpt-4o"
    assert call["request"]["body"]["text"].count("REDACTED") == 1
    assert "Is " in call["request"]["body"]["text"]
    assert KEY not in said
    assert ISSUED not in said


async def test_an_error_is_kept_with_the_answer_that_its_client_got() -> None:
    async with world(service=Answering(fails=True)) as found:
        entry = await asked(found)
        call, said = await call_of(found, entry)

    assert entry["outcome"] == "error"
    assert entry["answered"].startswith("upstream_connect: ")
    assert entry["asked"].startswith("Is ")
    assert call["response"]["status"] == entry["status"]
    assert "upstream_connect" in call["response"]["body"]["text"]
    assert KEY not in said


async def test_a_miss_is_kept_with_the_answer_that_its_client_got() -> None:
    async with world() as found:
        await found.done("PUT", "/api/v1/mode", {"mode": "replay"})
        entry = await asked(found)
        call, said = await call_of(found, entry)

    assert entry["outcome"] == "miss"
    assert call["response"]["status"] == 400
    assert "replay miss" in call["response"]["body"]["text"]
    assert "Is " in call["request"]["body"]["text"]
    assert KEY not in said


async def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came() -> None:
    async with world(service=Answering(said=b"half a ", cut=True)) as found:
        await found.done("PUT", "/api/v1/mode", {"mode": "passthrough"})
        entry = await asked(found)
        call, _ = await call_of(found, entry)

    assert entry["outcome"] == "error"
    assert call["response"]["body"]["text"] == "half a "
    assert call["response"]["verdict"] == "truncated"


async def test_of_a_large_answer_only_the_size_is_kept() -> None:
    size = LARGE_BODY + 7
    async with world(service=Answering(said=b"x" * size)) as found:
        await found.done("PUT", "/api/v1/mode", {"mode": "passthrough"})
        call, _ = await call_of(found, await asked(found))

    body = call["response"]["body"]
    assert (body["size"], body["cut"], body["text"] or "") == (size, True, "")


async def test_a_replayed_call_is_that_of_its_recording() -> None:
    async with world() as found:
        recorded, _ = await call_of(found, await asked(found))
        replayed, _ = await call_of(found, await asked(found))
        view = await found.got("/api/v1/cassettes/default/interactions/0/view")

    assert recorded == replayed == view


async def test_a_call_that_made_room_for_newer_ones_is_not_there() -> None:
    async with world(service=Answering()) as found:
        entry = await asked(found)
        found.journal.kept.clear()
        answer = await found.call("GET", f"/api/v1/journal/{entry['id']}/call")
        refused = await answer.json()

    assert (answer.status, refused["error"]["code"]) == (404, "not_kept")


async def test_what_is_kept_is_searched_for_a_text() -> None:
    async with world(service=Answering()) as found:
        await asked(found)
        said = await found.got("/api/v1/journal?text=slow down")
        unsaid = await found.got("/api/v1/journal?text=hurry up")

    assert (len(said["entries"]), len(unsaid["entries"])) == (1, 0)


async def test_looking_at_once_shows_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(service=Answering()) as found:
        entry = await asked(found)
        calls = [found.got(f"/api/v1/journal/{entry['id']}/call") for _ in range(4)]
        first, *others = await asyncio.gather(*calls)

    assert all(other == first for other in others)
