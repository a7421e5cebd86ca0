"""Secrets recognised by their pattern or in URLs, and what only looks a little like one."""

import base64
import json
import random
import sysconfig
from pathlib import Path
from urllib.parse import quote

import pytest

from tapeway.core.redaction import patterns
from tapeway.core.redaction.assignments import find_assigned
from tapeway.core.redaction.patterns import find_url_credentials
from tapeway.core.redaction.spans import PLACEHOLDER
from tests.core.redaction.example_messages import make_request, make_response, redactor
from tests.core.redaction.key_kinds import KEYS

PEM = (
    "-----BEGIN {0}PRIVATE KEY-----\n"
    + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 3
    + "-----END {0}PRIVATE KEY-----"
)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
SECRETS = {
    "sk-proj-" + "Ab3_-xYz" * 12: "openai-key",
    "sk-svcacct-" + "Ab3_-xYz" * 4: "openai-key",
    "sk-admin-" + "Ab3_-xYz" * 4: "openai-key",
    "sk-ant-api03-" + "Ab3_-xYz" * 11 + "AA": "anthropic-key",
    "sk-ant-oat01-" + "Ab3_-xYz" * 11: "anthropic-key",
    "sk-or-v1-" + "0123456789abcdef" * 4: "sk-key",
    "sk-" + "T3BlbkFJ" * 6: "sk-key",
    "sk-" + "0123456789abcdef" * 2: "sk-key",
    "sk_live_" + "51Habcdefghijklmnop": "stripe-key",
    "rk_test_" + "51Habcdefghijklmnop": "stripe-key",
    "AIza" + "SyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY": "google-key",
    "ya29." + "a0AfH6SMB-x_y" * 4: "google-token",
    "GOCSPX-" + "Ab3_-xYzAb3_-xYzAb3_-xYzAb3_": "google-secret",
    "gsk_" + "Ab3xYz9k" * 6: "provider-key",
    "ek_" + "68a1b2c3" * 4: "provider-key",
    "hf_" + "AbCdEfGhIjKlMnOpQrStUvWx12": "provider-key",
    "r8_" + "Ab3xYz9k" * 4: "provider-key",
    "xai-" + "Ab3xYz9k" * 10: "provider-key",
    "pplx-" + "0123456789abcdef" * 3: "provider-key",
    "AKIAIOSFODNN7QWERTZY": "aws-key-id",
    "ASIAIOSFODNN7QWERTZY": "aws-key-id",
    "ghp_" + "Ab3xYz9k" * 4 + "1234": "github-token",
    "gho_" + "Ab3xYz9k" * 4 + "1234": "github-token",
    "ghs_" + "Ab3xYz9k" * 4 + "1234": "github-token",
    "github_pat_" + "11ABCDEFG0_" * 6: "github-token",
    "xoxb-" + "123456789012-1234567890123-AbCdEfGh": "slack-token",
    "xoxp-" + "123456789012-1234567890123-AbCdEfGh": "slack-token",
    "SG." + "Ab3xYz9kAb3xYz9kAb3xYz" + "." + "Ab3xYz9k" * 5: "sendgrid-key",
    JWT: "jwt",
    PEM.format(""): "private-key",
    PEM.format("RSA "): "private-key",
    PEM.format("OPENSSH "): "private-key",
}
PLACES = {
    "alone": "{}",
    "in JSON": '{{"a": "{}"}}',
    "behind a scheme": "Authorization: Bearer {}\r\n",
    "in a query": "/x?a={}&b=1",
    "in a path": "/bot/{}/send",
    "behind a line's end in JSON": '"use\\n{}\\nor"',
    "behind an escaped quote": '"say \\"{}\\" twice"',
    "behind a percent-encoded sign": "a%3D{}%26b",
    "behind a JSON escape": '"\\u003e{}\\u003c"',
    "in a sentence": "my key is {}, keep it",
    "in an assignment": "OPENAI_API_KEY='{}'",
}
SIGNED = (
    "https://files.example.com/a.png?se=2026-01-01T00%3A00%3A00Z&sp=r"
    "&sig=Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D&sv=2024-08-04"
)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secret", SECRETS, ids=[f"{text[:12]!r}" for text in SECRETS])
def test_a_secret_is_found_whole_wherever_it_stands(secret: str, place: str) -> None:
    written = json.dumps(secret)[1:-1] if "JSON" in place else secret
    text = PLACES[place].format(written).encode()
    [span] = patterns.find_patterns(text)

    assert text[span.start : span.end].decode() == written
    assert span.secret is not None
    assert span.secret.label == SECRETS[secret]


