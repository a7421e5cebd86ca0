"""Where requests, responses and the environment carry credentials."""

import base64
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.model.messages import ResponseHead
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.redaction.credentials import (
    HARMLESS_HEADERS,
    Secret,
    environment_credentials,
    environment_secrets,
    header_credentials,
    holds_secret,
    is_credential_header,
    url_credentials,
    userinfo_credentials,
)
from tapeway.core.redaction.known_values import issued_credentials
from tests.core.redaction.example_messages import make_request

KEY = "sk-live/0123456789+abc="
AWS = (
    b"AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/20260101/us-east-1/bedrock/aws4_request, "
    b"SignedHeaders=content-type;host;x-amz-date, Signature=" + b"0f" * 32
)
DIGEST = b'Digest username="me", response="6629fae49393a05397450978507c4ef1"'
VALUE = "synthetic-value-0123456789"


def head_of(*headers: tuple[bytes, bytes]) -> ResponseHead:
    return ResponseHead(200, headers=headers)


def values(found: Iterable[Secret]) -> set[bytes]:
    return {secret.value for secret in found}


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "proxy-authorization",
        "x-api-key",
        "api-key",
        "apikey",
        "x-apikey",
        "x-goog-api-key",
        "xi-api-key",
        "ocp-apim-subscription-key",
        "x-auth-token",
        "x-amz-security-token",
        "helicone-auth",
        "x-portkey-api-key",
        "cf-aig-authorization",
        "dd-api-key",
        "dd-application-key",
        "chatgpt-account-id",
        "openai-organization",
        "openai-project",
        "mcp-session-id",
        "private-token",
        "x-vault-token",
        "x-access-token",
        "x-client-secret",
        "x-password",
        "x-rapidapi-key",
        "x-functions-key",
        "x-secret-key",
        "x-access-key",
        "x-master-key",
        "x-key",
    ],
)
def test_a_field_of_this_name_carries_a_credential(name: str) -> None:
    assert is_credential_header(name.encode())


@pytest.mark.parametrize(
    "name",
    [
        "accept",
        "content-type",
        "idempotency-key",
        "surrogate-key",
        "x-cache-key",
        "prompt-cache-key",
        "x-request-id",
        "x-ratelimit-remaining-tokens",
        "anthropic-ratelimit-tokens-limit",
        "x-token-count",
        "author",
        "x-author",
        "www-authenticate",
        "monkey",
        "sec-fetch-mode",
    ],
)
def test_a_field_of_this_name_carries_none(name: str) -> None:
    assert not is_credential_header(name.encode())


@pytest.mark.parametrize("name", sorted(HARMLESS_HEADERS))
def test_a_field_that_is_never_searched_carries_none(name: bytes) -> None:
    assert not is_credential_header(name)
    assert not holds_secret(name)


