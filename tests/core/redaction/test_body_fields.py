"""Secrets by the names of their fields, in every kind of body."""

import json

import pytest

from tapeway.core.redaction import body_fields
from tapeway.core.redaction.secret_names import AMBIGUOUS_NAMES
from tests.support.thoroughness import step

KEY = "K3y/0123456789+abc="
JSON = b"application/json"


def found(
    body: str | bytes, content_type: bytes = JSON, *, in_response: bool = False
) -> list[tuple[str, str]]:
    """Label and text of each secret as it stands in the body."""
    text = body.encode() if isinstance(body, str) else body
    spans = body_fields.find(text, content_type, in_response=in_response)
    return [
        (span.secret.label, text[span.start : span.end].decode()) for span in spans if span.secret
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"api_key": KEY}, [("api_key", KEY)]),
        ({"a": [{"b": {"password": KEY}}]}, [("password", KEY)]),
        ({"password": "abc"}, [("short-password", "abc")]),
        ({"password": 123456}, [("short-password", "123456")]),
        ({"password": -1.5e7}, [("short-password", "-15000000.0")]),
        ({"password": ""}, []),
        ({"password": None}, []),
        ({"password": True}, []),
        ({"password": {"type": "string", "description": "of the user"}}, []),
        ({"password": ["first-of-two", "second-of-two"]}, [("password", "first-of-two"), ("password", "second-of-two")]),
        ({"password": [{"type": "string"}]}, []),
        ({"api_key": "REDACTED.api_key.0a1b2c3d"}, []),
        ({"client_secret": {"value": KEY, "expires_at": 1}}, [("client_secret", KEY)]),
        ({"client_secret": {"expires_at": 1, "value": KEY}}, [("client_secret", KEY)]),
        ({"properties": {"password": {"type": "string"}}, "required": ["password"]}, []),
        ({"mcp_servers": [{"type": "url", "authorization_token": KEY}]}, [("authorization_token", KEY)]),
        ({"tools": [{"type": "mcp", "authorization": KEY}]}, [("authorization", KEY)]),
        ({"tools": [{"headers": {"Authorization": f"Bearer {KEY}", "X-Api-Key": KEY}}]}, [("authorization", f"Bearer {KEY}"), ("x-api-key", KEY)]),
        ({"logprobs": [{"token": "sk", "logprob": -1.5}], "key": "value-of-a-pair"}, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_strings_and_numbers_under_such_a_name_are_secrets(
    body: object, expected: list[tuple[str, str]], indent: int | None
) -> None:
    assert found(json.dumps(body, indent=indent)) == expected


STRIPE = "pi_3MtwBwLkdIwHu7ix28a3tqPa_secret_YrKJUKribcBjcG8HVhfZluoGH"


def test_the_id_before_a_secret_of_stripes_stays() -> None:
    secret = STRIPE.rpartition("_")[2]

    assert found(json.dumps({"client_secret": STRIPE}), in_response=True) == [
        ("client_secret", secret)
    ]
    assert found(f"a=1&client_secret={STRIPE}", FORM) == [("client_secret", secret)]
    hidden = STRIPE.replace(secret, "REDACTED.client_secret.abcdefgh")
    assert found(json.dumps({"client_secret": hidden})) == []
    assert found(f"client_secret={hidden}", FORM) == []


@pytest.mark.parametrize("depth", range(4))
@pytest.mark.parametrize(
    "value",
    [
        'a"quoted"back\\slash,an-ü,and4f6b2c9d8e',
        "4f6b2c9d8e-ends-in-it\\",
        '4f6b2c9d8e-or-in-a-"',
        '\\"\\\\""4f6b2c9d8e',
    ],
)
def test_a_string_that_is_json_itself_is_looked_into(value: str, depth: int) -> None:
    body: object = {"password": value, "behind": 1}
    for _ in range(depth):
        body = {"text": json.dumps(body)}
    text = json.dumps(body).encode()
    [span] = body_fields.find(text, JSON, in_response=False)

    assert span.secret is not None
    assert span.secret.value == value.encode()
    redacted = json.loads(text[: span.start] + b"X" + text[span.end :])
    for _ in range(depth):
        redacted = json.loads(redacted["text"])
    assert redacted == {"password": "X", "behind": 1}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ('{"password": "cut in the mid', "cut in the mid"),
        ('{"password": "cut\\', "cut\\"),
        ('{"text": "{\\"password\\": \\"4f6b2c9d8e1a3b"}', "4f6b2c9d8e1a3b"),
    ],
)
def test_a_value_that_is_cut_short_is_a_secret_all_the_same(body: str, expected: str) -> None:
    assert [text for _, text in found(body)] == [expected]