PARTS = {
    "Slack webhook": "slack-webhook",
    "Discord webhook": "discord-webhook",
    "Discord webhook, short id": "discord-webhook",
    "Teams webhook": "teams-webhook",
    "Stripe intent": "stripe-secret",
}
"""Of these only a part is the secret: the rest says which channel or payment it is of."""


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("place", ["in a sentence", "in JSON", "behind an escaped quote"])
def test_a_key_of_each_kind_is_found_in_a_prompt(kind: str, place: str) -> None:
    key = json.dumps(KEYS[kind])[1:-1]
    text = PLACES[place].format(key).encode()
    [span] = patterns.find_patterns(text)
    found = text[span.start : span.end].decode()

    assert span.secret is not None
    if kind in PARTS:
        assert span.secret.label == PARTS[kind]
        assert found in key
        assert len(found) >= 20
    else:
        assert found == key


def test_letters_that_look_like_words_are_a_key_where_their_number_says_so() -> None:
    letters = "internationalizationofeverything"

    assert not list(patterns.find_patterns(f"hf_{letters}".encode()))
    assert len(list(patterns.find_patterns(f"hf_{letters}ab".encode()))) == 1


def test_there_are_a_hundred_and_fifty_kinds_and_more() -> None:
    assert len(KEYS) >= 150
    assert len(set(KEYS.values())) == len(KEYS)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("/bot123456789:AAbCdEfGhIjKlMnOpQrStUvWxYz0123456789/sendMessage", "/bot{}/sendMessage"),
        ("/bot123456789%3AAAbCdEfGhIjKlMnOpQrStUvWxYz0123456/getMe", "/bot{}/getMe"),
        ("/services/T01234567/B01234567/4f6b2c9d8e1a7350Xq4f6b2c", "/services/T01234567/B01234567/{}"),
        ("/api/webhooks/123456789012345678/" + "4f6b2c9d8e1a7350" * 4, "/api/webhooks/123456789012345678/{}"),
        ("/api/webhooks/123456789012345678/messages", "/api/webhooks/123456789012345678/messages"),
        ("/services/list/of/everything", "/services/list/of/everything"),
    ],
)  # fmt: skip
def test_a_key_in_a_path_is_replaced_by_a_placeholder_of_its_form(
    target: str, expected: str
) -> None:
    stored = redactor().target(target)

    assert PLACEHOLDER.sub(b"{}", stored.encode()).decode() == expected
    labels = [text.split(b".")[1] for text in PLACEHOLDER.findall(stored.encode())]
    assert labels in ([], [b"telegram-token"], [b"slack-webhook"], [b"discord-webhook"])