def test_a_field_that_stands_there_twice_shows_both_credentials() -> None:
    keys = [b"sid=0123456789abcdef", b"sid=fedcba9876543210"]
    headers = tuple((name, key) for name, key in zip((b"Cookie", b"cookie"), keys, strict=True))

    found = header_credentials(
        RequestFields((*headers, (b"Accept", b"*/*"), (b"Cookie", b"theme=dark")))
    )

    assert values(found) == {b"0123456789abcdef", b"fedcba9876543210"}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b"Authorization", b"Bearer " + KEY.encode(), {KEY.encode()}),
        (b"authorization", b"bearer  " + KEY.encode() + b" ", {KEY.encode()}),
        (b"authorization", b"Token " + KEY.encode(), {KEY.encode()}),
        (b"authorization", b"Api-Key " + KEY.encode(), {KEY.encode()}),
        (b"authorization", KEY.encode(), {KEY.encode()}),
        (b"X-Api-Key", KEY.encode(), {KEY.encode()}),
        (b"x-goog-api-key", KEY.encode(), {KEY.encode()}),
        (b"x-api-key", b"short", set()),
        (b"authorization", b"Bearer short", set()),
        (b"authorization", b"", set()),
        (b"authorization", b"Bearer\t" + KEY.encode(), {KEY.encode()}),
        (b"authorization", b'Bearer k=,y/+=%"\\0123456789', {b'k=,y/+=%"\\0123456789'}),
        (b"authorization", b"SSWS " + KEY.encode(), {KEY.encode()}),
        (b"authorization", b"Two internationally", set()),
        (
            b"authorization",
            b'Token token="0123456789abcdef", realm="x"',
            {b"0123456789abcdef"},
        ),
        (b"authorization", AWS, {b"0f" * 32}),
        (b"authorization", DIGEST, {b"6629fae49393a05397450978507c4ef1"}),
        (b"x-amz-security-token", b"T0k" * 20, {b"T0k" * 20}),
        (b"user-agent", KEY.encode(), set()),
        (b"x-amz-date", b"20260101T000000Z", set()),
        (b"Cookie", b"theme=dark; sid=0123456789abcdef", {b"0123456789abcdef"}),
        (b"cookie", b' a = "0123456789abcdef" ;b=123456789012345', {b"0123456789abcdef"}),
        (b"cookie", b"a=b=0123456789abcdef", {b"b=0123456789abcdef"}),
        (b"cookie", b"0123456789abcdef", set()),
        (b"set-cookie", b"sid=0123456789abcdef", set()),
    ],
)
def test_a_field_shows_its_whole_credential(
    name: bytes, value: bytes, expected: set[bytes]
) -> None:
    assert values(header_credentials(RequestFields(((name, value),)))) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b"X-Litellm-Key", KEY.encode(), {KEY.encode()}),
        (b"Authentication", b"Bearer " + KEY.encode(), {KEY.encode()}),
        (b"x-portkey-config", b'{"provider": "openai", "api_key": "0123456789abcdef"}', {b"0123456789abcdef"}),
        (b"X-Litellm-Key", b"anonymous-user-of-the-house", set()),
        (b"authorization", b"Bearer anonymous-user", set()),
        (b"idempotency-key", b"550e8400-e29b-41d4-a716-446655440000", set()),
        (b"openai-project", b"proj_0123456789abcdef", set()),
        (b"x-goog-user-project", b"my-project-4f6b2c9d8e", set()),
        (b"x-request-id", b"550e8400-e29b-41d4-a716-446655440000", set()),
    ],
)  # fmt: skip
def test_an_opaque_value_is_known_if_the_name_of_its_field_says_that_it_is_a_credential(
    name: bytes, value: bytes, expected: set[bytes]
) -> None:
    assert values(header_credentials(RequestFields(((name, value),)))) == expected


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (b"user:0123456789abc", {b"user:0123456789abc", b"0123456789abc"}),
        (b"user:a-long-password", set()),
        (b"elastic:elasticsearch", set()),
        (b"sk_live_0123456789:", {b"sk_live_0123456789:", b"sk_live_0123456789"}),
        (b"sk_live_0123456789:x", {b"sk_live_0123456789:x", b"sk_live_0123456789"}),
        (b"me:short", set()),
        (b"somebody:short", set()),
        (b"user:0123456789:abc", {b"user:0123456789:abc", b"0123456789:abc"}),
    ],
)
def test_a_basic_credential_is_looked_into(pair: bytes, expected: set[bytes]) -> None:
    padded = base64.b64encode(pair)
    for token in (padded, padded.rstrip(b"=")):
        found = values(header_credentials(RequestFields(((b"authorization", b"Basic " + token),))))

        assert found == expected | ({token} if len(token) >= 12 else set())


