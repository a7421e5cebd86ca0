"""Recording anew in mode `record` leaves nothing behind, and what has not changed alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.control import Delivery, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.stores.contract.kinds import KINDS, Place
from tests.support.raw_client import Answer, RawClient
from tests.support.socket_upstream import Peer

JSON = b"Content-Type: application/json"
CHAT = b"POST /v1/chat/completions"


@dataclass(slots=True)
class Recorder:
    """A store that is recorded to in one run after the other, each with a broker of its own."""

    place: Place
    peer: Peer
    day: str = "2026-11-01"
    runs: int = 0
    delivery: Delivery = "buffer"
    answers: list[Answer] = field(default_factory=list)

    @asynccontextmanager
    async def run(self, mode: Mode = "record") -> AsyncIterator[RunningProxy]:
        self.runs += 1
        options = ProxyOptions(max_body=2**23, body_idle_s=10, delivery=self.delivery)
        async with running_proxy(
            self.peer.url,
            mode=mode,
            store=self.place.again(),
            today=lambda: self.day,
            options=options,
        ) as proxy:
            yield proxy

    def will_answer(self, body: bytes, *fields: bytes) -> None:
        """The upstream's next answer; all but `fields` and volatile headers is the same each time."""
        number = len(self.answers) + self.runs * 100
        lines = (
            b"HTTP/1.1 200 OK",
            b"Content-Type: application/json",
            b"Date: Sun, 22 Nov 2026 14:%02d:00 GMT" % (self.runs % 60),
            b"x-request-id: req_%d" % number,
            b"CF-Ray: 8f%dabc-FRA" % number,
            b"openai-processing-ms: %d" % number,
            b"x-ratelimit-remaining-tokens: %d" % (9999 - number),
            b"Set-Cookie: __cf_bm=v%d.aaaaaaaaaaaaaaaaaaaa; path=/; HttpOnly" % number,
            *fields,
            b"Content-Length: %d" % len(body),
        )
        self.peer.then(b"\r\n".join([*lines, b"", body]))

    async def ask(
        self, proxy: RunningProxy, line: bytes, body: bytes = b"", *, answer: bytes
    ) -> Answer:
        """Ask the upstream, which gives this answer."""
        self.will_answer(answer)
        found = await proxy.ask(line, JSON, body=body)
        assert (found.outcome, found.body) == (b"recorded", answer)
        self.answers.append(found)
        return found

    async def stored(self) -> StoredCassette:
        store = self.place.again()
        await store.open()
        try:
            found = await store.load("default", writable=False)
        finally:
            await store.close()
        assert found is not None
        return found

    async def bodies(self) -> list[bytes]:
        """The stored answers, in order."""
        found = (await self.stored()).interactions
        return [
            interaction.response.body
            for interaction in found
            if isinstance(interaction, Interaction)
        ]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def recorder(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Recorder]:
    async with request.param.of_test(request, tmp_path) as place, Peer() as peer:
        yield Recorder(place, peer)


def called(id: str) -> bytes:
    """A model's answer that calls a tool."""
    calls: Json = [{"id": id, "type": "function", "function": {"name": "weather"}}]
    message: Json = {"role": "assistant", "content": None, "tool_calls": calls}
    return dump({"id": f"chatcmpl-{id}", "choices": [{"message": message}]})