NONE = [
    "AKIAIOSFODNN7EXAMPLE",
    "sk-proj-xxxxxxxxxxxxxxxxxxxxxxxx",
    "ghp_your_token_0123456789abcdef",
    "gsk_00000000000000000000000000000000",
    "toolu_01A09q90qw90lq917835lq9",
    "call_ISSgvhB7J5H4yQ0CzvZ3wXkA",
    "resp_68a1b2c3d4e5f6a7b8c9d0e1f2a3b4c5d6e7f8",
    "msg_0123456789abcdef0123456789abcdef",
    "chatcmpl-BRn2sk1aIzaSyD9tSrke72PouQMnM",
    "file-Ab3xYz9kAb3xYz9kAb3xYz9k",
    "req_011CQ0123456789abcdefghij",
    "gAAAAABm0123456789abcdefghijklmnopqrstuvwxyz==",
    "task-management-for-everyone-and-2-more-people",
    "desk-1234567890abcdef1234567890",
    "sk-learn-based-classification-of-everything",
    "sk-SK and cs-CZ",
    "risk-assessment-0123456789abcdef",
    "week_2026010112345678901234567",
    "hf_transformers_configuration_of_models",
    "ek_",
    "gsk_short1",
    "xai-explanations-of-everything-you-ask-for",
    "AIzaShort",
    "AKIA",
    "TAKIAIOSFODNN7QWERTZYS",
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9",
    "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.and.more",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN CERTIFICATE-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END CERTIFICATE-----",
    "xoxb-is-what-slack-tokens-begin-with",
    "REDACTED.authorization.0a1b2c3d",
    "550e8400-e29b-41d4-a716-446655440000",
    "ak_47_and_other_names_of_things",
    "as-needed-basis-for-all-employees",
    "as-internationalizations",
    "bu_sales_and_marketing_department_2026_report",
    "key_performance_indicators_for_everything_else",
    "key_0123456789abcdef0123456789abcdef",
    "secret_manager_client_of_everything.internationalization",
    "sk_learn_pipeline_configuration_of_everything_here",
    "luma-dream-machine-ray-2-flash-720p-api-version",
    "llx-parse-premium-mode-of-documents-v2",
    "napi_register_module_constructor_v8",
    "tpuf_namespace_of_the_documents_v2",
    "vcp_configuration_of_everything",
    "cfk_internationalization_of_names",
    "d41d8cd98f00b204e9800998ecf8427e.bundle",
    "d41d8cd98f00b204e9800998ecf8427e.internationalize",
    "d41d8cd98f00b204e9800998ecf8427e.d41d8cd98f00b204",
    "internationalizationandlocalizationofeverythingthere",
    "0a6tvl3zb2q8w7r5y4u1i9o0p2s3d4f5g6h7j8k9l1z2x3c4v5b6",
    "eyJhbGciOiJkaXIifQ.a.b.c.d",
    "webhooks/12345/messages",
    "bce-v3/ALTAK-documentation",
]


@pytest.mark.parametrize("text", NONE)
def test_what_only_looks_like_a_secret_is_none(text: str) -> None:
    for place in PLACES.values():
        assert list(patterns.find_patterns(place.format(text).encode())) == []


def test_the_sources_of_python_hold_no_key() -> None:
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    texts = [source.read_bytes() for source in sources]

    assert sum(map(len, texts)) > 3_000_000
    assert [
        text[span.start : span.end] for text in texts for span in patterns.find_patterns(text)
    ] == []


def test_pictures_and_embeddings_hold_no_secret() -> None:
    picture = random.Random(1).randbytes(2_000_000)

    for coded in (base64.b64encode(picture), base64.urlsafe_b64encode(picture), picture):
        assert list(patterns.find_patterns(coded)) == []


def test_a_key_in_base64_that_begins_like_one_of_amazon_is_no_key() -> None:
    for coded in (b"xAKIAIOSFODNN7QWERTZY", b"AKIAIOSFODNN7QWERTZYx"):
        assert list(patterns.find_patterns(coded)) == []


def test_several_are_found_in_a_row() -> None:
    text = " ".join(SECRETS).encode()

    assert [
        text[pattern.start : pattern.end].decode() for pattern in patterns.find_patterns(text)
    ] == list(SECRETS)


def test_a_private_key_in_a_form_is_found() -> None:
    text = f"key={quote(PEM.format('RSA '), safe='')}&x=1".encode()
    [span] = patterns.find_patterns(text)

    assert text[span.end :] == b"&x=1"


def test_a_private_key_that_is_cut_short_is_found_as_far_as_it_goes() -> None:
    text = json.dumps({"k": PEM.format("")[:100], "x": "-----END PRIVATE KEY-----"}).encode()
    [span] = patterns.find_patterns(text)

    assert text[span.end :].startswith(b'"')