@pytest.mark.parametrize("body", ['password":', '"password', '"password":'])
def test_what_is_no_field_of_json_has_no_value(body: str) -> None:
    assert found(body) == []


def test_events_and_lines_are_json_too() -> None:
    line = json.dumps({"access_token": KEY})

    assert (
        found(f"event: x\r\ndata: {line}\r\n\r\ndata: {line}\r\n\r\n")
        == [("access_token", KEY)] * 2
    )
    assert found(f"{line}\n{line}\n", b"text/plain") == [("access_token", KEY)] * 2


FORM = b"application/x-www-form-urlencoded; charset=utf-8"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("a=1&client_secret=K3y%2F0123456789%3D&b=2", [("client_secret", "K3y%2F0123456789%3D")]),
        ("client%5Fsecret=abc", [("short-client_secret", "abc")]),
        ("grant_type=x&assertion=eyJ.0123456789&RoleArn=arn:aws:x", [("assertion", "eyJ.0123456789")]),
        ("grant_type=authorization_code&code=4%2F0123456789ab&code_verifier=0123456789ab", [("code", "4%2F0123456789ab"), ("code_verifier", "0123456789ab")]),
        ("token=0123456789abc&token_type_hint=refresh_token", [("token", "0123456789abc")]),
        ("code=print(1)&token=hello", []),
        ("password=", []),
        ("password", []),
        ("password=REDACTED.password.0a1b2c3d", []),
    ],
)  # fmt: skip
def test_a_form_is_read_by_its_pairs(body: str, expected: list[tuple[str, str]]) -> None:
    assert found(body, FORM) == expected


@pytest.mark.parametrize("around", [b"\xff\x00" * 500, "größe".encode(), b"a=1&" * 11_000])
def test_a_body_that_is_no_form_but_is_called_one_is_searched_by_its_pairs(around: bytes) -> None:
    body = around + b"&api_key=" + KEY.encode() + b"&" + around
    spans = body_fields.find(body, b"application/x-www-form-urlencoded", in_response=False)

    assert [body[span.start : span.end] for span in spans] == [KEY.encode()]


def test_a_response_may_be_a_form() -> None:
    body = "access_token=gho_16C7e42F292c6912E7&scope=repo&token_type=bearer"

    assert found(body, FORM, in_response=True) == [("access_token", "gho_16C7e42F292c6912E7")]


def multipart(*parts: tuple[str, str], closed: bool = True) -> str:
    text = "".join([f"--b\r\n{head}\r\n\r\n{content}\r\n" for head, content in parts])
    return text + ("--b--\r\n" if closed else "")


PARTS = b'multipart/form-data; boundary="b"'


@pytest.mark.parametrize("closed", [False, True])
def test_parts_have_names_and_may_be_json(closed: bool) -> None:
    body = multipart(
        ('Content-Disposition: form-data; name="note"', "password"),
        ('Content-Disposition: form-data; name="api_key"', KEY),
        ("content-disposition: form-data; name=password", "abc"),
        ('X: y\r\nContent-Disposition: form-data; filename="k.pem"; name="private_key"', "A\r\nB"),
        ('Content-Disposition: form-data; name="d"', json.dumps({"client_secret": KEY})),
        closed=closed,
    )

    assert sorted(found(body, PARTS)) == [
        ("api_key", KEY),
        ("client_secret", KEY),
        ("short-password", "abc"),
        ("short-private_key", "A\r\nB"),
    ]


def test_a_multipart_body_that_is_none_is_text() -> None:
    assert found(f'{{"api_key": "{KEY}"}}', PARTS) == [("api_key", KEY)]
    assert found(f'{{"api_key": "{KEY}"}}', b"multipart/mixed") == [("api_key", KEY)]


def test_the_response_of_a_token_service_in_xml_is_read() -> None:
    body = (
        "<Credentials><AccessKeyId>ASIAIOSFODNN7QWERTZY</AccessKeyId>"
        f"<SecretAccessKey>{KEY}</SecretAccessKey><a:SessionToken>T0k{KEY}</a:SessionToken>"
        "<SecretAccessKey></SecretAccessKey></Credentials>"
    )

    assert found(body, b"text/xml", in_response=True) == [
        ("secretaccesskey", KEY),
        ("sessiontoken", f"T0k{KEY}"),
    ]


