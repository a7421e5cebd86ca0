"""One live call: asked once, taken in whole, durable before it is handed out."""

import asyncio
import gzip
import json
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeVar, cast

import orjson
import pytest

from tapeway.body_files import read_body, with_body_in_memory
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.cassette.plan import Answer, LiveCall
from tapeway.core.cassette.rerecording import Replacement
from tapeway.core.matching.key import key_and_body, request_key
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.control import MODE_POLICIES, Mode
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor, StreamRedactor
from tapeway.engine.cassettes.source import Source
from tapeway.engine.open_streams import OpenStreams
from tapeway.engine.recording.call import RunningCall
from tapeway.engine.recording.selection import Policy
from tapeway.engine.recording.storing import Storing
from tapeway.errors import Draining, StoreFull, TapewayError, UpstreamError
from tapeway.formats.native.document import encode
from tests.support.canary import canary, sightings
from tests.support.coded_bodies import flushed
from tests.support.fakes.broker import HEAD
from tests.support.fakes.failing_store import FakeStore
from tests.support.fakes.live_service import FakeAnswer, FakeResponder
from tests.support.leftovers import no_collector, unnamed_files

JSON: Headers = ((b"content-type", b"application/json"),)
CHAT = "/v1/chat/completions"

T = TypeVar("T")


class Call:
    """A live call and everything around it."""

    def __init__(
        self,
        answer: FakeAnswer,
        *,
        mode: Mode = "auto",
        request: Request | None = None,
        policy: Policy | None = None,
        known: tuple[Secret, ...] = (),
    ) -> None:
        self.store, self.responder = FakeStore(), FakeResponder(lambda _: answer)
        self.cassette = CassetteIndex("c", StoredCassette(HEAD), take=1)
        self.request = request or Request("openai", "GET", "/v1/x", base="https://up")
        redaction = RequestRedaction(known)
        seen, secrets = redaction.redact_and_learn(HEAD.run_id, self.request)
        keyed = key_and_body(seen, NO_RULES)
        key, read = keyed.key, keyed.read
        ask = LiveCall(
            self.cassette,
            self.cassette.take,
            MODE_POLICIES[mode],
            self.request,
            seen,
            secrets,
            key,
            read=read,
        )
        storing = Storing(
            self.store,
            policy or Policy(),
            redaction,
            lambda ask, _: nullcontext(Replacement(ask.cassette)),
            cast("Source", SourceOfOne()),
        )
        self.call = RunningCall(ask, self.responder, storing, OpenStreams(), note_nothing)

    async def answer(self) -> Answer:
        result = await self.call.run()
        assert isinstance(result, Answer)
        return result

    async def error(self) -> TapewayError:
        result = await self.call.run()
        assert isinstance(result, TapewayError)
        return result

    async def recording(self) -> Interaction:
        """What the store was given, which is what the cassette holds."""
        found = await self.store.load("c", writable=False)
        assert found is not None
        (interaction,) = found.interactions
        assert isinstance(interaction, Interaction)
        assert self.cassette.get(interaction.index) == interaction
        return interaction

    async def kept(self) -> bool:
        return await self.store.load("c", writable=False) is not None or len(self.cassette) > 0


async def note_nothing(ask: LiveCall) -> None:
    pass


class SourceOfOne:
    """What a call needs of the cassette's source, where nobody else uses the cassette."""

    async def note_write(self, ask: LiveCall) -> None:
        pass

    async def reserve(self, ask: LiveCall) -> int:
        return ask.cassette.reserve()

    def going_on(self, ask: LiveCall, index: int) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def reading(self, cassette: CassetteIndex, work: Callable[[], T]) -> T:
        return work()

    def appended(self, ask: LiveCall, cassette: CassetteIndex, index: int) -> None:
        pass


async def test_an_answer_is_recorded_and_handed_out_as_it_came() -> None:
    call = Call(FakeAnswer(b"one", b"two", framing="chunked", headers=JSON))
    answer = await call.answer()
    recording = await call.recording()

    assert (answer.outcome, answer.cassette, answer.index) == ("recorded", "c", 0)
    assert answer.response.pieces() == [b"one", b"two"]
    assert [*answer.response.chunk_times.times] == [0.0, 1.0]
    assert recording.response == answer.response
    assert recording.latency_ms == answer.response.latency_ms == 2.0
    assert request_key(recording.request) == answer.key
    assert call.responder.asked == [call.request]


