"""Which of equal requests an answer is for: by Vary, by a part, by a condition."""

import pytest

from tapeway.core.matching.headers.conditions import (
    are_told_apart,
    is_for,
    requests_differ,
    told_apart_by,
    varied_names,
    why_not,
)
from tapeway.core.matching.placeholders import SecretDigests
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead

ACCEPT_A: Headers = ((b"Accept", b"a/a"),)
ACCEPT_B: Headers = ((b"accept", b"b/b"),)


def recording(
    headers: Headers = (), varied: tuple[str, ...] = (), status: int = 200
) -> Interaction:
    request = Request("r", "GET", "/", headers, varied=varied)
    return Interaction(7, request, Response(ResponseHead(status)))


@pytest.mark.parametrize(
    ("vary", "names"),
    [
        ((), ()),
        ((b"Accept",), ("accept",)),
        ((b"Accept, X-Tenant ,accept",), ("accept", "x-tenant")),
        ((b"Accept", b"Origin, Prefer"), ("accept", "prefer")),
        ((b"*",), ()),
        ((b"Accept-Encoding, User-Agent, Origin, X-Origin, Referer, Cookie",), ()),
        ((b"Authorization, X-Api-Key, X-Goog-Api-Key",), ()),
        ((b"not a name, Accept",), ("accept",)),
        ((b"",), ()),
    ],
)
def test_the_names_in_vary_that_decide(vary: tuple[bytes, ...], names: tuple[str, ...]) -> None:
    assert varied_names(tuple([(b"vary", value) for value in vary])) == names


def test_an_absent_field_is_a_value() -> None:
    assert told_apart_by(recording((), ("accept",)).request, ACCEPT_A, ignored=()) == ["accept"]
    assert told_apart_by(recording(ACCEPT_A, ("accept",)).request, (), ignored=()) == ["accept"]
    assert told_apart_by(recording((), ("accept",)).request, (), ignored=()) == []


def test_a_recording_that_does_not_say_so_depends_on_nothing() -> None:
    assert is_for(recording(ACCEPT_A), ACCEPT_B, ignored=())


@pytest.mark.parametrize("ignored", [("accept",), ("*",)])
def test_an_ignored_name_does_not_decide(ignored: tuple[str, ...]) -> None:
    held = recording(ACCEPT_A, ("accept",))

    assert is_for(held, ACCEPT_B, ignored)
    assert not is_for(held, ACCEPT_B, ("prefer",))
    assert not are_told_apart(held, recording(ACCEPT_B, ("accept",)), ignored)


def test_letter_case_counts_but_for_media_types_languages_and_charsets() -> None:
    tenant: Headers = ((b"x-tenant", b"One"),)

    assert is_for(recording(((b"accept", b"A/A"),), ("accept",)), ACCEPT_A, ignored=())
    assert not is_for(recording(tenant, ("x-tenant",)), ((b"x-tenant", b"one"),), ignored=())


def test_a_value_that_was_replaced_is_compared_by_its_digest() -> None:
    digests, secret = SecretDigests("run-1"), b"q7Zr2Lw9Xk4Tn8Vb3Yc6Pd1M"
    held: Headers = ((b"x-tenant", b"of " + digests.placeholder("x", secret)),)

    def answers(value: bytes) -> bool:
        asked = ((b"x-tenant", value),)
        return is_for(recording(held, ("x-tenant",)), asked, (), digests.is_of)

    assert answers(b"of " + secret)
    assert not answers(b"of " + secret[::-1])


def test_recordings_are_told_apart_by_what_is_known_of_both() -> None:
    one, other = recording(ACCEPT_A, ("accept",)), recording(ACCEPT_B, ("accept",))
    unknown = recording((), ("accept", "x-tenant"))

    assert are_told_apart(one, other, ignored=())
    assert not are_told_apart(one, recording(ACCEPT_A), ignored=())
    assert not are_told_apart(recording((), ("x-tenant",)), recording(), ignored=())
    assert are_told_apart(one, unknown, ignored=())


def test_requests_at_the_same_time_differ_by_what_the_answer_names() -> None:
    assert requests_differ(ACCEPT_A, ACCEPT_B, ((b"Vary", b"Accept"),), ignored=())
    assert not requests_differ(ACCEPT_A, ACCEPT_B, ((b"Vary", b"Prefer"),), ignored=())
    assert not requests_differ(ACCEPT_A, ACCEPT_B, (), ignored=())


def test_why_a_recording_does_not_answer_is_said() -> None:
    named = why_not(recording(ACCEPT_A, ("accept",)), ACCEPT_B, ignored=())
    part = why_not(recording(((b"range", b"bytes=0-1"),), status=206), (), ignored=())
    modified = why_not(recording(((b"if-none-match", b"x"),), status=304), (), ignored=())

    assert named == "recorded with another accept, which Vary names"
    assert part == "a 206 to a request with another Range"
    assert modified == "a 304 to a request with a condition such as If-None-Match"
    assert why_not(recording(), (), ignored=()) is None