def test_a_placeholder_next_to_a_pattern_is_no_part_of_it() -> None:
    token = b"sk-proj-0123456789abcdef"
    [span] = patterns.find_patterns(token + b"REDACTED.x.0a1b2c3d")

    assert span.end == len(token)
    assert list(patterns.find_patterns(b"sk-proj-0123REDACTED.x.0a1b2c3d")) == []


def test_nothing_before_the_start_is_found_but_it_tells_where_words_begin() -> None:
    token = b"AKIAIOSFODNN7QWERTZY"

    assert list(patterns.find_patterns(b"a" + token, 1)) == []
    assert [span.start for span in patterns.find_patterns(b" " + token, 1)] == [1]
    assert list(patterns.find_patterns(token, 1)) == []


@pytest.mark.parametrize(
    "text",
    [
        *(b"sk-", b" eyJaaaaaaaaaa.x", b"eyJ", b"\n-----BEGIN PRIVATE KEY-----", b"xox", b"SG."),
        *(b"JQQJ9", b" 8Q~aaaaaaaaaaaaaaaa", b".atlasv1.", b" 1/1234567890/", b" 123456789:a"),
        *(b"services\\\\/T0123456789\\\\/", b"webhooks/", b" pi_aaaaaaaa_secret_", b" MTAx."),
    ],
)
def test_looking_for_patterns_takes_no_more_than_time_linear_in_the_length(text: bytes) -> None:
    assert list(patterns.find_patterns(text * 40_000)) == []


