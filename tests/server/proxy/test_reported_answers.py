"""What the report says of live answers: those not stored, and those that equal calls got too."""

import asyncio

import pytest

from tapeway.core.model.control import Mode
from tapeway.engine.recording.selection import Policy
from tapeway.engine.report.forms import text_report
from tapeway.engine.report.summary import CassetteReport, RecordingSummary
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import RunningProxy, running_proxy
from tests.server.streaming import LAST, PATHS, chunk, closed_head, head, line, routes, streaming
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer, Step
from tests.support.streams import CHAT, SSE

TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nwait"
ERROR = b'data: {"error": {"message": "no"}}\n\n'
STORE_429 = "mode record stores it, and so does --record-statuses 200-399,429"
BUFFER = ProxyOptions(max_body=2**20, body_idle_s=10)


async def report_of(proxy: RunningProxy) -> CassetteReport:
    (found,) = await proxy.broker.reports()
    return found


@pytest.mark.parametrize("options", [BUFFER, streaming()], ids=["buffer", "stream"])
@pytest.mark.parametrize(
    ("steps", "said"),
    [
        pytest.param(
            [TOO_MANY], f"its status is 429: it was passed on, and not stored: {STORE_429}"
        ),
        pytest.param([closed_head(SSE), chunk(CHAT), "close"], "--record-failures stores such"),
        pytest.param([head(SSE), chunk(ERROR), LAST], "mode record stores it", id="error"),
        pytest.param([head(SSE), chunk(CHAT), "close"], "--record-failures stores such", id="cut"),
        pytest.param(["reset"], "--record-failures stores such failures", id="reset"),
    ],
)
async def test_a_live_answer_that_is_not_stored_is_named_with_the_reason(
    steps: list[Step], said: str, options: ProxyOptions
) -> None:
    async with (
        Peer(*steps) as peer,
        running_proxy(mode="auto", rules=REUSED, routes=routes(peer.url), options=options) as proxy,
    ):
        for _ in range(2):
            await proxy.ask(line("chat.completions"), body=b'{"model":"m","stream":true}')
        found = await report_of(proxy)

    (named,) = found.unrecorded
    assert (named.method, named.path, named.times) == ("POST", "/v1/chat/completions", 2)
    assert said in named.reason
    assert f"not stored: POST /v1/chat/completions: {named.reason} (2 times)" in text_report(
        [found]
    )


@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        ("record", Policy()),
        ("passthrough", Policy()),
        ("auto", Policy(record_statuses=frozenset(range(200, 500)))),
    ],
)
async def test_what_is_stored_or_passed_on_as_wanted_is_not_named(
    mode: Mode, policy: Policy
) -> None:
    async with (
        Peer(TOO_MANY) as peer,
        running_proxy(peer.url, mode=mode, policy=policy) as proxy,
    ):
        assert (await proxy.ask(b"GET /")).status == 429
        for found in await proxy.broker.reports():
            assert found.unrecorded == ()


async def test_a_stream_that_require_marks_keeps_out_is_named() -> None:
    policy = Policy(require_marks=True)
    async with (
        Peer(head(SSE), chunk(CHAT), LAST) as peer,
        running_proxy(mode="auto", rules=REUSED, routes=routes(peer.url), policy=policy) as proxy,
    ):
        await proxy.ask(line("chat.completions"), body=b'{"stream":true}')
        (named,) = (await report_of(proxy)).unrecorded

    assert "as --require-marks says" in named.reason


SAMPLED = [
    ("chat.completions", b'{"model":"m"}'),
    ("chat.completions", b'{"model":"m","temperature":1}'),
    ("responses", b'{"model":"m"}'),
    ("messages", b'{"model":"m"}'),
    ("api.chat", b'{"model":"m","stream":false}'),
    ("streamGenerateContent", b'{"contents":[]}'),
]
FIXED = [
    ("chat.completions", b'{"model":"m","temperature":0}'),
    ("messages", b'{"model":"m","temperature":0.0}'),
    ("streamGenerateContent", b'{"contents":[],"generationConfig":{"temperature":0}}'),
    ("api.chat", b'{"model":"m","options":{"temperature":0}}'),
]


@pytest.mark.parametrize(
    ("endpoint", "body", "sampled"),
    [(*sample, True) for sample in SAMPLED] + [(*sample, False) for sample in FIXED],
)
async def test_an_answer_of_a_model_that_equal_calls_got_too_is_named_once(
    endpoint: str, body: bytes, sampled: bool
) -> None:
    async with (
        Peer() as peer,
        running_proxy(mode="auto", rules=REUSED, routes=routes(peer.url)) as proxy,
        proxy.connect() as app,
    ):
        for _ in range(4):
            asked = proxy.request(line(endpoint), b"Content-Type: application/json", body=body)
            assert (await app.ask(asked)).status == 200
        found = await report_of(proxy)

    path = "/" + PATHS[endpoint].split("/", 2)[2]
    assert found.replayed == 3
    assert found.repeated == ((RecordingSummary(0, "POST", path),) if sampled else ())
    once = "1 recorded answer of a model was given to equal calls of the same take too"
    assert (f"  {once}: --repeats miss" in text_report([found])) is sampled


async def test_calls_that_share_one_answer_at_the_same_time_are_named() -> None:
    gate = asyncio.Event()
    async with (
        Peer(gate, head(b"application/json"), chunk(b"{}"), LAST) as peer,
        running_proxy(mode="auto", rules=REUSED, routes=routes(peer.url)) as proxy,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(2):
            group.create_task(proxy.ask(line("responses"), body=b'{"model":"m"}'))
        await peer.asked.wait()
        gate.set()
        await proxy.proxy.wait_until_idle()
        found = await report_of(proxy)

    assert [recording.index for recording in found.repeated] == [0]


async def test_what_is_replayed_in_another_take_is_not_named() -> None:
    async with (
        Peer() as peer,
        running_proxy(mode="auto", rules=REUSED, routes=routes(peer.url)) as proxy,
    ):
        for _ in range(2):
            await proxy.ask(line("responses"), body=b'{"model":"m"}')
            await proxy.broker.rewind()
        await proxy.ask(b"GET /openai/v1/models")
        await proxy.ask(b"GET /openai/v1/models")
        found = await report_of(proxy)

    assert (found.replayed, found.repeated) == (2, ())


@pytest.mark.parametrize("options", [BUFFER, streaming()], ids=["buffer", "stream"])
@pytest.mark.parametrize(
    ("kind", "outcome"), [(b"ThrottlingException", b"live"), (b"ValidationException", b"recorded")]
)
async def test_what_becomes_of_an_error_of_aws_is_said_by_its_head_in_either_delivery(
    kind: bytes, outcome: bytes, options: ProxyOptions
) -> None:
    body = b'{"__type":"com.amazonaws#%b"}' % kind
    fields = b"Content-Type: application/x-amz-json-1.0\r\nContent-Length: %d" % len(body)
    async with (
        Peer(b"HTTP/1.1 400 Bad Request\r\n%b\r\n\r\n%b" % (fields, body)) as peer,
        running_proxy(peer.url, mode="auto", options=options) as proxy,
    ):
        answer = await proxy.ask(b"POST /", body=b"{}")
        (report,) = await proxy.broker.reports()

    assert (answer.status, answer.body) == (400, body)
    assert answer.values(b"tapeway-outcome") == [outcome]
    assert [kind.decode() in named.reason for named in report.unrecorded] == (
        [True] if outcome == b"live" else []
    )
