import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.redaction.credentials import environment_credentials

VALUE = "synthetic-value-0123456789"


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
    assert environment_credentials({"MY_TOKEN": " twelve-chars\n"}) == (
        ("MY_TOKEN", "twelve-chars"),
    )


def test_the_password_in_a_url_is_one_as_written_and_as_meant() -> None:
    found = environment_credentials({"DATABASE_URL": "postgresql://me:p%40ss-word-123@db:5432/x"})

    assert found == (("DATABASE_URL", "p%40ss-word-123"), ("DATABASE_URL", "p@ss-word-123"))


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
