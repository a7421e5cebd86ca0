"""Headers that decide which recording answers: in every store, while recording and afterwards."""

import asyncio
import gzip
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.body_files import Spool
from tapeway.core.json_text import dump
from tapeway.core.matching import request_redaction
from tapeway.core.matching.rules import Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tapeway.core.model.request_fields import MATCH_KEY_HEADERS, PREFLIGHT_HEADERS
from tapeway.engine.recording.selection import Policy
from tests.engine.processes import Answering, bodies, outcomes, process_over
from tests.stores.contract.kinds import Place
from tests.support.fakes.live_service import FakeAnswer

JSON: Headers = ((b"content-type", b"application/json"),)
FORM: Headers = ((b"content-type", b"application/x-www-form-urlencoded"),)


CALL = "/v1/chat/completions"
"""A call to a model: only such a request is answered again in the take that recorded it."""


def asked(
    headers: Headers = (), *, method: str = "POST", body: bytes = b"", target: str = CALL
) -> Request:
    return Request("openai", method, target, headers, body, "https://up")


def echoing(name: str, *vary: str, of: str = "") -> Answering:
    """Answers with the value of a header, and `of` what; `vary` is what the answer depends on."""

    def answer(request: Request, number: int) -> FakeAnswer:
        value = {key.lower(): octets for key, octets in request.headers}.get(name.encode(), b"-")
        fields = tuple([(b"Vary", text.encode()) for text in vary])
        return FakeAnswer(of.encode() + value, headers=fields)

    return answer


def numbered(request: Request, number: int) -> FakeAnswer:
    return FakeAnswer(b"%d" % number)


FIXED = sorted([name.decode() for name in MATCH_KEY_HEADERS - {b"content-encoding"}])


async def test_headers_that_say_what_is_asked_for_tell_requests_apart(place: Place) -> None:
    def answering(request: Request, number: int) -> FakeAnswer:
        return echoing(request.target[1:].partition("/")[0])(request, number)

    def of(name: str, *values: bytes) -> list[Request]:
        return [
            asked(((name.title().encode(), value),), target=f"/{name}{CALL}") for value in values
        ]

    rows = {name: [asked(target=f"/{name}{CALL}"), *of(name, b"a1", b"b2")] for name in FIXED}
    want = [b"-", b"a1", b"b2"]
    async with process_over(place, "auto", answering) as first:
        for name, requests in rows.items():
            assert bodies(await first.ask(*requests)) == want, name
            assert bodies(await first.ask(*requests[::-1])) == want[::-1], name
        assert await first.count() == 3 * len(rows)
    async with process_over(place, "replay", numbered) as second:
        for name, requests in rows.items():
            replayed = await second.ask(*requests[::-1], *of(name, b"c3"))
            assert bodies(replayed[:3]) == want[::-1], name
            assert replayed[3].outcome == "miss", name


OF_MICROSOFT = [
    *("x-ms-range", "x-ms-lease-action", "x-ms-page-write", "x-ms-blob-type", "x-ms-copy-source"),
    *("x-ms-documentdb-partitionkey", "x-ms-documentdb-isquery", "x-ms-meta-colour"),
]
NOT_ASKED_OF_MICROSOFT = [
    *("x-ms-date", "x-ms-version", "x-ms-client-request-id", "x-ms-return-client-request-id"),
    *("x-ms-useragent", "x-ms-correlation-request-id", "x-ms-proposed-lease-id"),
    *("x-ms-cosmos-correlated-activityid", "x-ms-content-sha256", "x-ms-encryption-key"),
    *("x-ms-copy-source-authorization", "x-ms-session-token", "x-ms-file-last-write-time"),
]


async def test_fields_of_microsoft_decide_but_for_dates_versions_ids_and_signatures(
    place: Place,
) -> None:
    def of(name: str, value: bytes) -> Request:
        return asked(((name.encode(), value),), target=f"/{name}")

    names = [*OF_MICROSOFT, *NOT_ASKED_OF_MICROSOFT]
    async with process_over(place, "record", numbered) as first:
        await first.ask(*[of(name, b"one") for name in names])
    async with process_over(place, "replay", numbered) as second:
        for name in names:
            found = await second.ask(of(name, b"one"), of(name, b"two"), asked(target=f"/{name}"))
            decided = ["miss"] * 2 if name in OF_MICROSOFT else ["replayed"] * 2
            assert outcomes(found) == ["replayed", *decided], name
        stored = await second.broker.source.read("default")

    assert stored is not None
    held = {
        name.decode()
        for interaction in stored.interactions
        if isinstance(interaction, Interaction)
        for name, _ in interaction.request.headers
    }
    assert held == {*OF_MICROSOFT}