def test_a_basic_credential_that_is_none_is_one_value() -> None:
    assert values(
        header_credentials(RequestFields(((b"authorization", b"Basic not-base64-4f6b2c9d8e"),)))
    ) == {b"not-base64-4f6b2c9d8e"}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/x?key=0f1e2d3c4b5a69788796", {b"0f1e2d3c4b5a69788796"}),
        ("/x?a=b&API_KEY=0123456789abc&c=d", {b"0123456789abc"}),
        ("/x?api%5Fkey=0123456789abc", {b"0123456789abc"}),
        (
            "/x?openaiApiKey=0123456789abc&client_assertion=abc0123456789",
            {b"0123456789abc", b"abc0123456789"},
        ),
        ("/x?api_key=sk%2Flive%3D0123a4b5", {b"sk/live=0123a4b5"}),
        ("/x?api_key=sk/live+0123456789=", {b"sk/live+0123456789="}),
        ("/x?sas=%FF%FE0123456789ab", {b"\xff\xfe0123456789ab"}),
        ("/x?X-Amz-Signature=0123456789abc&X-Amz-Date=20260101T000000Z", {b"0123456789abc"}),
        ("/x?api_key=short&api_key=0123456789abc", {b"0123456789abc"}),
        ("/x?token=short", set()),
        ("/x?token=0123456789abc", set()),
        ("/x?%6bey=0f1e2d3c4b5a69788796", {b"0f1e2d3c4b5a69788796"}),
        ("/x?key=a/9f86d081884c7d659a2feaa0c55ad015", set()),
        ("/x?monkey=0123456789abc", set()),
        ("/x?pageToken=0123456789abc", set()),
        ("/key=0123456789abc", set()),
        ("/x?key", set()),
        ("/x?key=", set()),
        ("/x?", set()),
        ("/x?api_key=\udcff0123456789ab", {b"\xff0123456789ab"}),
        ("/x?a=1;api_key=0123456789abc;b=2", {b"0123456789abc"}),
        ("/x?api_key=0123456789abc;def&b=2", {b"0123456789abc;def"}),
        ("/x?url=https%3A%2F%2Fh%2F%3Fapi_key%3D0123456789abc%26b%3D2", {b"0123456789abc"}),
        ("/x?url=https%253A%252F%252Fh%252F%253Fsas%253D0123456789%25252Babc", {b"0123456789+abc"}),
        ("/x?url=https://h/?api_key=0123456789abc", {b"0123456789abc"}),
        ("/x?model=gpt-4o-mini-2024-07-18&key=gpt-4o-mini-2024-07-18", set()),
    ],
)
def test_a_querys_credentials_are_found_as_they_were_meant(
    target: str, expected: set[bytes]
) -> None:
    assert values(url_credentials(make_request(target=target))) == expected


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (b"Set-Cookie", b"sid=0123456789abcdef; Path=/; HttpOnly", {b"0123456789abcdef"}),
        (b"set-cookie", b'sid="0123456789abcdef"; Path=/', {b"0123456789abcdef"}),
        (b"set-cookie", b"theme=dark; Expires=Thu, 01 Jan 2026 00:00:00 GMT", set()),
        (b"x-auth-token", b"0123456789abc", {b"0123456789abc"}),
        (b"openai-organization", b"org-0123456789abc", set()),
        (
            b"authentication-info",
            b'nextnonce="47364c23432d2e131a5fb210812c"',
            {b"47364c23432d2e131a5fb210812c"},
        ),
        (b"X-CSRF", b"0123456789abc", {b"0123456789abc"}),
        (b"Set-Cookie2", b"sid=0123456789abcdef; Version=1", {b"0123456789abcdef"}),
        (b"set-cookie", b"m=gpt-4o-mini-2024-07-18", set()),
        (b"set-cookie", b"back=/home/customers/list; Path=/", set()),
        (b"set-cookie", b"seen=2026-01-01T00:00:00Z", set()),
        (b"Location", b"/cb?access_token=0123456789abc&x=1", {b"0123456789abc"}),
        (b"location", b"https://h/cb#x=1&id_token=0123456789abc", {b"0123456789abc"}),
        (b"x-goog-upload-url", b"https://h/up?upload_id=0123456789abc", {b"0123456789abc"}),
        (b"location", b"/v1/files/0123456789abc", set()),
        (b"x-request-id", b"0123456789abc", set()),
    ],
)
def test_a_response_issues_credentials_in_its_header(
    name: bytes, value: bytes, expected: set[bytes]
) -> None:
    assert values(issued_credentials(head_of((name, value)))) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://host/path", set()),
        ("https://host/@scope/x", set()),
        ("", set()),
        (
            "https://me:p%40ss-0123456789ab@host",
            {
                b"p@ss-0123456789ab",
                b"me:p@ss-0123456789ab",
                base64.b64encode(b"me:p@ss-0123456789ab"),
            },
        ),
        ("https://0123456789abc@host", {b"0123456789abc", b"MDEyMzQ1Njc4OWFiYw=="}),
    ],
)
def test_a_urls_user_and_password_are_credentials_also_as_they_are_sent(
    url: str, expected: set[bytes]
) -> None:
    assert values(list(userinfo_credentials(url))) == expected


def test_a_secret_is_not_shown_where_it_is_printed() -> None:
    assert KEY not in repr(Secret("authorization", KEY.encode()))
    assert repr(Secret("authorization", b"x")) == "Secret(label='authorization')"


def test_marks_without_a_name_are_read_in_time_linear_in_their_number() -> None:
    assert url_credentials(make_request(target="/" + "?" * 500_000)) == []
    assert issued_credentials(head_of((b"location", b"/" + b"?" * 500_000))) == []


def test_the_url_that_a_referrer_repeats_shows_its_credentials() -> None:
    referrer = (b"Referer", b"https://a/?api_key=0123456789abcdef")

    assert values(url_credentials(make_request((referrer,)))) == {b"0123456789abcdef"}


def test_what_stands_behind_a_second_question_mark_has_a_name_of_its_own() -> None:
    assert url_credentials(make_request(target="/?next?api_key=0123456789abcdef")) == [
        Secret("api_key", b"0123456789abcdef")
    ]


PATHS = ("/token?grant_type=authorization_code", "/countries?state=NY")


