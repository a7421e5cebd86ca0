"""Names that say that their value is a secret."""

import re

import pytest
import re2  # type: ignore[import-untyped]

from tapeway.core.redaction import secret_names
from tapeway.core.redaction.secret_names import is_secret_field, name_kind

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
    "password_confirmation",
    "passwordConfirm",
]
TELLING_NOTHING = [
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


@pytest.mark.parametrize("name", HIDING)
def test_a_name_of_this_kind_hides_its_value(name: str) -> None:
    assert is_secret_field(name, b"anything", in_response=False)
    assert is_secret_field(name, b"Xk29-0123456789abcdef", in_response=True)


@pytest.mark.parametrize("name", TELLING_NOTHING)
def test_a_name_of_another_kind_hides_nothing(name: str) -> None:
    for in_response in (False, True):
        assert not is_secret_field(name, b"Xk29-0123456789abcdef", in_response=in_response)


@pytest.mark.parametrize("name", [name for name in HIDING if "[" not in name])
@pytest.mark.parametrize("written", ['{{"{}": ""}}', '"{{\\"{}\\" : 1}}"', "<{}>x</a>"])
def test_every_such_name_is_a_candidate_wherever_it_stands(name: str, written: str) -> None:
    assert re2.search(secret_names.NAME_CANDIDATE, written.format(name))


@pytest.mark.parametrize("name", sorted(secret_names.ISSUED))
def test_what_a_service_issues_is_hidden_in_a_response_however_it_looks(name: str) -> None:
    assert is_secret_field(name, b"short", in_response=True)
    assert name_kind(name) == "issued"


@pytest.mark.parametrize(
    "value",
    [b"is not valid", b"required", b"policy-of-passwords", b"0123456789", b"a b 0123456789"],
)
def test_in_a_response_a_word_under_another_name_is_left(value: bytes) -> None:
    assert not is_secret_field("password", value, in_response=True)
    assert not is_secret_field("authorization", value, in_response=True)


def test_in_a_response_a_scheme_before_a_key_makes_no_difference() -> None:
    assert is_secret_field("authorization", b"Bearer 0123456789abcdef", in_response=True)


@pytest.mark.parametrize(
    "value", [b"Approved for 12 visits", b"not required", b"of the user, see there"]
)
def test_a_text_about_an_authorization_is_no_login(value: bytes) -> None:
    assert not is_secret_field("prior_authorization", value, in_response=False)


def test_a_text_about_a_token_is_no_token_that_is_issued() -> None:
    assert not is_secret_field("access_token", b"Your access token", in_response=True)
    assert is_secret_field("access_token", b"Bearer 0123456789abcdef", in_response=True)


@pytest.mark.parametrize("name", ["assertion", "secret"])
def test_a_sentence_under_a_word_that_prose_has_too_is_left(name: str) -> None:
    assert not is_secret_field(name, b"The butler did it", in_response=False)
    assert is_secret_field(name, b"PHNhbWw+", in_response=False)


def test_a_candidate_is_no_plain_field() -> None:
    body = '{"max_tokens": 5, "token": "a", "key": "b", "content": "the api key: password"}'

    assert re2.search(secret_names.NAME_CANDIDATE, body) is None
    assert re.search(r"password", body)