def found(text: str) -> list[tuple[str, str]]:
    """Label and text of each credential as it stands there."""
    data = text.encode()
    return [
        (credential.secret.label, data[credential.start : credential.end].decode())
        for credential in find_url_credentials(data, 0)
        if credential.secret
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SIGNED, [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D")]),
        (json.dumps(SIGNED).replace("&", r"\u0026"), [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D")]),
        (SIGNED.replace("&", "&amp;"), [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D")]),
        (f"![it]({SIGNED}&X-Amz-Signature={'0f' * 32})", [("sig", "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D"), ("x-amz-signature", "0f" * 32)]),
        ("GET https://a/?API_KEY=0123456789abcdef HTTP/1.1", [("api_key", "0123456789abcdef")]),
        ("(https://a/?access_token=0123456789abcdef)", [("access_token", "0123456789abcdef")]),
        ("postgresql://me:c0rrect-horse@db:5432/x", [("userinfo", "c0rrect-horse")]),
        ("https://:c0rrect-horse@db", [("userinfo", "c0rrect-horse")]),
        ("postgresql://me:hunter@db/x", [("userinfo", "hunter")]),
        ("postgresql://me:p@ss-word@db/x", [("userinfo", "p@ss-word")]),
        ("redis://:7@cache:6379", [("userinfo", "7")]),
        ("postgresql://user:password@localhost:5432/db", []),
        ("postgresql://postgres:postgres@localhost:5432/db", []),
        ("postgresql://me:$PGPASSWORD@db, postgresql://me:<password>@db, a://b:{c}@d", []),
        ("postgresql://me:DB_PASSWORD@db, postgresql://me:your-password@db", []),
        ("http://localhost:8080/a@b0123456789012345", []),
        ("https://a/?api_key=YOUR_API_KEY_GOES_HERE", []),
        ("https://a/?signature=REDACTED.signature.0a1b2c3d", []),
        ("https://a/?page_token=0123456789abcdef&key=0123456789abcdef", []),
        ("the sig=0123456789abcdef", []),
    ],
)  # fmt: skip
def test_what_looks_like_a_key_in_such_a_place_is_one(
    text: str, expected: list[tuple[str, str]]
) -> None:
    assert found(text) == expected


def test_a_signed_link_is_stored_without_its_signature_and_sent_back_equal() -> None:
    response = json.dumps({"data": [{"url": SIGNED}]}).encode()
    stored = redactor().response(make_response(response)).body
    link = json.loads(stored)["data"][0]["url"]

    assert PLACEHOLDER.sub(b"*", link.encode()).decode() == SIGNED.replace(
        "Zm9vYmFyMDEyMzQ1Njc4OQ%2Bx%3D", "*"
    )
    recorded, replayed = [
        redactor().request(make_request(body=json.dumps({"image_url": url}).encode())).body
        for url in (SIGNED, link)
    ]
    assert recorded == replayed


OPAQUE = "4f6b2c9d8e1a7350Xq"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f'api_key = "{OPAQUE}"', [("api_key", OPAQUE)]),
        (f"export HF_TOKEN={OPAQUE}\n", [("hf_token", OPAQUE)]),
        (f'curl -H "Authorization: Bearer {OPAQUE}" x', [("authorization", OPAQUE)]),
        (json.dumps(f'-H "X-Api-Key: {OPAQUE}"'), [("x-api-key", OPAQUE)]),
        (f'{{"env": ["WANDB_TOKEN={OPAQUE}", "A=b"]}}', [("wandb_token", OPAQUE)]),
        (f"the api key: {OPAQUE}.", [("api key", OPAQUE)]),
        (json.dumps(f"[db]\npassword = {OPAQUE}"), [("password", OPAQUE)]),
        (json.dumps(json.dumps(f"a: 1\r\napi_key: {OPAQUE}")), [("api_key", OPAQUE)]),
        ("Server=db;Password=hunter2;User Id=x", [("password", "hunter2")]),
        ("Server=db;Pwd=hunter2", [("pwd", "hunter2")]),
        ("AccountName=me;AccountKey=abc/def+0123456789abcdefXYZ==;X=", [("accountkey", "abc/def+0123456789abcdefXYZ==")]),
        ("curl -u admin:hunter2 https://x", [("login", "hunter2")]),
        (json.dumps('curl --user "me:s3cret" x'), [("login", "s3cret")]),
        ('api_key=os.environ["OPENAI_API_KEY"]', []),
        ("auth = base64.b64encode(user_pass); auth_token = base64.b64encode(x).decode()", []),
        ("credentials = standard_b64encode(\n    user, None)", []),
        ("password = request.form.get_password_field; x", []),
        ("Password=required; Password=12;", []),
        ("docker run -u 1000:1001 x, curl -u user:password x, curl -u root:root x", []),
        (f"page_token={OPAQUE}, token={OPAQUE}, key={OPAQUE}", []),
        ('client = OpenAI(api_key="YOUR_API_KEY"); authorization: required', []),
        ("password=REDACTED.password.abcdefgh;", []),
    ],
)  # fmt: skip
def test_what_prose_and_code_assign_to_the_name_of_a_secret_is_one(
    text: str, expected: list[tuple[str, str]]
) -> None:
    data = text.encode()
    spans = list(find_assigned(data, 0))

    assert [
        (span.secret.label, data[span.start : span.end].decode()) for span in spans if span.secret
    ] == expected
    if expected:
        assert patterns.secret_prefilter(()).search(data)


@pytest.mark.parametrize(
    "text",
    [
        *("password=", "password = ", "api_key:'", " -u a:", "password" + " " * 9, "=aaaaaaa"),
        *("password: ", 'name="password" ', "password: a=b;", " -p aaaaaaaaaaaa", "password {a"),
        *("api_key --a b ", "password</a>", "password\\n", 'auth("a",', "=password,a"),
    ],
)
def test_looking_for_assignments_takes_no_more_than_time_linear_in_the_length(text: str) -> None:
    assert list(find_assigned(text.encode() * 40_000, 0)) == []


@pytest.mark.parametrize("text", ["?sig=", "&sig=", "a://:", "a://:0", "&amp;"])
def test_looking_for_urls_takes_no_more_than_time_linear_in_the_length(text: str) -> None:
    assert found(text * 100_000) == []
