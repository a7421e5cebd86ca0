"""What clients are told does not depend on the store, nor on how many processes share it.

Scripts of requests and of steering are run against a store in memory, which is the measure, against
one SQLite file, and against two brokers that take turns over one.
"""

import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.control import Mode, Repeats
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.errors import UpstreamError
from tapeway.ports import CassetteStore
from tapeway.stores.memory import MemoryStore
from tapeway.stores.sqlite.store import SqliteStore
from tests.stores.model_store import ModelPlace, ModelStore
from tests.support.fakes.broker_setups import BrokersOnOneStore, Observed, Sent, brokers_on
from tests.support.fakes.live_service import FakeAnswer
from tests.support.thoroughness import examples

JSON_TYPE = (b"Content-Type", b"application/json")
NAMES = ("default", "other/one")
MODES: tuple[Mode, ...] = ("replay", "record", "auto", "passthrough")
REPEATS: tuple[Repeats | None, ...] = (None, "last", "miss", "cycle", "first")

Action = Callable[[BrokersOnOneStore, int], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Step:
    """Something done to the brokers, under a name that a failure shows."""

    what: str
    action: Action

    def __repr__(self) -> str:
        return self.what


def answer(number: int) -> FakeAnswer:
    """Each its own, which issues an identifier; some fail, and some are not final."""
    headers: Headers = (JSON_TYPE,)
    body = answer_body("live", number)
    if number % 7 == 5:
        return FakeAnswer(b'{"error":"%d"}' % number, status=500, headers=headers)
    if number % 11 == 8:
        cut = UpstreamError("cut", code="upstream_cut")
        return FakeAnswer(body[:9], cut, headers=headers, framing="chunked")
    status = {3: 202, 9: 303}.get(number % 13, 200)
    return FakeAnswer(body[:7], body[7:], status=status, headers=headers, framing="chunked")


def answer_body(whose: str, number: int) -> bytes:
    """An answer as a model gives it: it calls a tool, under an identifier of its own."""
    calls: Json = [{"id": f"call_{number:03}h5Xw0Vb1jZ", "type": "function"}]
    message: Json = {"role": "assistant", "content": f"{whose} {number}", "tool_calls": calls}
    usage: Json = {"prompt_tokens": 3, "completion_tokens": number, "total_tokens": number + 3}
    status = "in_progress" if number % 3 == 1 else "completed"
    return dump({"choices": [{"message": message}], "usage": usage, "status": status})


def chat(prompt: str, *results: str, stamp: int = 0) -> bytes:
    """A turn of a loop with tools, with something that no rule needs."""
    messages: list[Json] = [{"role": "user", "content": prompt}]
    for result in results:
        calls: Json = [{"id": result, "type": "function"}]
        messages.append({"role": "assistant", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": result, "content": "sun"})
    return dump({"model": "m", "stamp": stamp, "messages": messages})


BASES = {"openai": "https://up", "azure": "https://blue/api", "default": "https://any"}
HEADERS: tuple[Headers, ...] = (
    (),
    ((b"Accept", b"text/plain"),),
    ((b"Authorization", b"Bearer sk-canary-0123456789abcdef"),),
    ((b"Authorization", b"Bearer sk-canary-fedcba9876543210"),),
    ((b"Cookie", b"session=0123456789abcdef0123"),),
)
TOOLS = ("call_001h5Xw0Vb1jZ", "call_002h5Xw0Vb1jZ", "call_900h5Xw0Vb1jZ", "call_Qp7Lm2Kd9R77")
POSTS = (
    *(chat("weather?"), chat("weather?", stamp=1), chat("news?", stamp=2)),
    *(chat("weather?", tool) for tool in TOOLS),
)
GETS = (
    *("/v1/x", "/v1/x?b=2&a=1", "/v1/jobs/7"),
    *("/v1/x?key=t0ken-0123456789abcdef", "/v1/x?key=t0ken-fedcba9876543210"),
)

WRITES = (
    *(("DELETE", "/v1/x"), ("PUT", "/v1/x/1"), ("POST", "/v1/jobs"), ("PATCH", "/v1/jobs/8")),
    ("POST", "/v1"),
)

headers = st.sampled_from(HEADERS)
requests = (
    st.builds(
        lambda route, target, some: Request(route, "GET", target, some, base=BASES[route]),
        *(
            st.sampled_from(["openai", "openai", "azure", "default"]),
            st.sampled_from(GETS),
            headers,
        ),
    )
    | st.builds(
        lambda route, write, some: Request(route, write[0], write[1], some, base=BASES[route]),
        *(st.sampled_from(["openai", "openai", "azure"]), st.sampled_from(WRITES), headers),
    )
    | st.builds(
        lambda route, body, some: Request(
            *(route, "POST", "/v1/chat/completions", (*some, JSON_TYPE), body, BASES[route])
        ),
        *(st.sampled_from(["openai", "openai", "default"]), st.sampled_from(POSTS), headers),
    )
)
some_name = st.sampled_from([None, None, None, *NAMES])
name = st.sampled_from(NAMES)
sents = st.builds(
    lambda request, cassette, guessed: Sent(
        request, cassette, guessed and request.route != "azure"
    ),
    *(requests, some_name, st.booleans()),
)
RULES = (
    Rules(ignore=("body.stamp",)),
    Rules(ignore=("query.a",)),
    Rules(match=("accept",)),
    Rules(normalise=("uuid",)),
    Rules(reuse=("GET /**",)),
)


@st.composite
def recordings(draw: st.DrawFn, first: int = 900) -> tuple[Interaction, ...]:
    """Recordings made elsewhere, some of them by a tool that knows no routes."""
    made = []
    for number, request in enumerate(draw(st.lists(requests, max_size=4)), first):
        kept = tuple(
            [header for header in request.headers if header[0] in (b"Accept", b"Content-Type")]
        )
        base = draw(st.sampled_from([request.base, request.base, "https://elsewhere"]))
        route = draw(st.sampled_from([request.route, "default" if base != request.base else ""]))
        target = request.target.partition("?key")[0]
        if not route and base == BASES["azure"]:
            # A tool that knows no routes knows the whole path.
            base, target = "https://blue", f"/api{target}"
        request = Request(route, request.method, target, kept, request.body, base)
        head = ResponseHead(200, "OK", (JSON_TYPE,))
        response = Response(head, answer_body("stored", number))
        made.append(Interaction(number - first, request, response))
    return tuple(made)


def asks(sent: Sent) -> Step:
    shown = f"{sent.request.method} {sent.request.target} {sent.request.body[:160]!r}"
    more = f"{sent.request.route} {sent.request.headers} {sent.cassette} guessed={sent.guessed}"
    return Step(f"ask {shown} {more}", lambda brokers, turn: brokers.ask(turn, sent))


def asks_at_once(sent: Sequence[Sent]) -> Step:
    return Step(f"at once {sent}", lambda brokers, turn: brokers.ask_at_once(turn, sent))


def does(what: str, *args: object, **more: object) -> Step:
    return Step(
        f"{what} {args} {more}", lambda brokers, turn: getattr(brokers, what)(turn, *args, **more)
    )


steering = (
    st.builds(partial(does, "set_mode"), st.sampled_from(MODES), some_name)
    | st.builds(partial(does, "insert"), name, st.sampled_from([None, *MODES]))
    | st.builds(partial(does, "rewind"), some_name)
    | st.builds(lambda name, prune: does("eject", name, prune=prune), name, st.booleans())
    | st.builds(partial(does, "add_rules"), name, st.sampled_from(RULES))
    | st.builds(lambda name, place: does("edit", name, place, None), name, st.integers(0, 3))
    | st.builds(partial(does, "remove"), name)
)


def with_headers(sent: Sent, some: Headers) -> Sent:
    """The same as another client sends it."""
    kept = tuple([header for header in sent.request.headers if header == JSON_TYPE])
    return sent._replace(request=replace(sent.request, headers=(*some, *kept)))


@st.composite
def scripts(draw: st.DrawFn) -> list[Step]:
    """Few requests again and again, with something else now and then."""
    few = draw(st.lists(sents, min_size=1, max_size=4))
    ask = st.sampled_from(few)
    ask |= st.builds(with_headers, ask, headers)
    several = st.builds(lambda sent, count: asks_at_once([sent] * count), ask, st.integers(2, 4))
    kinds = st.one_of(*[ask.map(asks)] * 5, several, steering)
    return draw(st.lists(kinds, min_size=4, max_size=24))


def stores(kind: str, folder: str) -> list[CassetteStore]:
    if kind == "memory":
        return [MemoryStore()]
    if kind == "sqlite":
        return [SqliteStore(Path(folder) / "x.db")]
    place = ModelPlace()
    return [ModelStore(place) for _ in range(2 if kind == "two that share" else 1)]


async def play(
    kind: str,
    script: Sequence[Step],
    *,
    held: Sequence[Interaction] = (),
    mode: Mode = "auto",
    repeats: Repeats | None = None,
    record_failures: bool = False,
    alone: bool = True,
) -> list[Observed]:
    """All that was observed while a script was run."""
    observed: list[Observed] = []
    with tempfile.TemporaryDirectory() as folder:
        found = stores(kind, folder)
        routed = all(exchange.request.route for exchange in held)
        context = brokers_on(
            *(found, answer),
            mode=mode,
            repeats=repeats,
            record_failures=record_failures,
            routed=routed,
            alone=alone,
        )
        async with context as brokers:
            if held:
                head = CassetteHead("2026-01-01T00:00:00+00:00", "seed")
                await brokers.put(0, "default", StoredCassette(head, tuple(held)))
            for turn, step in enumerate(script):
                observed.append((step.what, await step.action(brokers, turn)))
                observed.append(("listed", await brokers.listed()))
                observed.append(("asked", len(brokers.responder.asked)))
            if alone:
                observed.append(("reports", await brokers.reports()))
            observed.append(("held", [await brokers.state(other_name) for other_name in NAMES]))
            if not any(step.what.startswith("add_rules") for step in script):
                # A folder sorts what it holds when rules are put in force.
                observed.append(
                    ("order", [await brokers.order(other_name) for other_name in NAMES])
                )
    return observed


def recorded_elsewhere(base: str, target: str) -> Interaction:
    head = ResponseHead(200, "OK", (JSON_TYPE,))
    return Interaction(0, Request("", "GET", target, base=base), Response(head))


@pytest.mark.parametrize(
    ("base", "target", "told"),
    [
        ("https://blue", "/api/v1/x", "error"),  # on the route azure
        ("https://blue", "/v1/x", "miss"),  # beside its path
        ("https://up", "/v1/x", "error"),  # on the route openai
        ("https://elsewhere", "/v1/x", "miss"),
        ("", "/v1/x", "miss"),
    ],
)
@pytest.mark.parametrize("kind", ["memory", "sqlite", "one that shares"])
async def test_whether_a_path_belongs_to_no_route_depends_on_the_recordings_without_one(
    kind: str, base: str, target: str, told: str
) -> None:
    asked = Sent(Request("default", "GET", "/other", base="https://any"), guessed=True)
    held = [recorded_elsewhere(base, target)]

    _, observed = (await play(kind, [asks(asked)], held=held, mode="replay"))[0]

    assert observed[0] == told  # type: ignore[index]  # a tuple that begins with the outcome


async def test_a_miss_is_beside_a_recording_that_names_no_route_on_every_store() -> None:
    asked = Sent(Request("openai", "GET", "/v1/x", base="https://up"))
    held = [recorded_elsewhere("https://blue", "/api/v1/x")]

    in_memory, *others = [
        await play(kind, [asks(asked)], held=held, mode="replay")
        for kind in ("memory", "sqlite", "one that shares")
    ]

    assert others == [in_memory] * 2
    assert "azure" in str(in_memory[0])


@pytest.mark.parametrize("reissued", [True, False])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "one that shares", "two that share"])
async def test_a_call_under_another_name_is_a_new_one_if_its_identifier_was_issued_anew(
    kind: str, reissued: bool
) -> None:
    issuing = Request("openai", "GET", "/v1/x", base="https://up")
    calling = Request(
        "openai", "POST", "/v1/chat/completions", (JSON_TYPE,), chat("?", TOOLS[2]), "https://up"
    )
    head = ResponseHead(200, "OK", (JSON_TYPE,))
    held = [
        Interaction(at, request, Response(head, answer_body("stored", 900 + at)))
        for at, request in enumerate((issuing, calling))
    ]
    # The fifth answer fails, and issues nothing.
    targets = [] if reissued else [f"/v1/{number}" for number in range(3)]
    # After this the identifiers of the cassette are known.
    other = replace(calling, body=chat("another", TOOLS[3]))
    before = [other, *[replace(issuing, target=target) for target in targets]]
    renamed = replace(calling, body=chat("?", "call_own7Lm2Kd9R77"))
    script = [asks(Sent(request)) for request in (*before, issuing, renamed)]

    alone = kind != "two that share"
    observed = await play(kind, script, held=held, mode="record", record_failures=True, alone=alone)

    held_now = next(value for what, value in observed if what == "held")
    assert ("stored 901" in str(held_now)) is reissued


@pytest.mark.parametrize("kind", ["sqlite", "one that shares", "two that share"])
@settings(
    max_examples=examples(15),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    script=scripts(),
    held=recordings(),
    mode=st.sampled_from(MODES[:3]),
    repeats=st.sampled_from(REPEATS),
    record_failures=st.booleans(),
)
async def test_a_script_gives_the_same_results_on_every_store(
    kind: str,
    script: list[Step],
    held: tuple[Interaction, ...],
    mode: Mode,
    repeats: Repeats | None,
    record_failures: bool,
) -> None:
    run = partial(
        play,
        script=script,
        held=held,
        mode=mode,
        repeats=repeats,
        record_failures=record_failures,
        alone=kind != "two that share",
    )

    assert await run(kind) == await run("memory")
