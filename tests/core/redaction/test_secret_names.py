"""Names that say that their value is a secret."""

import re

import pytest
import re2  # type: ignore[import-untyped]

from tapeway.core.redaction import secret_names
from tapeway.core.redaction.secret_names import is_secret_field

HIDING = [
    "api_key",
    "apikey",
    "apiKey",
    "API-Key",
    "OPENAI_API_KEY",
    "x-goog-api-key",
    "X-Api-Key",
    "client_secret",
    "clientSecret",
    "client_assertion",
    "password",
    "db_password",
    "newPassword",
    "passwd",
    "passphrase",
    "authorization",
    "Authorization",
    "Proxy-Authorization",
    "cf-aig-authorization",
    "authorization_token",
    "access_token",
    "accessToken",
    "refresh_token",
    "id_token",
    "subject_token",
    "actor_token",
    "secret",
    "webhook_secret",
    "secret_key",
    "private_key",
    "privateKey",
    "session_token",
    "aws_session_token",
    "aws_secret_access_key",
    "SecretAccessKey",
    "SessionToken",
    "X-Auth-Token",
    "user[password]",
    "password2",
    "apiKey_1",
    "bot_token",
    "hf_token",
    "github_token",
    "vault_token",
    "consumer_key",
    "service_role_key",
    "ephemeral_key",
    "passcode",
    "pwd",
    "pass",
    "password_confirmation",
    "passwordConfirm",
]
# Under these a word is none.
OPAQUE_ONLY = [
    "auth",
    "X-Custom-Auth",
    "X-Litellm-Key",
    "Cookie",
    "jwt",
    "dsn",
    "encryption_key",
    "connection_string",
    "webhook_url",
    "server_url",
    "WANDB_TOKEN",
    "PARTITION_KEY",
    "DB_PASS",
    "dbPass",
]
TELLING_NOTHING = [
    "Idempotency-Key",
    "signature",
    "token",
    "key",
    "tokens",
    "max_tokens",
    "completion_tokens",
    "next_page_token",
    "valid_token",
    "eos_token",
    "token_type",
    "cache_key",
    "primary_key",
    "prompt_cache_key",
    "author",
    "authorization_url",
    "password_policy",
    "secretary",
    "secrets",
    "assertions",
    "access_key_id",
    "",
]


OPAQUE = b"Xk29-0123456789abcdef"


@pytest.mark.parametrize("name", HIDING)
def test_under_a_name_of_this_kind_any_value_of_a_request_is_a_secret(name: str) -> None:
    assert is_secret_field(name, b"anything", is_field=True)
    assert not is_secret_field(name, b"anything", is_field=False)
    assert is_secret_field(name, OPAQUE, is_field=False)


@pytest.mark.parametrize("name", OPAQUE_ONLY)
def test_under_a_name_that_means_other_things_too_only_an_opaque_value_is_one(name: str) -> None:
    for is_field in (False, True):
        assert not is_secret_field(name, b"a-word-or-two", is_field=is_field)
        assert is_secret_field(name, OPAQUE, is_field=is_field)


@pytest.mark.parametrize("name", TELLING_NOTHING)
def test_a_name_of_another_kind_hides_nothing(name: str) -> None:
    for is_field in (False, True):
        assert not is_secret_field(name, OPAQUE, is_field=is_field)


@pytest.mark.parametrize("name", ["token", "key"])
def test_a_token_or_key_is_a_secret_only_beside_fields_that_say_so(name: str) -> None:
    assert is_secret_field(name, OPAQUE, is_field=False, beside=True)
    assert not is_secret_field(name, b"a-word-or-two", is_field=True, beside=True)


@pytest.mark.parametrize("name", [name for name in [*HIDING, *OPAQUE_ONLY] if "[" not in name])
@pytest.mark.parametrize("written", ['{{"{}": ""}}', '"{{\\"{}\\" : 1}}"', "<{}>x</a>"])
def test_every_such_name_is_a_candidate_wherever_it_stands(name: str, written: str) -> None:
    assert re2.search(secret_names.NAME_CANDIDATE, written.format(name))


@pytest.mark.parametrize(
    "value",
    [
        b"is not valid",
        b"required",
        b"is_required",
        b"must_have_at_least_8_chars",
        b"policy-of-passwords",
        b"0123456789",
        b"1234567890123456",
        b"a b 0123456789",
    ],
)
def test_in_a_response_a_word_under_such_a_name_is_left(value: bytes) -> None:
    for name in ("password", "authorization", "access_token", "client_secret"):
        assert not is_secret_field(name, value, is_field=False)


def test_in_a_response_a_scheme_before_a_key_makes_no_difference() -> None:
    assert is_secret_field("authorization", b"Bearer 0123456789abcdef", is_field=False)
    assert is_secret_field("access_token", b"Bearer 0123456789abcdef", is_field=False)


@pytest.mark.parametrize(
    "value", [b"Approved for 12 visits", b"not required", b"of the user, see there"]
)
def test_a_text_about_an_authorization_is_no_login(value: bytes) -> None:
    assert not is_secret_field("prior_authorization", value, is_field=True)


@pytest.mark.parametrize("blanks", [b" ", b" a", b"a ", b"= "])
def test_a_login_of_many_blanks_takes_time_linear_in_their_number(blanks: bytes) -> None:
    for value in (blanks * 500_000, blanks * 500_000 + b"x", b"x" + blanks * 500_000):
        is_secret_field("authorization", value, is_field=True)


@pytest.mark.parametrize("name", ["assertion", "secret", "pass", "pwd"])
def test_a_sentence_or_a_path_under_a_word_that_prose_has_too_is_left(name: str) -> None:
    assert not is_secret_field(name, b"The butler did it", is_field=True)
    assert not is_secret_field(name, b"/home/me", is_field=True)
    assert is_secret_field(name, b"PHNhbWw+", is_field=True)


def test_a_candidate_is_no_plain_field() -> None:
    body = '{"max_tokens": 5, "token": "a", "key": "b", "content": "the api key: password"}'

    assert re2.search(secret_names.NAME_CANDIDATE, body) is None
    assert re.search(r"password", body)
