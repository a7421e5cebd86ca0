"""A missed request part by part, where that is not what a test of the admin API shows."""

import json

import pytest

from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.miss import Miss, MissedRequest
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import BodyFile, Request, Response, ResponseHead
from tapeway.inspection.missed import (
    nearest_part,
    preview,
    redacted,
    request_part,
    shown_document,
    verdicts,
)

JSON = ((b"content-type", b"application/json"),)
OK = Response(ResponseHead(200))


def request(body: object = None, path: str = "/v1/x", route: str = "openai") -> Request:
    sent = b"" if body is None else json.dumps(body).encode()
    return Request(route, "POST", path, JSON, sent)


def recorded(index: int, body: object, route: str = "openai") -> Interaction:
    return Interaction(index, request(body, route=route), OK)


def missed(body: object, **more: str) -> MissedRequest:
    found = request(body, **more)
    return MissedRequest(found, len(found.body))


def test_a_large_body_is_not_kept_and_not_compared() -> None:
    large = Request("openai", "POST", "/v1/x", JSON, b'"' + b"x" * 2**20 + b'"')

    kept = Miss("c", large, b"key").kept

    assert (kept.request.body, kept.size, kept.is_whole) == (b"", 2**20 + 2, False)
    part = request_part(kept, NO_RULES)
    assert part.note == "its body has 1048578 bytes, too many to be kept"
    body = verdicts(kept, recorded(0, {"a": 1}), [], NO_RULES)[4]
    assert (body.part, body.verdict) == ("body", "not_compared")
    assert nearest_part(kept, recorded(0, {"a": 1}), NO_RULES).differences == []


def test_a_body_in_a_file_is_not_held_open() -> None:
    file = BodyFile("", 5_000_000, "0" * 64, handle=object())

    kept = Miss("c", Request("openai", "POST", "/v1/x", JSON, file=file), b"key").kept

    assert (kept.request.file, kept.size) == (None, 5_000_000)


def test_a_document_above_one_mebibyte_is_not_shown() -> None:
    document, why = shown_document({"body": "x" * 2**20})

    assert document is None
    assert why is not None
    assert "1048576 that are shown" in why


def test_a_recording_without_a_route_answers_any() -> None:
    found = verdicts(missed({"a": 1}), recorded(0, {"a": 1}, route=""), [], NO_RULES)

    assert {verdict.part: verdict.verdict for verdict in found}["route"] == "ok"


def test_where_nothing_is_recorded_nothing_was_compared() -> None:
    assert verdicts(missed({"a": 1}), None, [], NO_RULES) == []


def test_another_route_and_another_kind_of_body_are_named() -> None:
    other = Interaction(0, Request("groq", "POST", "/v1/x", (), b"plain"), OK)

    found = {verdict.part: verdict for verdict in verdicts(missed({"a": 1}), other, [], NO_RULES)}

    assert found["route"].reason == 'recorded "groq", requested "openai"'
    assert found["body"].reason == "it is read as json, the recorded one as text"


def test_a_part_that_a_rule_leaves_out_is_not_compared() -> None:
    rules = Rules(ignore=("body",))

    found = {
        verdict.part: verdict for verdict in verdicts(missed({"a": 1}), recorded(0, {}), [], rules)
    }

    assert (found["body"].verdict, found["body"].reason) == ("not_compared", "a rule leaves it out")


def test_a_header_that_a_rule_names_is_compared() -> None:
    rules = Rules(match=("x-tenant",))
    sent = Request("openai", "POST", "/v1/x", (*JSON, (b"X-Tenant", b"b")), b"{}")
    held = Request("openai", "POST", "/v1/x", (*JSON, (b"X-Tenant", b"a")), b"{}")

    found = verdicts(MissedRequest(sent, 2), Interaction(0, held, OK), [], rules)

    (headers,) = [verdict for verdict in found if verdict.part == "headers"]
    assert (headers.verdict, headers.reason) == ("differs", "at headers.x-tenant")


@pytest.mark.parametrize(("count", "searched", "complete"), [(3, 3, True), (1200, 1000, False)])
def test_a_preview_looks_at_a_bounded_number_of_recordings(
    count: int, searched: int, complete: bool
) -> None:
    held = [recorded(at, {"a": at}) for at in range(count)]

    found = preview(missed({"a": 2}), held, NO_RULES)

    assert (found.answers, found.searched, found.complete) == ((2,), searched, complete)


def test_a_preview_of_large_recordings_ends_at_their_bytes() -> None:
    held = [recorded(at, "x" * 3 * 2**20) for at in range(4)]

    found = preview(missed({"a": 2}), held, NO_RULES)

    assert (found.searched, found.complete) == (2, False)


def test_a_recording_is_shown_with_its_request_redacted() -> None:
    item = recorded(0, {"a": 1})

    same = redacted(item, lambda sent: sent)
    clean = redacted(item, lambda sent: Request("r", "POST", "/clean"))

    assert same is item
    assert (clean.index, clean.request.target) == (0, "/clean")