def turn(prompt: str, *ids: str) -> bytes:
    """A turn of the loop, with the results of these calls."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    for call_id in ids:
        calls: Json = [{"id": call_id, "type": "function", "function": {"name": "weather"}}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": call_id, "content": "sun"})
    return dump({"model": "m", "messages": messages})


async def test_a_tool_loop_recorded_four_times_is_held_once(recorder: Recorder) -> None:
    for number in range(4):
        async with recorder.run() as proxy:
            first, second = f"call_a{number}Xw0Vb1jZ", f"call_b{number}Xw0Vb1jZ"
            await recorder.ask(proxy, CHAT, turn("weather?"), answer=called(first))
            await recorder.ask(proxy, CHAT, turn("weather?", first), answer=called(second))
            last = b'{"id":"chatcmpl-last%d","choices":[]}' % number
            await recorder.ask(proxy, CHAT, turn("weather?", first, second), answer=last)

    assert await recorder.bodies() == [called(first), called(second), last]
    async with recorder.run("replay") as proxy:
        asked = [turn("weather?"), turn("weather?", first), turn("weather?", first, second)]
        found = [await proxy.ask(CHAT, JSON, body=request) for request in asked]
        assert [answer.body for answer in found] == [called(first), called(second), last]


async def test_identifiers_in_paths_are_followed_too(recorder: Recorder) -> None:
    for number in range(3):
        async with recorder.run() as proxy:
            thread = f"thread_k{number}Xw0Vb1jZ"
            made = b'{"id":"%b","object":"thread"}' % thread.encode()
            await recorder.ask(proxy, b"POST /v1/threads", b"{}", answer=made)
            path = b"/v1/threads/%b/messages?after=%b" % (thread.encode(), thread.encode())
            await recorder.ask(proxy, b"GET " + path, answer=b'{"data":[%d]}' % number)

    assert await recorder.bodies() == [made, b'{"data":[2]}']


async def test_a_call_that_the_app_named_itself_is_held_once(recorder: Recorder) -> None:
    def asked(name: str) -> bytes:
        contents: list[Json] = [
            {"role": "model", "parts": [{"functionCall": {"name": "w", "id": name}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "w", "id": name}}]},
        ]
        return dump({"contents": contents})

    for number in range(3):
        async with recorder.run() as proxy:
            line = b"POST /v1beta/models/gemini:generateContent"
            name = f"pyd_ai_{number}a1b2c"
            await recorder.ask(proxy, line, asked(name), answer=b'{"run":%d}' % number)

    assert await recorder.bodies() == [b'{"run":2}']


async def test_another_conversation_with_the_same_words_stays(recorder: Recorder) -> None:
    line = b"POST /v1/responses"

    async def converse(proxy: RunningProxy, prompt: str, id: str) -> None:
        issued = dump({"id": id, "output": []})
        await recorder.ask(proxy, line, dump({"input": prompt}), answer=issued)
        more = dump({"input": "go on", "previous_response_id": id})
        await recorder.ask(proxy, line, more, answer=dump({"id": id + "end", "said": prompt}))

    async with recorder.run() as proxy:
        await converse(proxy, "one", "resp_a1b2c3d4")
        await converse(proxy, "two", "resp_e5f6g7h8")
    async with recorder.run() as proxy:
        await converse(proxy, "two", "resp_i9j0k1l2")
        await converse(proxy, "three", "resp_m3n4o5p6")

    said = [body.partition(b'"said":')[2] for body in await recorder.bodies()]
    assert sorted(message for message in said if message) == [b'"one"}', b'"three"}', b'"two"}']
    assert len(said) == 6


ANSWERS = [b'{"a":1}', b'{"b":1}', b'{"c":1}']


async def record(recorder: Recorder, *answers: bytes, line: bytes = b"GET /v1/poll") -> None:
    async with recorder.run() as proxy:
        for answer in answers:
            await recorder.ask(proxy, line, answer=answer)


async def without_day(recorder: Recorder) -> StoredCassette:
    """The cassette without the day on which it was checked."""
    found = await recorder.stored()
    found.head.meta.pop("checked_at", None)  # type: ignore[attr-defined] # a copy of its own
    return found


@pytest.mark.parametrize("delivery", ["buffer", "stream"])
async def test_an_unchanged_answer_leaves_its_recording_alone(
    recorder: Recorder, delivery: Delivery
) -> None:
    recorder.delivery = delivery
    await record(recorder, *ANSWERS)
    before = await without_day(recorder)
    await record(recorder, *ANSWERS)
    await record(recorder, *ANSWERS)
    after = await recorder.stored()

    assert after.interactions == before.interactions
    assert after.head.meta["checked_at"] == "2026-11-01"
    recorder.day = "2026-11-02"
    await record(recorder, *ANSWERS)
    assert (await recorder.stored()).head.meta["checked_at"] == "2026-11-02"
    assert await without_day(recorder) == before


async def test_a_changed_answer_too_renews_the_day_of_the_check(recorder: Recorder) -> None:
    await record(recorder, b'{"x":1}')
    await record(recorder, b'{"x":1}')
    for day, answer in (("2026-11-02", b'{"x":2}'), ("2026-11-03", b'{"x":3}')):
        recorder.day = day
        await record(recorder, answer)
        assert (await recorder.stored()).head.meta["checked_at"] == day


async def test_the_first_changed_answer_replaces_it_and_all_that_follow(recorder: Recorder) -> None:
    await record(recorder, *ANSWERS)
    await record(recorder, b"{}", line=b"GET /v1/other")

    await record(recorder, ANSWERS[0], b'{"x":1}', ANSWERS[2], ANSWERS[2])
    expected = [ANSWERS[0], b'{"x":1}', b"{}", ANSWERS[2], ANSWERS[2]]
    assert await recorder.bodies() == expected
    await record(recorder, b'{"y":1}')
    assert await recorder.bodies() == [b'{"y":1}', b"{}"]


@pytest.mark.parametrize("end", ["stop", "eject", "mode"])
async def test_what_an_earlier_take_got_more_often_is_left_out_at_the_end(
    recorder: Recorder, end: str
) -> None:
    await record(recorder, *ANSWERS)
    await record(recorder, b"{}", line=b"GET /v1/other")
    async with recorder.run() as proxy:
        for answer in ANSWERS[:2]:
            await recorder.ask(proxy, b"GET /v1/poll", answer=answer)
        if end == "eject":
            await proxy.broker.eject()
        if end == "mode":
            await proxy.broker.set_mode("replay")
            found = [await proxy.ask(b"GET /v1/poll", JSON) for _ in range(3)]
            assert [answer.body for answer in found] == [*ANSWERS[:2], ANSWERS[1]]

    assert await recorder.bodies() == [*ANSWERS[:2], b"{}"]


async def test_a_changed_answer_keeps_its_place(recorder: Recorder) -> None:
    lines = [b"GET /v1/%d" % number for number in range(4)]
    for changed in (b"0", b"1"):
        async with recorder.run() as proxy:
            for line in lines:
                answer = line[4:] if line.endswith((b"0", b"3")) else line[4:] + changed
                await recorder.ask(proxy, line, answer=answer)

    assert await recorder.bodies() == [b"/v1/0", b"/v1/11", b"/v1/21", b"/v1/3"]


async def test_equal_requests_at_the_same_time_find_their_recordings_unchanged(
    recorder: Recorder,
) -> None:
    async def all_at_once(proxies: Sequence[RunningProxy]) -> None:
        for _ in range(8):
            recorder.will_answer(b"{}")
        async with asyncio.TaskGroup() as tasks:
            for number in range(8):
                tasks.create_task(proxies[number % len(proxies)].ask(b"GET /v1/poll", JSON))

    async with recorder.run() as proxy:
        await all_at_once([proxy])
    before = await without_day(recorder)
    assert len(before.interactions) == 8
    async with recorder.run() as proxy:
        await all_at_once([proxy])

    assert await without_day(recorder) == before


async def test_the_files_of_an_unchanged_cassette_are_the_same_bytes(tmp_path: Path) -> None:
    kind = next(candidate for candidate in KINDS if candidate.name == "file")
    async with kind.place(tmp_path, "") as place, Peer() as peer:
        recorder = Recorder(place, peer)

        def files() -> dict[str, bytes]:
            found = (tmp_path / "cassettes").rglob("*.json")
            return {str(path): path.read_bytes() for path in found}

        await record(recorder, *ANSWERS)
        await record(recorder, *ANSWERS)
        before = files()
        await record(recorder, *ANSWERS)
        assert files() == before
        recorder.day = "2026-11-02"
        await record(recorder, *ANSWERS)
        ((_, text),) = files().items()
        ((_, old),) = before.items()
        assert text == old.replace(b"2026-11-01", b"2026-11-02")
        assert text != old


async def test_what_came_in_before_a_change_of_mode_replaces_nothing_of_its_own_take(
    recorder: Recorder,
) -> None:
    said = [b'{"said":"%d"}' % number for number in range(3)]
    body = b'{"prompt":"again"}'
    async with recorder.run() as proxy, proxy.connect() as late:
        for message in said[:2]:
            await recorder.ask(proxy, CHAT, body, answer=message)
        length = b"Content-Length: %d" % len(body)
        head = proxy.request(CHAT, JSON, b"Expect: 100-continue", length)
        assert (await late.ask(head)).status == 100
        await proxy.broker.set_mode("replay")
        recorder.will_answer(said[2])
        assert (await late.ask(body)).outcome == b"recorded"
        replayed = [await proxy.ask(CHAT, JSON, body=body) for _ in said]

    assert [answer.body for answer in replayed] == said
    assert await recorder.bodies() == said


async def test_repeats_come_in_the_order_in_which_they_were_asked_also_where_the_later_ended_first(
    recorder: Recorder,
) -> None:
    body, over = b'{"prompt":"again"}', asyncio.Event()
    ok = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\n\r\n"
    async with recorder.run() as proxy, proxy.connect() as first, proxy.connect() as second:
        asked = proxy.request(CHAT, JSON, body=body)
        recorder.peer.then(over, ok + b'{"said":"a"}').then(ok + b'{"said":"b"}')
        await first.send(asked)
        await recorder.peer.asked.wait()
        await second.send(asked)
        quick = await _final(second)
        over.set()
        slow = await _final(first)
        await proxy.broker.set_mode("replay")
        replayed = [(await proxy.ask(CHAT, JSON, body=body)).body for _ in range(2)]

    assert (slow.outcome, quick.outcome) == (b"recorded", b"recorded")
    assert replayed == [b'{"said":"a"}', b'{"said":"b"}'] == await recorder.bodies()


async def _final(client: RawClient) -> Answer:
    """The answer after those that come before it, which show loops of proxies."""
    while (answer := await client.answer()).status < 200:
        pass
    return answer


async def test_requests_at_the_same_time_are_stored_in_the_order_in_which_they_came(
    recorder: Recorder,
) -> None:
    def text(body: bytes) -> bytes:
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    hold = asyncio.Event()
    async with recorder.run() as proxy:
        recorder.peer.then(hold, text(b"first")).then(text(b"second"))
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(proxy.ask(b"GET /v1/files/one"))
            await recorder.peer.asked.wait()
            second = await proxy.ask(b"GET /v1/files/two")
            hold.set()
        assert [second.body, (await first).body] == [b"second", b"first"]

    assert await recorder.bodies() == [b"first", b"second"]
    async with recorder.run() as proxy:
        recorder.peer.then(text(b"third")).then(text(b"another second"))
        await proxy.ask(b"GET /v1/files/three")
        await proxy.ask(b"GET /v1/files/two")

    assert await recorder.bodies() == [b"first", b"another second", b"third"]
