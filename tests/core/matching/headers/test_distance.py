"""Among equal recordings, the one whose headers are nearest; no credential is ever kept for it."""

import pytest

from tapeway.core.matching.headers.distance import (
    caller,
    headers_differ,
    nearest_by_headers,
    of_same_caller,
    stored_credentials,
)
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.spans import PLACEHOLDER

REDACTOR = Redactor("run")


def seen(*headers: tuple[bytes, bytes]) -> tuple[tuple[str, str], ...]:
    return stored_credentials(RequestFields(headers), REDACTOR.placeholder)


def recorded(index: int, *credentials: tuple[bytes, bytes], headers: Headers = ()) -> Interaction:
    request = Request("x", "GET", "/", headers, credentials=seen(*credentials))
    return Interaction(index, request, Response(ResponseHead(200)))


def asked(*credentials: tuple[bytes, bytes], headers: Headers = ()) -> Request:
    return recorded(0, *credentials, headers=headers).request


def test_stored_credentials_name_headers_schemes_and_cookies_but_no_value() -> None:
    found = dict(
        seen(
            (
                b"Authorization",
                b'Digest username="me", response="6629fae49393a05397450978507c4ef1"',
            ),
            (b"X-Api-Key", b"sk-0123456789abcdef"),
            (b"Cookie", b'sid=abcdefghijklmnop; theme="dark"; bare'),
            (b"Accept", b"*/*"),
        )
    )

    assert list(found) == ["authorization", "cookie", "x-api-key"]
    assert found["authorization"].startswith("Digest REDACTED.authorization.")
    assert PLACEHOLDER.fullmatch(found["x-api-key"].encode())
    pairs = [pair.rpartition(".")[0] for pair in found["cookie"].split("; ")]
    assert pairs == ["sid=REDACTED.sid", "theme=REDACTED.theme", "REDACTED.cookie"]


@pytest.mark.parametrize(
    "value", [b"hunter2hunter2", b"hunter2 hunter2", b"Bearer", b"Unknown hunter2hunter2"]
)
def test_an_unknown_scheme_is_redacted_with_the_rest(value: bytes) -> None:
    [(_, text)] = seen((b"authorization", value))

    assert PLACEHOLDER.fullmatch(text.encode())


def test_a_placeholder_that_comes_back_is_the_one_that_was_issued() -> None:
    value = b"abcdefghijklmnop"
    issued = REDACTOR.placeholder("sid", value)

    assert seen((b"cookie", b"sid=" + issued)) == seen((b"cookie", b"sid=" + value))
    assert seen((b"cookie", b'sid="%b"' % value)) == seen((b"cookie", b"sid=" + value))


def test_a_token_that_an_answer_held_under_another_name_is_the_same() -> None:
    recording = recorded(0, (b"authorization", b"Bearer abcdefghijklmnop"))
    back = REDACTOR.placeholder("access_token", b"abcdefghijklmnop")

    other = recorded(1, (b"authorization", b"Bearer somebody-elses-token"))

    assert list(
        of_same_caller(asked((b"authorization", b"Bearer " + back)), [other, recording])
    ) == [recording]


def test_recordings_vary_where_any_header_or_credential_differs() -> None:
    plain, other = recorded(0), recorded(1, headers=((b"accept", b"*/*"),))

    assert not headers_differ([plain, recorded(1)])
    assert headers_differ([plain, other])
    assert headers_differ([plain, recorded(1, (b"cookie", b"a=b"))])


def test_a_login_step_with_the_same_scheme_is_nearer_than_the_step_before() -> None:
    first, second = recorded(0), recorded(1, (b"authorization", b"Digest nonce=1"))

    assert nearest_by_headers(asked((b"authorization", b"Digest nonce=2")), [first, second]) == [
        second
    ]
    assert nearest_by_headers(asked((b"authorization", b"Basic YTpi")), [first, second]) == [second]
    assert nearest_by_headers(asked(), [second, first]) == [first]


def test_other_headers_decide_where_credentials_are_equally_near() -> None:
    html, json = (recorded(n, headers=((b"Accept", kind),)) for n, kind in ((0, b"h"), (1, b"j")))

    assert nearest_by_headers(asked(headers=((b"accept", b"j"),)), [html, json]) == [json]
    assert nearest_by_headers(asked(headers=((b"accept", b"x"),)), [html, json]) == [html, json]


def test_only_a_callers_own_recordings_answer_where_there_are_any() -> None:
    mine, hers = (recorded(n, (b"cookie", b"sid=%d" % n)) for n in (0, 1))

    assert list(of_same_caller(asked((b"cookie", b"sid=1")), [mine, hers])) == [hers]
    assert list(of_same_caller(asked((b"cookie", b"sid=7")), [mine, hers])) == [mine, hers]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (("authorization", b"Bearer a"), ("authorization", b"Bearer b"), False),
        (("authorization", b"Bearer a"), ("x-api-key", b"a"), False),
        (("authorization", b"Bearer a"), ("authorization", b"Bearer a"), True),
        (("authorization", b"Bearer a"), None, False),
        (("cookie", b"sid=a"), ("cookie", b"sid=b"), False),
        (("cookie", b"sid=a; x=1"), ("cookie", b"x=1; sid=a"), True),
        (("cookie", b"sid=a; __cf_bm=1"), ("cookie", b"sid=a; __cf_bm=2"), True),
        (("cookie", b"_ga=1; AWSALB=2"), None, True),
        (("mcp-session-id", b"1"), ("mcp-session-id", b"2"), True),
        (
            ("authorization", b"AWS4-HMAC-SHA256 Credential=a, Signature=1"),
            ("authorization", b"AWS4-HMAC-SHA256 Credential=a, Signature=2"),
            True,
        ),
        (("authorization", b"Digest nonce=1"), ("authorization", b"Bearer a"), False),
    ],
)
def test_callers_are_told_apart_by_what_is_theirs(
    one: tuple[str, bytes], other: tuple[str, bytes] | None, same: bool
) -> None:
    def of(field: tuple[str, bytes] | None) -> bytes:
        return caller(() if field is None else seen((field[0].encode(), field[1])))

    assert (of(one) == of(other)) == same
