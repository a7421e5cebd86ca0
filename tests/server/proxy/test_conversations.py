"""Tool loops and logins, over real sockets and a saved cassette."""

import pytest

from tapeway.core.json_text import Json, dump
from tests.server.in_process_proxy import RunningProxy, running_proxy, written_and_read
from tests.support.raw_client import Answer
from tests.support.socket_upstream import Peer

JSON = b"Content-Type: application/json"
CALLS = ("call_h5Xw0Vb1jZ", "call_Qp7Lm2Kd9R")


def reply(body: Json, *fields: bytes) -> bytes:
    text = dump(body)
    head = [b"HTTP/1.1 200 OK", JSON, *fields, b"Content-Length: %d" % len(text)]
    return b"\r\n".join([*head, b"", text])


def stream(*calls: str) -> bytes:
    """An event stream that calls tools, as OpenAI's does."""
    events = [dump({"choices": [{"delta": {"tool_calls": [{"id": call}]}}]}) for call in calls]
    text = b"".join([b"data: %b\n\n" % event for event in [*events, b"[DONE]"]])
    return (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)
    )


def turn(*results: tuple[str, str]) -> bytes:
    said: list[Json] = [{"role": "user", "content": "What is the weather?"}]
    if results:
        said.append({"role": "assistant", "tool_calls": [{"id": name} for name, _ in results]})
    said += [{"role": "tool", "tool_call_id": name, "content": text} for name, text in results]
    return dump(
        {
            "model": "gpt-4.1",
            "stream": True,
            "temperature": 0.5,
            "tools": [{"type": "function", "function": {"name": "weather"}}],
            "messages": said,
        }
    )


async def ask(proxy: RunningProxy, body: bytes) -> Answer:
    return await proxy.ask(b"POST /v1/chat/completions", JSON, body=body)


@pytest.mark.parametrize("names", [CALLS, ("mine_1", "mine_2"), ("0", "1")])
async def test_a_loop_of_three_turns_replays_with_other_tool_call_ids(
    names: tuple[str, str],
) -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        peer.then(stream(*CALLS)).then(stream("call_Zz9Yy8Xx7W")).then(stream())
        await ask(proxy, turn())
        first, second = ((call, "sun") for call in CALLS)
        await ask(proxy, turn(first, second))
        await ask(proxy, turn(first, second, ("call_Zz9Yy8Xx7W", "fog")))
        store = await written_and_read(proxy.store)

    async with running_proxy("http://127.0.0.1:9", mode="replay", store=store) as proxy:
        one, two = ((name, "sun") for name in names)
        answers = [
            await ask(proxy, turn()),
            await ask(proxy, turn(one, two)),
            await ask(proxy, turn(one, two, ("another", "fog"))),
        ]

        assert [answer.outcome for answer in answers] == [b"replayed"] * 3
        assert [entry.interaction for entry in proxy.journal] == [2, 1, 0]
        latest, before, _ = [entry.message or "" for entry in proxy.journal]
        assert "call_Zz9Yy8Xx7W is another" in latest
        assert (f"{CALLS[0]} is {names[0]}" in before) is (names != CALLS)


async def test_identifiers_of_a_recording_that_go_live_are_named_in_the_journal() -> None:
    async with Peer() as peer, running_proxy(peer.url, mode="auto") as proxy:
        peer.then(stream(*CALLS)).then(stream()).then(stream())
        await ask(proxy, turn())
        await ask(proxy, turn((CALLS[0], "sun")))
        await proxy.broker.rewind()

        answer = await ask(proxy, turn((CALLS[0], "rain")))

        assert answer.outcome == b"recorded"
        latest, before, *_ = proxy.journal
        assert CALLS[0] in (latest.message or "")
        assert before.message is None


COOKIES = [b"Cookie: sid=%b-is-a-long-session" % name for name in (b"ann", b"bob")]


async def test_a_cookie_that_a_replay_set_is_the_one_that_was_recorded() -> None:
    async with Peer() as peer, running_proxy(peer.url) as proxy:
        for name, cookie in zip((b"ann", b"bob"), COOKIES, strict=True):
            session = cookie.removeprefix(b"Cookie: ")
            peer.then(reply({}, b"Set-Cookie: " + session + b"; Path=/"))
            await proxy.ask(b"POST /login", b"Content-Type: text/plain", body=name)
            peer.then(reply({"name": name.decode()}))
            await proxy.ask(b"GET /me", cookie)
        store = await written_and_read(proxy.store)

    async with running_proxy("http://127.0.0.1:9", mode="replay", store=store) as proxy:
        for name in (b"bob", b"ann"):
            login = await proxy.ask(b"POST /login", b"Content-Type: text/plain", body=name)
            session = login.value(b"set-cookie").partition(b";")[0]
            page = await proxy.ask(b"GET /me", b"Cookie: " + session)

            assert page.body == dump({"name": name.decode()})