@pytest.mark.parametrize(
    "code",
    [
        "run(): Promise<AccessToken> | null = null; seen: Map<string, number>",
        "private List<Password> all = new ArrayList<>(); // </Passwords>",
        "fn from(key: Option<SecretKey>, rest: Vec<u8>) -> Result<(), Error>",
        "login --user <user> --password <password> [--otp <otpcode>] <url>",
    ],
)
def test_a_type_in_brackets_is_no_element(code: str) -> None:
    assert found(json.dumps({"content": code})) == []
    assert found(json.dumps({"content": code.replace("<", "\u003c")})) == []


@pytest.mark.parametrize(
    "text", [rf"<Password>{KEY}<\/Password>", f"&lt;a:Password&gt;{KEY}&lt;/a:Password&gt;"]
)
def test_an_element_may_be_escaped(text: str) -> None:
    assert found(f'{{"content": "{text}"}}') == [("password", KEY)]


@pytest.mark.parametrize(
    "body",
    [
        {"authorization": "required", "password": "policy", "tokens": 12},
        {"errors": {"api_key": "is not valid", "secret": ["too short"]}},
        {"choices": [{"logprobs": {"content": [{"token": "sk-0123456789abcdef"}]}}]},
        {"usage": {"total_tokens": 1}, "next_page_token": "0123456789abcdef"},
    ],
)
def test_a_response_that_speaks_of_secrets_tells_none(body: object) -> None:
    assert found(json.dumps(body), in_response=True) == []


@pytest.mark.parametrize(
    "body",
    [
        '{"password": "' * 50_000,
        '{"password":"' + '\\"' * 500_000,
        '{"password":"' + "\\" * 1_000_001,
        "password>" * 100_000,
        "<password>" * 100_000,
        '{"password":[' + "1," * 500_000,
        '{"client_secret":{"value"' + "\\" * 1_000_000,
    ][:: step(3)],
)
def test_no_text_takes_more_than_time_linear_in_its_length(body: str) -> None:
    assert len(found(body)) <= 50_000


@pytest.mark.parametrize(
    "part",
    [
        "Content-Disposition: ;" + ' ;name="' * 100_000,
        "Content-Disposition: ;x\r\n" * 40_000,
        "Content-Disposition: form-data; " * 30_000,
    ],
)
def test_a_part_without_an_end_takes_time_linear_in_its_length(part: str) -> None:
    assert found(f"--b\r\n{part}", b"multipart/form-data; boundary=b") == []


def test_a_list_of_numbers_is_no_list_of_credentials() -> None:
    assert found('{"id_token": [1, 2, 3]}') == []


@pytest.mark.parametrize(
    "body",
    [
        r'{"api\u005fkey": "%s"}',
        r'{"\u0061pi_key": "%s"}',
        r'{"\u0061\u0070\u0069\u005F\u006b\u0065\u0079": "%s"}',
        r'{"arguments": "{\"api\\u005fkey\": \"%s\"}"}',
    ],
)
def test_a_name_is_read_with_its_escapes(body: str) -> None:
    assert found(body % KEY) == [("api_key", KEY)]


def test_json_that_is_called_a_form_is_read_as_json_too() -> None:
    assert found(json.dumps({"api_key": KEY}), FORM) == [("api_key", KEY)]


@pytest.mark.parametrize(
    "beside", ["grant_type=authorization_code", "grant_type=x&code_verifier=abcdefgh"]
)
def test_a_code_is_a_secret_in_a_form_of_oauth(beside: str) -> None:
    assert ("code", "4/0AX4XfWh-code") in found(f"code=4/0AX4XfWh-code&{beside}", FORM)
    assert found("code=4/0AX4XfWh-code&state=DE", FORM) == []


@pytest.mark.parametrize("name", sorted(AMBIGUOUS_NAMES))
def test_an_ambiguous_field_of_a_form_is_a_secret_by_the_form_of_its_value(name: str) -> None:
    key = "q7Zr2Lw9Xk4Tn8Vb3Yc6Pd1M"

    assert found(f"a=1&{name}={key}", FORM) == [(name, key)]
    assert found(f"a=1&{name}=photos/2024/the-cat-on-the-roof.png", FORM) == []