async def test_to_create_what_is_not_there_is_another_request(place: Place) -> None:
    def put(*tags: bytes) -> Request:
        return asked(tuple([(b"If-None-Match", tag) for tag in tags]), method="PUT", body=b"x")

    async with process_over(place, "record", numbered) as first:
        live = bodies(await first.ask(put(), put(b"*")))
    async with process_over(place, "replay", numbered) as second:
        replayed = bodies(await second.ask(put(b" * "), put(), put(b'"an-etag"')))

    assert replayed == [live[1], live[0], live[0]]


@pytest.mark.parametrize("name", ["x-hasura-role", "x-ms-range", "prefer", "dropbox-api-arg"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_field_that_an_older_version_did_not_know_does_not_decide_for_its_recordings(
    place: Place, monkeypatch: pytest.MonkeyPatch, name: str, method: str
) -> None:
    def of(*values: bytes, path: str = "/x?api_key=abc") -> Request:
        headers = tuple([(name.encode(), value) for value in values])
        return asked((*JSON, *headers), method=method, body=b'{"a":1}', target=path)

    with monkeypatch.context() as older:
        older.setattr(request_redaction, "EDITION", 1)
        async with process_over(place, "record", numbered) as first:
            (old,) = bodies(await first.ask(of()))
    async with process_over(place, "replay", numbered) as second:
        found = await second.ask(of(b"one"), of(), of(b"two", path="/x"))
        assert bodies(found) == [old] * 3
    async with process_over(place, "record", lambda *_: FakeAnswer(b"new")) as third:
        await third.ask(of(b"one"), of())
    async with process_over(place, "replay", numbered) as fourth:
        assert bodies(await fourth.ask(of(b"one"), of())) == [b"new"] * 2
        assert outcomes(await fourth.ask(of(b"two"))) == ["miss"]


async def test_a_preflight_for_another_method_is_another_request(place: Place) -> None:
    def preflight(method: bytes, fields: bytes) -> Request:
        names = sorted(PREFLIGHT_HEADERS, reverse=True)
        return asked(tuple(zip(names, (method, fields), strict=True)), method="OPTIONS")

    requests = [preflight(b"PUT", b"a"), preflight(b"DELETE", b"a"), preflight(b"PUT", b"b,A")]
    async with process_over(place, "record", numbered) as first:
        live = bodies(await first.ask(*requests))
    async with process_over(place, "replay", numbered) as second:
        replayed = await second.ask(*requests[::-1], preflight(b"PUT", b"a, b"))

    assert bodies(replayed[:3]) == live[::-1]
    assert replayed[3].body == live[2]


VARIED = [
    ("accept", b"application/vnd.github+json", b"application/vnd.github.diff"),
    ("accept-language", b"de", b"fr"),
    ("x-tenant", b"one", b"two"),
]


@pytest.mark.parametrize(("name", "one", "other"), VARIED)
async def test_a_header_that_the_answer_names_in_vary_decides(
    place: Place, name: str, one: bytes, other: bytes
) -> None:
    requests = [asked(((name.encode(), value),)) for value in (one, other)] + [asked()]
    want = [one, other, b"-"]
    async with process_over(place, "auto", echoing(name, f"Origin, {name.title()}")) as first:
        assert outcomes(await first.ask(*requests)) == ["recorded"] * 3
        assert bodies(await first.ask(*requests[::-1])) == want[::-1]
    async with process_over(place, "replay", numbered) as second:
        replayed = await second.ask(*requests[::-1], *requests)
        missed = await second.ask(asked(((name.encode(), b"else"),)))
    async with process_over(place, "auto", echoing(name, name)) as third:
        assert outcomes(await third.ask(*requests)) == ["replayed"] * 3
        assert outcomes(await third.ask(asked(((name.encode(), b"new"),)))) == ["recorded"]

    assert bodies(replayed) == want[::-1] + want
    assert outcomes(missed) == ["miss"]
    assert name.encode() in missed[0].body
    assert b"used up" not in missed[0].body


@pytest.mark.parametrize(("name", "one", "other"), VARIED)
async def test_of_answers_that_headers_tell_apart_each_replaces_its_own(
    place: Place, name: str, one: bytes, other: bytes
) -> None:
    requests = [asked(((name.encode(), value),)) for value in (one, other)]
    async with process_over(place, "record", echoing(name, name, of="old ")) as first:
        await first.ask(*requests)
    async with process_over(place, "record", echoing(name, name, of="new ")) as second:
        await second.ask(*requests[::-1])
        await second.ask(requests[0])
    async with process_over(place, "replay", numbered, policy=Policy(repeats="miss")) as third:
        assert await third.count() == 3
        replayed = await third.ask(*requests, *requests)

    assert bodies(replayed[:3]) == [b"new " + one, b"new " + other, b"new " + one]
    assert outcomes(replayed[3:]) == ["miss"]
    assert b"#" in replayed[3].body
    assert b"used up" in replayed[3].body


async def test_one_that_is_recorded_anew_leaves_the_others(place: Place) -> None:
    requests = [asked(((b"accept", text),)) for text in (b"a/a", b"b/b")]
    async with process_over(place, "record", echoing("accept", "accept", of="old ")) as first:
        await first.ask(*requests)
    async with process_over(place, "record", echoing("accept", "accept", of="new ")) as second:
        await second.ask(requests[1])
    async with process_over(place, "replay", numbered) as third:
        assert bodies(await third.ask(*requests)) == [b"old a/a", b"new b/b"]


async def test_media_types_and_languages_are_compared_by_what_they_say(place: Place) -> None:
    fields: Headers = (
        (b"Accept", b"text/HTML, application/json;q=0.5"),
        (b"accept-language", b"DE"),
    )
    same: Headers = (
        (b"accept-language", b"de"),
        (b"accept", b"text/html"),
        (b"accept", b"application/json; q=0.5"),
    )
    async with process_over(place, "auto", echoing("x", "Accept", "Accept-Language")) as first:
        assert outcomes(await first.ask(asked(fields), asked(same))) == ["recorded", "replayed"]


async def test_what_vary_names_of_a_program_or_a_caller_does_not_decide(place: Place) -> None:
    names = [
        *("accept-encoding", "user-agent", "origin", "x-origin", "referer", "cookie"),
        *("authorization", "x-api-key"),
    ]

    def of(name: str, value: bytes) -> Request:
        return asked(((name.encode(), value),), target=f"/{name}")

    def answering(request: Request, number: int) -> FakeAnswer:
        return echoing("x", request.target[1:], "*")(request, number)

    async with process_over(place, "record", answering) as first:
        await first.ask(*[of(name, b"one-0123") for name in names])
    async with process_over(place, "replay", numbered) as second:
        for name in names:
            found = await second.ask(of(name, b"two-4567"), asked(target=f"/{name}"))
            assert outcomes(found) == ["replayed"] * 2, name


@pytest.mark.parametrize("ignored", [("accept",), ("*",)])
async def test_a_rule_takes_names_out_of_vary(place: Place, ignored: tuple[str, ...]) -> None:
    rules = Rules(ignore_vary=ignored)
    requests = [asked(((b"accept", text),)) for text in (b"a/a", b"b/b")]
    async with process_over(place, "auto", echoing("accept", "accept"), rules=rules) as first:
        assert outcomes(await first.ask(*requests)) == ["recorded", "replayed"]
    async with process_over(place, "replay", numbered) as second:
        assert outcomes(await second.ask(*requests)) == ["replayed"] * 2


async def test_equal_misses_at_once_share_a_call_with_those_of_the_same_headers_alone(
    place: Place,
) -> None:
    requests = [asked(((b"x-tenant", text),)) for text in (b"a", b"b", b"a", b"c", b"b", b"a")]
    async with process_over(place, "auto", echoing("x-tenant", "x-tenant")) as first:
        served = [found for [found] in await asyncio.gather(*map(first.ask, requests))]

    assert bodies(served) == [b"a", b"b", b"a", b"c", b"b", b"a"]
    assert sorted(outcomes(served)) == ["recorded"] * 3 + ["replayed"] * 3
    assert len(first.responder.asked) == 3


async def test_a_recording_does_not_hold_headers_that_nobody_asks_for(place: Place) -> None:
    request = asked(((b"accept", b"a/a"), (b"x-tenant", b"one"), (b"x-other", b"two")))
    async with process_over(place, "record", echoing("x", "x-tenant, accept")) as first:
        await first.ask(request)
        stored = await first.broker.source.read("default")

    assert stored is not None
    (held,) = stored.interactions
    assert isinstance(held, Interaction)
    assert held.request.headers == ((b"accept", b"a/a"), (b"x-tenant", b"one"))
    assert held.request.varied == ("x-tenant", "accept")


def deflated(body: bytes) -> bytes:
    return zlib.compress(body)


@pytest.mark.parametrize(("coding", "encode"), [(b"gzip", gzip.compress), (b"deflate", deflated)])
@pytest.mark.parametrize(("fields", "body"), [(JSON, b'{"a": 1}'), (FORM, b"a=1&b=2"), ((), b"t")])
async def test_a_coded_body_and_a_plain_one_are_other_requests(
    place: Place, coding: bytes, encode: Callable[[bytes], bytes], fields: Headers, body: bytes
) -> None:
    plain = asked(fields, method="POST", body=body)
    coded = asked((*fields, (b"Content-Encoding", coding)), method="POST", body=encode(body))
    async with process_over(place, "auto", numbered) as first:
        live = await first.ask(plain, coded)
        again = await first.ask(coded, plain)
    async with process_over(place, "replay", numbered) as second:
        replayed = await second.ask(coded, plain)
        stored = await second.broker.source.read("default")

    assert outcomes(live) == ["recorded"] * 2
    assert bodies(again) == bodies(live)[::-1]
    assert bodies(replayed) == bodies(live)[::-1]
    assert stored is not None
    held = [
        interaction.request
        for interaction in stored.interactions
        if isinstance(interaction, Interaction)
    ]
    assert [response.coding for response in held] == [b"", coding]
    assert [answer.body for answer in held] == [body] * 2


def answering_with(status: int) -> Answering:
    return lambda request, number: FakeAnswer(b"%d" % number, status=status)


@pytest.mark.parametrize("status", [206, 304, 416])
async def test_the_same_request_always_hits(place: Place, status: int) -> None:
    policy = Policy(record_statuses=frozenset({status}))
    async with process_over(place, "auto", answering_with(status), policy=policy) as first:
        await first.ask(asked())
    async with process_over(place, "replay", numbered) as second:
        assert outcomes(await second.ask(asked(), asked())) == ["replayed"] * 2


async def test_not_modified_answers_requests_with_a_condition_alone(place: Place) -> None:
    async with process_over(place, "record", answering_with(304)) as first:
        await first.ask(asked(((b"if-none-match", b'"1"'),)))
    async with process_over(place, "replay", numbered) as second:
        served = await second.ask(asked(((b"if-none-match", b'"2"'),)), asked())

    assert outcomes(served) == ["replayed", "miss"]
    assert b"used up" not in served[1].body
    assert b"condition" in served[1].body


@pytest.mark.parametrize("name", ["x-tenant", "user-agent", "origin", "content-type", "accept"])
async def test_a_rule_has_any_header_count(place: Place, name: str) -> None:
    rules = Rules(match=(name,))
    requests = [asked(((name.encode(), text),)) for text in (b"a/a", b"b/b")] + [asked()]
    async with process_over(place, "auto", numbered, rules=rules) as first:
        live = await first.ask(*requests)
    async with process_over(place, "replay", numbered) as second:
        replayed = await second.ask(*requests[::-1])

    assert outcomes(live) == ["recorded"] * 3
    assert bodies(replayed) == bodies(live)[::-1]


@pytest.mark.parametrize("size", [100, 2 * LARGE_BODY])
async def test_an_upload_in_signed_chunks_hits_with_other_signatures(
    place: Place, tmp_path: Path, size: int
) -> None:
    def framed(data: bytes, signature: bytes) -> bytes:
        mark = b";chunk-signature=" + signature * 16
        return b"%x%b\r\n%b\r\n0%b\r\n\r\n" % (len(data), mark, data, mark)

    async def upload(data: bytes, signature: bytes) -> Request:
        fields = ((b"content-encoding", b"aws-chunked"),)
        body = framed(data, signature)
        if len(body) <= LARGE_BODY:
            return asked(fields, method="PUT", body=body)
        spool = Spool(str(tmp_path))
        await spool.add(body)
        return replace(asked(fields, method="PUT"), file=await spool.finish())

    data = bytes(range(256)) * (size // 256 + 1)
    async with process_over(place, "auto", numbered) as first:
        live = await first.ask(await upload(data, b"1f2e"))
    async with process_over(place, "replay", numbered) as second:
        served = await second.ask(await upload(data, b"5a6b"), await upload(data[1:], b"1f2e"))

    assert served[0].body == live[0].body
    assert outcomes(served) == ["replayed", "miss"]


def turn(call: str, accept: bytes) -> Request:
    """A turn of a conversation with the identifier of a call in it."""
    body = dump(
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"id": call, "name": "look"}]},
                {"role": "tool", "tool_call_id": call, "content": "seen"},
            ]
        }
    )
    return asked((*JSON, (b"accept", accept)), method="POST", body=body, target="/v1/chat")


async def test_an_answer_that_depends_on_headers_is_not_found_by_other_identifiers_either(
    place: Place,
) -> None:
    async with process_over(place, "record", echoing("accept", "accept")) as first:
        await first.ask(turn("call_one7f3a9c01", b"a/a"))
    async with process_over(place, "replay", numbered) as second:
        served = await second.ask(
            turn("call_two8e4b0d12", b"b/b"), turn("call_two8e4b0d12", b"a/a")
        )

    assert outcomes(served) == ["miss", "replayed"]


async def test_answers_that_a_header_tells_apart_are_no_duplicates(place: Place) -> None:
    async with process_over(place, "record", echoing("accept", "Accept")) as recording:
        for accept in (b"text/plain", b"application/json", b"text/plain"):
            await recording.ask(asked(((b"Accept", accept),)))
        (report,) = await recording.broker.reports()

    assert [[duplicate.index for duplicate in group] for group in report.duplicates] == [[0, 2]]
