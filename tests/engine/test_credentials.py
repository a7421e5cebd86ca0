"""Credentials in requests: who gets which answer while recording and afterwards, in every store."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.body_files import Spool
from tapeway.core.cassette.plan import Incoming, LiveCall, Replay
from tapeway.core.model.control import Mode
from tapeway.core.model.messages import LARGE_BODY, Headers, Request, Response
from tapeway.core.redaction.credentials import Secret
from tapeway.engine.broker import Broker
from tests.engine.processes import Run, Served, outcomes, process_over
from tests.stores.contract.kinds import Place
from tests.support.fakes.live_service import FakeAnswer
from tests.support.reuse import REUSED

JSON: Headers = ((b"content-type", b"application/json"),)
OPAQUE = b"q7Zr2Lw9Xk4Tn8Vb"
KEY, OTHER = "sk-live-0123456789abcdef", "sk-live-fedcba9876543210"


def bearer(key: str) -> Headers:
    return ((b"authorization", f"Bearer {key}".encode()),)


def get(target: str, headers: Headers = ()) -> Request:
    return Request("openai", "GET", target, headers, base="https://up")


def post(target: str, body: object, headers: Headers = JSON) -> Request:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Request("openai", "POST", target, headers, data, "https://up")


@asynccontextmanager
async def run(
    place: Place,
    mode: Mode,
    issued: Mapping[str, Any] | None = None,
    known: Sequence[Secret] = (),
) -> AsyncIterator[Run]:
    """A new process over the store; to a login the upstream answers with what is `issued`.

    `known` are the secrets of its environment.
    """

    def answering(request: Request, number: int) -> FakeAnswer:
        given = (issued or {}) if request.target == "/login" else {}
        fields = tuple(
            [(name.encode(), value.encode()) for name, value in given.items() if name[:2] == "x-"]
        )
        body = {name: value for name, value in given.items() if name[:2] != "x-"}
        return FakeAnswer(json.dumps({"n": number, **body}).encode(), headers=(*JSON, *fields))

    async with process_over(place, mode, answering, rules=REUSED, known=known) as process:
        yield process


async def test_each_caller_has_a_recording_and_a_later_run_any(place: Place) -> None:
    callers = [get("/me", headers) for headers in (bearer(KEY), bearer(OTHER), ())]
    async with run(place, "auto") as first:
        live = await first.ask(*callers)
        again = await first.ask(*callers)
    async with run(place, "replay") as second:
        replayed = await second.ask(*reversed(callers))
        stranger = await second.ask(get("/me", bearer("sk-test")))

    assert outcomes(live) == ["recorded"] * 3
    assert outcomes(again) == ["replayed"] * 3
    assert [body for _, body in replayed[::-1]] == [body for _, body in live]
    assert outcomes(stranger) == ["replayed"]


async def test_one_recording_answers_a_later_run_with_any_key(place: Place) -> None:
    async with run(place, "auto") as first:
        await first.ask(get("/me", bearer(KEY)))
    async with run(place, "auto") as second:
        later = await second.ask(get("/me", bearer("test")), get("/me"), get("/me", bearer(OTHER)))

    assert outcomes(later) == ["replayed"] * 3


async def test_pages_are_told_apart_and_replay_in_any_order(place: Place) -> None:
    pages = [get("/list"), get("/list?token=b"), get("/list?token=c")]
    async with run(place, "auto") as first:
        live = await first.ask(*pages)
    async with run(place, "replay") as second:
        replayed = await second.ask(pages[2], pages[0], pages[1])
        unknown = await second.ask(get("/list?token=d"))

    assert outcomes(live) == ["recorded"] * 3
    assert [body for _, body in replayed] == [live[2][1], live[0][1], live[1][1]]
    assert outcomes(unknown) == ["miss"]


CHANGED = [
    (
        f'Translate values to German: {{"{name}": "Please enter your password now"}}',
        f'Translate values to German: {{"{name}": "Your password has expired today"}}',
    )
    for name in ("password", "api_key", "client_secret")
]


@pytest.mark.parametrize("mode", ["auto", "replay"])
@pytest.mark.parametrize(("one", "other"), CHANGED)
async def test_a_changed_prompt_never_gets_the_old_prompts_answer(
    place: Place, one: str, other: str, mode: Mode
) -> None:
    recorded, changed = [
        post("/v1/chat/completions", {"messages": [{"role": "user", "content": prompt}]})
        for prompt in (one, other)
    ]
    async with run(place, "auto") as first:
        await first.ask(recorded)
    async with run(place, mode) as second:
        found = await second.ask(recorded, changed)

    assert outcomes(found) == ["replayed", "recorded" if mode == "auto" else "miss"]


async def test_another_password_is_another_login(place: Place) -> None:
    logins = [
        post("/login", {"user": "a", "password": password}) for password in ("hunter22hunter", KEY)
    ]
    async with run(place, "auto") as first:
        await first.ask(logins[0])
    async with run(place, "replay") as second:
        assert outcomes(await second.ask(*logins)) == ["replayed", "miss"]


async def test_a_dummy_key_finds_what_was_recorded_with_a_real_one(place: Place) -> None:
    def asked(key: str) -> list[Request]:
        return [
            get(f"/a?api_key={key}"),
            post("/b", {"q": 1, "api_key": key}),
            post(
                "/c",
                f"client_secret={key}",
                ((b"content-type", b"application/x-www-form-urlencoded"),),
            ),
            post("/d", {"note": f"my key is {key}"}, (*JSON, *bearer(key))),
        ]

    async with run(place, "auto") as first:
        live = await first.ask(*asked(KEY))
    async with run(place, "replay") as second:
        for key in ("dummy", OTHER, KEY):
            assert await second.ask(*asked(key)) == [("replayed", body) for _, body in live]


async def test_recording_anew_with_another_key_replaces(place: Place) -> None:
    async with run(place, "record") as first:
        await first.ask(get(f"/a?api_key={KEY}"))
    async with run(place, "record") as second:
        await second.ask(get(f"/a?api_key={OTHER}"))
    async with run(place, "replay") as third:
        found = await third.ask(get("/a?api_key=dummy"), get("/a"))
        stored = await third.broker.source.read("default")

    assert outcomes(found) == ["replayed"] * 2
    assert stored is not None
    assert len(stored.interactions) == 1


TOKEN = "st-0123456789abcdef0123"
CALL = {"id": "call_1", "function": {"name": "login", "arguments": f'{{"password": "{TOKEN}"}}'}}
Issued = Mapping[str, Any]
FORM: Headers = ((b"content-type", b"application/x-www-form-urlencoded"),)
FLOWS: dict[str, tuple[Issued, Callable[[Issued], list[Request]]]] = {
    "a session token in body, path and prompt": (
        {"session_token": TOKEN},
        lambda issued: [
            post("/next", {"session": issued["session_token"]}),
            get(f"/sessions/{issued['session_token']}/me"),
            post("/chat", {"messages": [{"content": f"in session {issued['session_token']} now"}]}),
        ],
    ),
    "an access token in a query and a header": (
        {"access_token": TOKEN},
        lambda issued: [
            get(f"/list?cursor={issued['access_token']}"),
            get("/me", ((b"x-session", issued["access_token"].encode()),)),
        ],
    ),
    "the token of a next page in a header": (
        {"x-next-page-token": TOKEN},
        lambda issued: [get(f"/list?cursor={issued['x-next-page-token']}")],
    ),
    "a token against forged requests": (
        {"x-csrf-token": TOKEN},
        lambda issued: [
            Request(
                *("openai", "POST", "/form", FORM),
                f"a=1&csrf={issued['x-csrf-token']}".encode(),
                "https://up",
            )
        ],
    ),
    "a client secret whose beginning is an id": (
        {"client_secret": f"pi_3Qx9Ab12Cd34_secret_{TOKEN.replace('-', '')}"},
        lambda issued: [
            get(f"/v1/payment_intents/{issued['client_secret'].partition('_secret_')[0]}"),
            get(f"/v1/confirm?client_secret={issued['client_secret']}"),
        ],
    ),
    "a password in the arguments of a tool, quoted by its result": (
        {"tool_calls": [CALL]},
        lambda issued: [
            post(
                "/chat",
                {
                    "messages": [
                        {"role": "assistant", "tool_calls": issued["tool_calls"]},
                        {
                            "role": "tool",
                            "content": "logged in as "
                            + json.loads(issued["tool_calls"][0]["function"]["arguments"])[
                                "password"
                            ],
                        },
                    ]
                },
            )
        ],
    ),
}


@pytest.mark.parametrize("flow", FLOWS)
async def test_a_flow_that_hands_on_a_secret_replays_from_its_own_recording(
    place: Place, flow: str
) -> None:
    issued, steps = FLOWS[flow]

    async def take(each: Run) -> tuple[list[Served], Issued]:
        """The steps of the flow with what the first answer issued to this client."""
        plan = await serve_whole(each.broker, post("/login", {"user": "a"}))
        given = json.loads(plan.body) | {
            name.decode(): value.decode() for name, value in plan.headers
        }
        return await each.ask(*steps(given)), given

    async with run(place, "auto", issued) as first:
        live, given = await take(first)
    async with run(place, "replay") as second:
        again, _ = await take(second)
        stored = repr(await second.broker.source.read("default"))

    assert TOKEN.replace("-", "") in repr(given).replace("-", "")
    assert outcomes(live) == ["recorded"] * len(live)
    assert again == [("replayed", body) for _, body in live]
    assert TOKEN.replace("-", "") not in stored.replace("-", "")


async def serve_whole(broker: Broker, request: Request) -> Response:
    """The whole response to a request."""
    plan = await broker.decide("default", Incoming(request))
    if isinstance(plan, LiveCall):
        return (await broker.recorder.perform(plan)).response
    assert isinstance(plan, Replay)
    return plan.interaction.response


async def test_a_secret_that_a_request_named_is_known_where_a_later_one_quotes_it(
    place: Place,
) -> None:
    opaque = OPAQUE.decode()
    asked = [
        post("/login", {"client_secret": opaque}),
        post("/chat", {"messages": [{"content": f"I was given {opaque} today"}]}),
    ]
    async with run(place, "auto") as first:
        live = await first.ask(*asked)
    async with run(place, "replay") as second:
        replayed = await second.ask(*asked)
        stored = repr(await second.broker.source.read("default"))

    assert replayed == [("replayed", body) for _, body in live]
    assert opaque not in stored


async def test_an_opaque_body_hits_whatever_the_environment_called_its_secret(
    place: Place, tmp_path: Path
) -> None:
    sent, other = [
        await upload(b"\xff\x00 %b \xfe" % key.encode(), tmp_path) for key in (KEY, OTHER)
    ]
    async with run(
        place, "auto", known=[Secret("one", OPAQUE), Secret("two", KEY.encode())]
    ) as first:
        live = await first.ask(sent)
    async with run(place, "replay") as second:
        replayed = await second.ask(sent, other)

    assert replayed[0] == ("replayed", live[0][1])
    assert replayed[1][0] == "miss"


@pytest.mark.parametrize("size", [100, LARGE_BODY + 1])
async def test_what_the_environment_holds_while_replaying_does_not_matter(
    place: Place, tmp_path: Path, size: int
) -> None:
    body = OPAQUE.ljust(size, b"\xff")
    async with run(place, "auto") as first:
        live = await first.ask(await upload(body, tmp_path))
    async with run(place, "replay", known=[Secret("env", OPAQUE)]) as second:
        replayed = await second.ask(await upload(body, tmp_path))
        other = await second.ask(await upload(body[::-1], tmp_path))

    assert replayed == [("replayed", live[0][1])]
    assert outcomes(other) == ["miss"]


async def upload(body: bytes, folder: Path) -> Request:
    """An upload, its body in a file where it is large, as the server gives it to the broker."""
    octets: Headers = ((b"content-type", b"application/octet-stream"),)
    sent = Request("openai", "POST", "/upload", octets, b"", "https://up")
    if len(body) <= LARGE_BODY:
        return replace(sent, body=body)
    spool = Spool(str(folder))
    await spool.add(body)
    return replace(sent, file=await spool.finish())


def presigned(day: int, path: str = "/bucket/a.txt") -> Request:
    """A request as a client of S3 signs it on a day of November."""
    scope = f"AKIAIOSFODNN7EXAMPLE%2F202611{day}%2Fus-east-1%2Fs3%2Faws4_request"
    query = (
        f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope}&X-Amz-Date=202611{day}T224500Z"
        f"&X-Amz-Expires=3600&X-Amz-SignedHeaders=host&X-Amz-Signature={str(day) * 32}"
    )
    return get(f"{path}?{query}")


async def test_a_presigned_request_replays_on_another_day(place: Place) -> None:
    days = [presigned(26), presigned(27), presigned(26, "/bucket/b.txt")]
    async with run(place, "record") as first:
        live = await first.ask(*days)
    async with run(place, "replay") as second:
        later = await second.ask(presigned(29), presigned(28, "/bucket/b.txt"), presigned(30))
        without = await second.ask(get("/bucket/a.txt"))
        other = await second.ask(presigned(26, "/bucket/c.txt"))

    assert [body for _, body in later] == [live[0][1], live[2][1], live[1][1]]
    assert outcomes(without) == ["replayed"]
    assert outcomes(other) == ["miss"]


async def test_while_recording_a_signature_answers_no_request_without_one(place: Place) -> None:
    unsigned = get("/bucket/a.txt")
    async with run(place, "auto") as first:
        live = await first.ask(presigned(26), presigned(27), unsigned, unsigned)
    async with run(place, "replay") as second:
        later = await second.ask(unsigned, presigned(28))

    assert outcomes(live) == ["recorded", "replayed", "recorded", "replayed"]
    assert [body for _, body in later] == [live[2][1], live[0][1]]