def test_a_code_is_a_credential_in_a_query_of_oauth() -> None:
    code = Secret("code", b"4/0AX4XfWh-code")

    asked = [make_request(target=f"{path}&code=4/0AX4XfWh-code") for path in PATHS]
    assert [url_credentials(request) for request in asked] == [[code], []]
    assert issued_credentials(head_of((b"location", b"/back?code=4/0AX4XfWh-code&state=1"))) == [
        code
    ]


def test_a_link_shows_the_credentials_of_each_of_its_urls() -> None:
    link = b'<https://a/?p=2&access_token=0123456789abcdef>; rel="next", <https://a/?sig=fedcba9876543210>'

    assert values(issued_credentials(head_of((b"link", link)))) == {
        b"0123456789abcdef",
        b"fedcba9876543210",
    }


@pytest.mark.parametrize(
    "name",
    [
        "OPENAI_API_KEY",
        "OPENAI_APIKEY",
        "AZURE_OPENAI_KEY",
        "GITHUB_TOKEN",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_BEARER_TOKEN_BEDROCK",
        "CLIENT_SECRET",
        "DB_PASSWORD",
        "TOKEN",
        "PASSWORD",
        "my_api_key",
        "GITHUB_PAT",
        "PGPASSWORD",
        "MYSQL_PWD",
        "SMTP_PASS",
        "TAPEWAY_ADMIN_TOKEN",
    ],
)
def test_a_variable_named_like_a_credential_is_one(name: str) -> None:
    assert environment_credentials({name: VALUE}) == ((name, VALUE),)


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "PWD",
        "OLDPWD",
        "BYPASS",
        "MONKEY",
        "TOKENIZER",
        "TOKENIZERS_PARALLELISM",
        "KEYBOARD",
        "SECRETARY",
        "AUTHOR",
    ],
)
def test_other_variables_are_left_alone(name: str) -> None:
    assert environment_credentials({name: VALUE}) == ()


@pytest.mark.parametrize("value", ["", "short", "eleven-char"])
def test_short_values_are_no_credentials(value: str) -> None:
    assert environment_credentials({"MY_TOKEN": value}) == ()


def test_twelve_characters_are_enough_and_surrounding_space_is_not_part_of_it() -> None:
    assert environment_credentials({"MY_TOKEN": " 4f6b2c9d8e1a\n"}) == (
        ("MY_TOKEN", "4f6b2c9d8e1a"),
    )


@pytest.mark.parametrize(
    "value",
    [
        "customer_email_address",
        "gpt-4o-mini-2024-07-18",
        "123456789012",
        "/home/me/.ssh/id_ed25519",
        "2026-01-01T00:00:00Z",
        "correct-horse-battery-staple",
        "Please enter your password now",
    ],
)
def test_a_variable_that_holds_words_is_kept_out_of_the_log_alone(value: str) -> None:
    environ = {"PARTITION_KEY": value}

    assert environment_credentials(environ) == (("PARTITION_KEY", value),)
    assert environment_secrets(environ) == ()
    assert environment_secrets({"MY_KEY": VALUE}) == (Secret("my-key", VALUE.encode()),)


def test_the_password_in_a_url_is_one_as_written_and_as_meant() -> None:
    found = environment_credentials(
        {"DATABASE_URL": "postgresql://me:p%40ss-0123456789ab@db:5432/x"}
    )

    assert found == (("DATABASE_URL", "p%40ss-0123456789ab"), ("DATABASE_URL", "p@ss-0123456789ab"))


def test_a_url_without_a_password_is_none() -> None:
    assert environment_credentials({"X_TOKEN_URL": "https://someone@example.com/a:b@c"}) == ()


def test_a_value_is_listed_once_under_the_first_name() -> None:
    environ = {"B_API_KEY": VALUE, "A_API_KEY": VALUE}

    assert environment_credentials(environ) == (("A_API_KEY", VALUE),)


@given(st.dictionaries(st.text(), st.text()))
def test_any_environment_can_be_read(environ: dict[str, str]) -> None:
    for name, value in environment_credentials(environ):
        assert len(value) >= 12
        assert name in environ


def test_the_key_in_a_connection_string_is_one() -> None:
    text = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=c3ludGhldGljLXZhbHVl==;EndpointSuffix=x"

    assert environment_credentials({"AZURE_STORAGE_CONNECTION_STRING": text}) == (
        ("AZURE_STORAGE_CONNECTION_STRING", "c3ludGhldGljLXZhbHVl=="),
    )


def test_a_secret_shows_no_value() -> None:
    shown = Secret("openai-key", b"hunter2")

    assert repr(shown) == str(shown) == f"{shown}" == "Secret(label='openai-key')"