async def test_the_bodies_of_a_recording_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = b'{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}'
    asked = Request("openai", "POST", CHAT, JSON, b'{"model": "m"}', base="https://up")
    call = Call(FakeAnswer(answered, headers=JSON), request=asked)
    read: list[bytes] = []
    loads, append = orjson.loads, call.store.append
    appended: list[Recording] = []

    def counted(text: bytes) -> object:
        read.append(text)
        return loads(text)

    async def kept(name: str, head: CassetteHead, recording: Recording) -> None:
        appended.append(recording)
        await append(name, head, recording)

    monkeypatch.setattr(call.store, "append", kept)
    monkeypatch.setattr(orjson, "loads", counted)
    await call.answer()
    (recording,) = appended
    document = encode(recording.interaction, recording.read)

    assert document["usage"] == {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    assert document["metadata"] == {
        "provider": "openai",
        "endpoint": "chat.completions",
        "model": "m",
    }
    assert read == [answered]


@pytest.mark.parametrize(
    ("framing", "chunks"),
    [("length", [b"onetwo"]), ("chunked", [b"one", b"two"]), ("close", [b"one", b"two"])],
)
async def test_only_what_the_service_cut_is_kept_cut(framing: str, chunks: list[bytes]) -> None:
    call = Call(FakeAnswer(b"one", b"two", framing=framing))  # type: ignore[arg-type]
    answer = await call.answer()

    assert answer.response.pieces() == chunks
    assert answer.response.arrivals().times[-1] == 1.0


async def test_an_answer_without_a_body_has_no_chunks() -> None:
    answer = await Call(FakeAnswer(status=204)).answer()

    assert (answer.response.pieces(), answer.response.body) == ([], b"")


@pytest.mark.parametrize(
    ("mode", "status", "outcome"),
    [
        ("auto", 200, "recorded"),
        ("auto", 206, "recorded"),
        ("auto", 304, "recorded"),
        ("auto", 404, "recorded"),
        ("auto", 429, "live"),
        ("auto", 500, "live"),
        ("record", 200, "recorded"),
        ("record", 304, "recorded"),
        ("record", 500, "recorded"),
        ("passthrough", 200, "live"),
    ],
)
async def test_what_is_kept_depends_on_mode_and_status(
    mode: Mode, status: int, outcome: str
) -> None:
    call = Call(FakeAnswer(b"x", status=status), mode=mode)
    answer = await call.answer()

    assert (answer.outcome, answer.response.status) == (outcome, status)
    assert await call.kept() is (outcome == "recorded")
    assert (answer.index is None) is (outcome == "live")


CHAT_CALL = Request("openai", "POST", "/v1/chat/completions", JSON, b"{}", "https://up")
JOBS = Request("openai", "POST", "/v1/batches", JSON, b"{}", "https://up")
LOOK = Request("x", "HEAD", "/file", base="https://up")
END_SESSION = Request("x", "DELETE", "/mcp", ((b"mcp-session-id", b"5f1c2d"),), base="https://up")


@pytest.mark.parametrize(
    ("request_", "kept", "passed_on"),
    [
        (CHAT_CALL, [200, 206, 307, 308], [400, 404, 409, 422, 429, 500]),
        (JOBS, [201, 303, 400, 404, 409, 410, 422], [401, 403, 408, 429, 503]),
        (LOOK, [302, 304, 404, 405, 412], [401, 407, 421, 423, 425, 500]),
        (END_SESSION, [204, 404, 405], [401, 403]),
    ],
)
async def test_auto_keeps_answers_and_no_errors_that_may_pass(
    request_: Request, kept: list[int], passed_on: list[int]
) -> None:
    for outcome, statuses in (("recorded", kept), ("live", passed_on)):
        for status in statuses:
            call = Call(FakeAnswer(status=status), request=request_)
            assert (await call.answer()).outcome == outcome, status


AWS_JSON: Headers = ((b"content-type", b"application/x-amz-json-1.0"),)


def aws_type(kind: str) -> FakeAnswer:
    return FakeAnswer(json.dumps({"__type": kind}).encode(), status=400, headers=AWS_JSON)


def aws_code(code: str) -> FakeAnswer:
    body = f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code></Error></ErrorResponse>"
    return FakeAnswer(body.encode(), status=400, headers=((b"content-type", b"text/xml"),))


def aws_header(kind: str) -> FakeAnswer:
    return FakeAnswer(b"{}", status=400, headers=((b"x-amzn-ErrorType", kind.encode()),))


@pytest.mark.parametrize(
    ("reply", "outcome"),
    [
        (aws_type("com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"), "recorded"),
        (aws_type("ResourceNotFoundException"), "recorded"),
        (aws_code("InvalidParameterValue"), "recorded"),
        (aws_header("InvalidNextTokenException"), "recorded"),
        (FakeAnswer(b"SlowDown", status=400), "recorded"),
        (aws_type("com.amazon.coral.service#ThrottlingException"), "live"),
        (
            aws_type("com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"),
            "live",
        ),
        (aws_type("com.amazon.coral.service#UnrecognizedClientException"), "live"),
        (aws_code("ExpiredToken"), "live"),
        (aws_code("IncompleteSignature"), "live"),
        (aws_header("InvalidSignatureException:http://internal.amazon.com/coral/"), "live"),
    ],
)
async def test_auto_keeps_no_error_of_aws_about_credentials_signatures_or_load(
    reply: FakeAnswer, outcome: str
) -> None:
    request = Request("aws", "POST", "/", AWS_JSON, b"{}", "https://up")
    answer = await Call(reply, request=request).answer()

    assert answer.outcome == outcome
    assert (answer.note is None) is (outcome == "recorded")


async def test_the_client_gets_the_real_bytes_and_the_store_the_redacted_ones() -> None:
    key, session, known = canary(), canary(), canary()
    body = json.dumps({"key": key, "session": session, "known": known}).encode()
    headers = (*JSON, (b"set-cookie", f"sid={session}; Path=/".encode()), (b"x-echo", key.encode()))
    request = Request(
        "openai",
        "POST",
        "/v1/x?key=" + key,
        (*JSON, (b"authorization", f"Bearer {key}".encode())),
        body,
        "https://me:pass-word-long@up",
    )
    call = Call(
        FakeAnswer(body, headers=headers), request=request, known=(Secret("env", known.encode()),)
    )
    answer = await call.answer()
    recording = await call.recording()

    assert answer.response.body == body
    assert answer.response.headers == headers
    assert call.responder.asked == [request]
    # The session was issued by the answer: the request that came before it cannot have known it.
    places = {"answer": repr(recording.response).encode(), "rest": repr(recording).encode()}
    assert sightings({"key": key, "known": known, "password": "pass-word-long"}, places) == []
    assert sightings({"session": session}, {"answer": places["answer"]}) == []


async def test_a_provider_call_is_recorded_with_its_usage_and_metadata() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    request = Request("openai", "POST", CHAT, JSON, b'{"model":"gpt-4.1"}', "https://up")
    body = json.dumps({"usage": usage}).encode()
    packed = FakeAnswer(gzip.compress(body), headers=(*JSON, (b"content-encoding", b"gzip")))
    for answer in (FakeAnswer(body, headers=JSON), packed):
        call = Call(answer, request=request)
        await call.answer()
        recording = await call.recording()

        assert recording.usage == usage
        assert recording.metadata == {
            "provider": "openai",
            "endpoint": "chat.completions",
            "model": "gpt-4.1",
        }


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("media", [b"application/json", b"text/event-stream"])
async def test_a_large_text_is_redacted_like_a_small_one(media: bytes, packed: bool) -> None:
    told = {"usage": {"prompt_tokens": 7, "total_tokens": 9}, "access_token": "fresh-4f6b2c9d8e1a"}
    filling = json.dumps({"data": os.urandom(LARGE_BODY).hex()}).encode()
    events = [b"data: " + filling + b"\n\n", b"data: " + json.dumps(told).encode() + b"\n\n"]
    chunks = (
        events
        if media == b"text/event-stream"
        else [filling[:-1] + b", ", json.dumps(told)[1:].encode()]
    )
    headers: Headers = ((b"Content-Type", media),)
    wire = flushed(b"gzip", chunks) if packed else chunks
    coded = (*headers, (b"Content-Encoding", b"gzip")) if packed else headers
    request = Request("openai", "POST", "/v1/embeddings", JSON, b'{"model":"m"}', "https://up")
    call = Call(FakeAnswer(*wire, headers=coded, framing="chunked"), request=request)

    answer = await call.answer()
    recording = await call.recording()
    held = recording.response

    assert answer.response.file is not None
    assert held.file is not None
    assert held.headers == headers
    assert len(held.chunk_times) == 2
    kept = await read_body(held.file)
    assert kept != b"".join(chunks)
    assert b"fresh-4f6b2c9d8e1a" not in kept
    assert len((await with_body_in_memory(held)).pieces()) == 2
    assert recording.usage == {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 9}


async def test_what_is_no_providers_call_has_neither() -> None:
    call = Call(FakeAnswer(b"x"), request=Request("default", "GET", "/x", base="https://up"))
    await call.answer()
    recording = await call.recording()

    assert (recording.usage, recording.metadata) == (None, {})


@pytest.mark.parametrize(
    "pieces",
    [(UpstreamError("it is down"),), (b"half", UpstreamError("it broke off"))],
    ids=["at once", "in the middle"],
)
async def test_a_truncated_answer_is_an_error(pieces: tuple[bytes | Exception, ...]) -> None:
    for mode in ("auto", "record"):
        call = Call(FakeAnswer(*pieces, framing="chunked"), mode=mode)

        assert isinstance(await call.error(), UpstreamError)
        assert not await call.kept()


@pytest.mark.parametrize("mode", ["auto", "record"])
async def test_what_still_shows_a_credential_is_neither_kept_nor_given_out(mode: Mode) -> None:
    key = canary().replace("/", "-").replace("+", "-")
    request = Request("openai", "GET", "/v1/x", ((b"x-api-key", key.encode()),), base="https://up")
    # Redaction does not go to the names of fields.
    call = Call(FakeAnswer(b"x", headers=((key.encode(), b"1"),)), mode=mode, request=request)
    error = await call.error()

    assert (error.status, error.code) == (502, "recording_failed")
    assert "'x-api-key' would still be in response.headers.…" in error.message
    assert sightings({"key": key}, {"error": repr(error).encode()}) == []
    assert not await call.kept()


@pytest.mark.parametrize("size", [10, 2 * LARGE_BODY], ids=["small", "large"])
async def test_no_fault_of_redaction_lets_a_credential_be_stored(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redactor, "response_and_secrets", lambda self, response: (response, []))
    monkeypatch.setattr(
        Redactor,
        "stream",
        lambda self, content_type: StreamRedactor(lambda data, start: [], lambda span: b"", 9),
    )
    key = canary()
    request = Request("openai", "GET", "/v1/x", ((b"x-api-key", key.encode()),), base="https://up")
    answer = FakeAnswer(b"x" * size, key.encode(), b"y" * size, framing="chunked")
    call = Call(answer, request=request)
    error = await call.error()

    assert (error.status, error.code) == (502, "recording_failed")
    assert "the credential 'x-api-key' would still be in " in error.message
    assert sightings({"key": key}, {"error": repr(error).encode()}) == []
    assert not await call.kept()


async def test_an_error_about_what_cannot_be_kept_does_not_repeat_a_credential() -> None:
    key = canary("no/name")
    request = Request("openai", "GET", "/v1/x", ((b"x-api-key", key.encode()),), base="https://up")
    error = await Call(FakeAnswer(b"x", headers=((key.encode(), b"1"),)), request=request).error()

    assert (error.status, error.code) == (502, "recording_failed")
    assert sightings({"key": key}, {"error": repr(error).encode()}) == []


async def test_an_unexpected_error_is_told_and_logged_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    call = Call(FakeAnswer(b"half", RuntimeError("sk-SECRET"), framing="chunked"))
    with caplog.at_level(logging.DEBUG):
        error = await call.error()

    assert (error.status, error.code) == (500, "internal")
    assert "SECRET" not in error.message + caplog.text
    assert "RuntimeError at live_service.py:" in caplog.text
    assert not await call.kept()


@pytest.mark.parametrize(
    ("error", "stored"),
    [(StoreFull, False), (UpstreamError, False), (RuntimeError, False), (StoreFull, True)],
    ids=["full disk", "cut", "unexpected", "not stored"],
)
async def test_the_file_of_a_failed_answer_is_let_go_at_once(
    error: Callable[[str], Exception], stored: bool
) -> None:
    """It takes room on the disk, and a disk that is full has none for the next recording."""
    pieces: list[bytes | Exception] = [b"x" * LARGE_BODY] * 2
    if not stored:
        pieces.append(error("a fault"))
    call = Call(FakeAnswer(*pieces, framing="chunked"))
    del pieces
    if stored:
        call.store.fail("append", StoreFull("a fault"))
    with no_collector():
        before = unnamed_files()
        await call.error()
        # A thread that has written for it refers to it for a moment longer.
        await asyncio.get_running_loop().shutdown_default_executor()
        del call
        left = unnamed_files()

    assert left == before


@pytest.mark.parametrize("stage", ["asking", "recording"])
async def test_a_cancelled_call_ends_with_draining_and_the_log_names_it(
    stage: str, caplog: pytest.LogCaptureFixture
) -> None:
    call = Call(FakeAnswer(b"x"))
    if stage == "asking":
        call.responder.gate.clear()
    else:
        call.store.shut("append")
    task = asyncio.get_running_loop().create_task(call.call.run())
    await call.responder.reached(1)
    if stage == "recording":
        await call.store.reached("append c")
    task.cancel()

    assert isinstance(await task, Draining)
    assert len(call.cassette) == 0
    (record,) = [record for record in caplog.records if "is lost" in record.getMessage()]
    assert "the recording of GET /v1/x is lost" in record.getMessage()
