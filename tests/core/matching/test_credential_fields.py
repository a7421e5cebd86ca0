"""Fields that have the name of a key, token or client secret."""

import json

import pytest

from tapeway.core.matching.credential_fields import may_have_credential_fields, role_of
from tapeway.core.model.messages import Request
from tapeway.core.redaction.secret_names import AMBIGUOUS_NAMES, QUERY_NAMES

VALUE = "4f6b2c9d8e1a7350"
NAMES = ["api_key", "apiKey", "X-Api-Key", "client_secret", "hf_token", "secret", "authorization"]


@pytest.mark.parametrize(
    "name",
    [name for name in sorted(QUERY_NAMES | AMBIGUOUS_NAMES) if role_of(name, parameter=True)],
)
def test_the_quick_search_sees_every_credential_parameter(name: str) -> None:
    assert may_have_credential_fields(Request("r", "GET", f"/x?a=b&{name}={VALUE}", (), b""))


@pytest.mark.parametrize("name", NAMES)
def test_the_quick_search_sees_a_credential_member(name: str) -> None:
    headers = ((b"content-type", b"application/json"),)
    body = json.dumps({name: VALUE}).encode()

    assert role_of(name) == "credential"
    assert may_have_credential_fields(Request("r", "POST", "/x", headers, body))


def test_the_quick_search_sees_none_where_there_is_none() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "a word"}]}'

    assert not may_have_credential_fields(Request("r", "POST", "/x?page=2", (), body))


@pytest.mark.parametrize("name", ["password", "passcode", "pwd", "otp_code", "user_password"])
def test_what_a_user_knows_counts(name: str) -> None:
    assert role_of(name) == ""
    assert role_of(name, parameter=True) == ""
