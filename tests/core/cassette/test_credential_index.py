"""Which recording answers a request that holds credentials, redacted or in clear."""

import base64
import gzip
import html
import json
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import quote

import pytest

from tapeway.core.cassette.choice import CallsModel, Why, calls_no_model
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.json_text import Json
from tapeway.core.matching.key import request_key
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.secret_names import AMBIGUOUS_NAMES
from tests.core.redaction.credential_places import FORM, PART, PARTS, REQUESTS
from tests.core.redaction.example_messages import JSON, KEY, OTHER, SALT, make_request
from tests.support.canary import sightings

ASKED_WITH = ("dummy", "test", "", OTHER)


def cassette_of(
    *requests: Request, rules: Rules | None = None, calls_model: CallsModel = calls_no_model
) -> CassetteIndex:
    """Each request with its position as its answer."""
    meta = {} if rules is None else meta_with_rules({}, rules)
    held = [
        Interaction(at, request, Response(ResponseHead(200), b"%d" % at), stored_keys=())
        for at, request in enumerate(requests)
    ]
    stored = StoredCassette(CassetteHead("", SALT, meta), tuple(held))
    return CassetteIndex("c", stored, take=1, calls_model=calls_model)


def recorded(
    *requests: Request, known: tuple[str, ...] = (), calls_model: CallsModel = calls_no_model
) -> CassetteIndex:
    """The requests as they are stored; `known` are values of the environment."""
    redaction = RequestRedaction([Secret("env", text.encode()) for text in known])
    stored = [redaction.redact(SALT, request) for request in requests]
    return cassette_of(*stored, calls_model=calls_model)


def answer(cassette: CassetteIndex, request: Request, *, can_ask: bool = False) -> int | None:
    asked = cassette.asked(request)
    found = cassette.find(asked, (request.route,))
    if found is None:
        return None
    chosen = cassette.choose(found, cassette.take, "last", asked, can_ask=can_ask)
    return None if isinstance(chosen, Why) else chosen.index


def posted(body: Json, headers: Headers = JSON, target: str = "/v1/x") -> Request:
    return make_request(headers, target=target, body=json.dumps(body).encode())


@pytest.mark.parametrize("place", REQUESTS)
def test_the_request_that_was_recorded_hits_wherever_its_credential_is(place: str) -> None:
    assert answer(recorded(REQUESTS[place](KEY)), REQUESTS[place](KEY)) == 0


@pytest.mark.parametrize("place", REQUESTS)
def test_what_is_stored_in_clear_hits(place: str) -> None:
    assert answer(cassette_of(REQUESTS[place](KEY)), REQUESTS[place](KEY)) == 0


IN_TEXTS = ("form field in JSON", "named header of a tool", "userinfo")


@pytest.mark.parametrize("place", [place for place in REQUESTS if place not in IN_TEXTS])
def test_another_credential_hits(place: str) -> None:
    assert answer(recorded(REQUESTS[place](KEY)), REQUESTS[place](OTHER)) == 0


@pytest.mark.parametrize("place", IN_TEXTS)
def test_another_credential_in_a_text_is_another_request(place: str) -> None:
    assert answer(recorded(REQUESTS[place](KEY)), REQUESTS[place](OTHER)) is None


FIELDS: dict[str, Callable[[str], Request]] = {
    **{
        name: lambda value, name=name: make_request(target=f"/x?a=1&{name}={value}")  # type: ignore[misc]
        for name in (
            *("api_key", "access_token", "subscription-key", "code_verifier"),
            *("client_secret", "x-amz-signature"),
        )
    },
    **{
        f"JSON {name}": lambda value, name=name: posted({"q": "x", "deep": [{name: value}]})  # type: ignore[misc]
        for name in ("api_key", "client_secret", "access_token", "secret", "apiKey")
    },
    "form": lambda value: make_request(FORM, body=f"a=1&client_secret={value}".encode()),
    "assertion": lambda value: make_request(FORM, body=f"a=1&assertion={value}".encode()),
    "OAuth code": lambda value: make_request(
        FORM, body=f"grant_type=authorization_code&code={value}".encode()
    ),
    "part": lambda value: make_request(PARTS, body=PART % (b"api_key", value.encode())),
    "MCP authorization": lambda value: posted(
        {"tools": [{"type": "mcp", "server_url": "https://m", "authorization": value}]}
    ),
    "MCP headers": lambda value: posted(
        {"tools": [{"type": "mcp", "server_url": "https://m", "headers": {"Authorization": value}}]}
    ),
}
WITHOUT: dict[str, Request] = {
    "api_key": make_request(target="/x?a=1"),
    "JSON api_key": posted({"q": "x", "deep": [{}]}),
    "form": make_request(FORM, body=b"a=1"),
    "OAuth code": make_request(FORM, body=b"grant_type=authorization_code"),
    "MCP authorization": posted({"tools": [{"type": "mcp", "server_url": "https://m"}]}),
    "MCP headers": posted({"tools": [{"type": "mcp", "server_url": "https://m"}]}),
}
PLAIN_KEY = "sk-live-0123456789abcdef"


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [PLAIN_KEY, *ASKED_WITH])
def test_any_value_of_a_credential_field_hits(field: str, value: str) -> None:
    assert answer(recorded(FIELDS[field](PLAIN_KEY)), FIELDS[field](value)) == 0


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", ["dummy", "FILTERED", "DUMMY", "***", "<API_KEY_REDACTED>"])
def test_a_real_key_hits_what_was_recorded_with_a_dummy(field: str, value: str) -> None:
    assert answer(recorded(FIELDS[field](value)), FIELDS[field](PLAIN_KEY)) == 0
    assert answer(cassette_of(FIELDS[field](value)), FIELDS[field](PLAIN_KEY)) == 0


@pytest.mark.parametrize("field", WITHOUT)
def test_a_credential_field_may_be_missing_on_either_side(field: str) -> None:
    assert answer(recorded(FIELDS[field](PLAIN_KEY)), WITHOUT[field]) == 0
    assert answer(recorded(WITHOUT[field]), FIELDS[field](PLAIN_KEY)) == 0


@pytest.mark.parametrize("field", FIELDS)
def test_where_several_values_are_recorded_each_answers_for_itself(field: str) -> None:
    values = (PLAIN_KEY, "sk-live-fedcba9876543210", "dummy")
    cassette = recorded(*[FIELDS[field](value) for value in values])

    assert [answer(cassette, FIELDS[field](value)) for value in values] == [0, 1, 2]
    assert answer(cassette, FIELDS[field]("sk-other-0123456789abc")) is None


AMBIGUOUS = sorted(AMBIGUOUS_NAMES)
KEYS = ("q7Zr2Lw9Xk4Tn8Vb3Yc6Pd1M", "Vb3Yc6Pd1Mq7Zr2Lw9Xk4Tn8")
"""Values with the form of a key."""
CARRIERS: dict[str, Callable[[str, str], Request]] = {
    "query": lambda name, value: make_request(target=f"/list?a=1&{name}={value}"),
    "form": lambda name, value: make_request(FORM, body=f"a=1&{name}={value}".encode()),
    "part": lambda name, value: make_request(PARTS, body=PART % (name.encode(), value.encode())),
    "JSON beside a type": lambda name, value: posted({"x": {"type": "api_key", name: value}}),
    "JSON of a credential": lambda name, value: posted({"service_auth": {name: value}}),
}
PLACES = [
    *[(carrier, name) for carrier in CARRIERS for name in AMBIGUOUS if "JSON" not in carrier],
    *[(carrier, name) for carrier in CARRIERS for name in ("key", "token") if "JSON" in carrier],
]
DATA = (
    *("1", "home", "welcome_title", "PROJ-12", "photos/2024/the-cat-on-the-roof.png"),
    *("12345678901234567890123", "none"),
    "2026-11-26T10:11:12.000Z",
)


@pytest.mark.parametrize(("carrier", "name"), PLACES)
def test_what_an_ambiguous_field_holds_counts_unless_both_values_are_keys(
    carrier: str, name: str
) -> None:
    asked = CARRIERS[carrier]

    assert answer(recorded(asked(name, KEYS[0])), asked(name, KEYS[1])) == 0
    assert answer(cassette_of(asked(name, KEYS[0])), asked(name, KEYS[1])) == 0
    for value in DATA:
        assert answer(recorded(asked(name, value)), asked(name, KEYS[0])) is None
        assert answer(recorded(asked(name, KEYS[0])), asked(name, value)) is None
        assert answer(recorded(asked(name, value)), asked(name, value)) == 0
        assert answer(recorded(asked(name, value)), asked(name, f"{value}x")) is None


@pytest.mark.parametrize(("carrier", "name"), PLACES)
def test_where_several_keys_are_recorded_under_an_ambiguous_name_each_answers_for_itself(
    carrier: str, name: str
) -> None:
    asked = CARRIERS[carrier]
    cassette = recorded(*[asked(name, other_name) for other_name in (*KEYS, "home")])

    assert [answer(cassette, asked(name, other_name)) for other_name in (*KEYS, "home")] == [
        0,
        1,
        2,
    ]
    assert answer(cassette, asked(name, KEYS[0][::-1])) is None


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_field_has_to_be_on_both_sides(name: str) -> None:
    without, with_key = make_request(target="/list?a=1"), CARRIERS["query"](name, KEYS[0])

    assert answer(recorded(without), with_key) is None
    assert answer(recorded(with_key), without) is None


IDENTIFIERS = (
    "550e8400-e29b-41d4-a716-446655440000",
    "a/9f86d081884c7d659a2feaa0c55ad015",
    "homePage2TitleForVisitors",
)


@pytest.mark.parametrize("identifier", IDENTIFIERS)
@pytest.mark.parametrize("name", ["appid", "code", "key", "token"])
def test_an_identifier_under_an_ambiguous_name_counts(name: str, identifier: str) -> None:
    asked = CARRIERS["query"]

    assert answer(recorded(asked(name, identifier)), asked(name, identifier)) == 0
    assert answer(recorded(asked(name, identifier)), asked(name, KEYS[0])) is None


@pytest.mark.parametrize("name", ["key", "token"])
@pytest.mark.parametrize("value", [*KEYS, "Zm9vL2Jhci9iYXovcXV4"])
def test_an_ambiguous_member_that_nothing_beside_it_explains_counts(name: str, value: str) -> None:
    first = posted({name: value, "title": "x"})

    assert answer(recorded(first), first) == 0
    assert answer(recorded(first), posted({name: KEYS[1][::-1], "title": "x"})) is None


@pytest.mark.parametrize("value", ["DUMMY", "<FILTERED>", "REDACTED_KEY", "***"])
def test_a_key_hits_what_another_tool_wrote_under_an_ambiguous_name(value: str) -> None:
    cassette = cassette_of(CARRIERS["query"]("appid", value))

    assert answer(cassette, CARRIERS["query"]("appid", KEYS[0])) == 0
    assert answer(cassette, CARRIERS["query"]("appid", "440")) is None


def test_a_short_value_that_is_a_secret_elsewhere_hits_by_itself_alone() -> None:
    asked = CARRIERS["query"]
    cassette = recorded(asked("token", "q7Zr2Lw9Xk4T"), known=("q7Zr2Lw9Xk4T",))

    assert answer(cassette, asked("token", "q7Zr2Lw9Xk4T")) == 0
    assert answer(cassette, asked("token", "1")) is None


def test_the_key_of_a_provider_whose_it_is_may_be_missing() -> None:
    asked = [Request("gemini", "GET", f"/v1beta/models{query}") for query in ("", "?key=abc")]

    assert answer(recorded(asked[0]), asked[1]) == 0
    assert answer(recorded(asked[1]), asked[0]) == 0


def test_pages_stay_apart() -> None:
    pages = [make_request(target=f"/list{query}") for query in ("", "?token=b", "?token=c")]
    cassette = recorded(*pages)

    assert [answer(cassette, pages[at]) for at in (2, 0, 1)] == [2, 0, 1]
    assert answer(cassette, make_request(target="/list?token=d")) is None


PROSE = 'Translate values to German: {{"{}": "{}"}}'


@pytest.mark.parametrize("name", ["password", "api_key", "client_secret"])
def test_another_prompt_is_another_request(name: str) -> None:
    prompts = [
        PROSE.format(name, text)
        for text in ("Please enter your password now", "Your password has expired today")
    ]
    cassette = recorded(posted({"messages": [{"content": prompts[0]}]}))

    assert answer(cassette, posted({"messages": [{"content": prompts[0]}]})) == 0
    assert answer(cassette, posted({"messages": [{"content": prompts[1]}]})) is None


@pytest.mark.parametrize("name", ["password", "passwd", "pin", "otp", "new_password"])
def test_another_password_is_another_request(name: str) -> None:
    cassette = recorded(posted({"user": "a", name: "hunter22hunter22"}))

    assert answer(cassette, posted({"user": "a", name: "hunter22hunter22"})) == 0
    assert answer(cassette, posted({"user": "a", name: "hunter22hunter23"})) is None
    assert answer(cassette, posted({"user": "a"})) is None


def test_prose_under_the_name_of_a_key_counts() -> None:
    recorded_with = cassette_of(posted({"q": 1}))

    assert answer(recorded_with, posted({"q": 1, "api_key": "is a thing that one needs"})) is None


def test_the_input_of_a_tool_counts() -> None:
    def called(key: str) -> Request:
        return posted(
            {"messages": [{"type": "tool_use", "name": "login", "input": {"api_key": key}}]}
        )

    cassette = recorded(called(PLAIN_KEY))

    assert answer(cassette, called(PLAIN_KEY)) == 0
    assert answer(cassette, called("sk-live-fedcba9876543210")) is None


def test_a_schema_that_names_a_credential_counts() -> None:
    def tool(properties: Json) -> Request:
        return posted({"tools": [{"function": {"parameters": {"properties": properties}}}]})

    cassette = recorded(tool({}))

    assert answer(cassette, tool({"api_key": {"type": "string"}})) is None


def test_what_the_environment_held_while_recording_does_not_matter() -> None:
    prompt = posted({"p": "group by customer_email_address, then by customer_email_address"})
    other = posted({"p": "group by customer_name_and_phone, then by customer_email_address"})
    cassette = recorded(prompt, known=("customer_email_address",))

    assert answer(cassette, prompt) == 0
    assert answer(cassette, other) is None


@pytest.mark.parametrize(
    "header",
    [(b"x-goog-user-project", b"my-project-12345"), (b"cookie", b"m=gpt-4o-mini-2024-07-18")],
)
def test_a_header_that_was_there_only_while_recording_does_not_matter(
    header: tuple[bytes, bytes],
) -> None:
    value = header[1].rpartition(b"=")[2].decode()
    with_header = posted({"model": value}, (*JSON, header), f"/projects/{value}/x")
    without = posted({"model": value}, JSON, f"/projects/{value}/x")

    assert answer(recorded(with_header), without) == 0
    assert answer(recorded(without), with_header) == 0


def test_a_placeholder_that_a_replay_gave_out_stands_for_its_value() -> None:
    sent = posted(
        {"note": f"with {PLAIN_KEY} in it", "api_key": PLAIN_KEY}, target=f"/s/{PLAIN_KEY}"
    )
    stored = RequestRedaction([Secret("session", PLAIN_KEY.encode())]).redact(SALT, sent)

    assert answer(cassette_of(stored), sent) == 0
    assert answer(cassette_of(stored), stored) == 0


def test_the_askers_own_key_stands_for_the_recorded_one_in_a_text() -> None:
    def quoting(key: str, quoted: str) -> Request:
        return posted(
            {"note": f"use {quoted} here"}, (*JSON, (b"authorization", f"Bearer {key}".encode()))
        )

    cassette = recorded(quoting(PLAIN_KEY, PLAIN_KEY))

    assert answer(cassette, quoting("test", "test")) == 0
    assert answer(cassette, quoting("test", "other")) is None


@pytest.mark.parametrize("label", ["telegram-token", "slack-webhook", "discord-webhook"])
def test_any_key_of_a_known_form_in_a_path_hits(label: str) -> None:
    cassette = cassette_of(make_request(target=f"/botREDACTED.{label}.abcdefgh/send"))

    assert answer(cassette, make_request(target="/bot123:dummy/send")) == 0
    assert answer(cassette, make_request(target="/bot/123/send")) is None


def test_a_normaliser_is_applied_around_placeholders() -> None:
    rules = Rules(normalise=("date",))
    stored = RequestRedaction().redact(SALT, posted({"p": f"on 2026-11-22 with {PLAIN_KEY} then"}))
    cassette = cassette_of(stored, rules=rules)

    assert answer(cassette, posted({"p": f"on 2027-01-01 with {PLAIN_KEY} then"})) == 0
    assert (
        answer(cassette, posted({"p": "on 2027-01-01 with sk-live-fedcba9876543210 then"})) is None
    )


def test_a_recording_that_is_removed_is_not_found() -> None:
    cassette = recorded(FIELDS["api_key"](PLAIN_KEY))
    assert answer(cassette, FIELDS["api_key"]("dummy")) == 0
    other = FIELDS["api_key"]("dummy")
    key = request_key(other)
    one = Interaction(0, other, Response(ResponseHead(200)))
    cassette.start_take(2)
    step = cassette.make_recording(one, key, cassette.take, replaces=True)
    cassette.add(step, key, cassette.take)

    assert step.supersedes == (0,)
    assert answer(cassette, FIELDS["api_key"](PLAIN_KEY)) == step.interaction.index


# Pages that are told apart by a token.


def page(token: str) -> Request:
    return Request("r", "GET", f"/list?api_key={token}")


WITHOUT_TOKEN = Request("r", "GET", "/list")


def cassette_of_pages(*letters: str, calls_model: CallsModel = calls_no_model) -> CassetteIndex:
    return recorded(*[page(letter * 20) for letter in letters], calls_model=calls_model)


def test_one_recorded_token_answers_for_any_other_and_for_none() -> None:
    cassette = cassette_of_pages("a")

    asked = [page("b" * 20), page("dummy"), page(""), WITHOUT_TOKEN]
    assert [answer(cassette, request) for request in asked] == [0, 0, 0, 0]


def test_several_recorded_tokens_each_answer_for_themselves_and_for_no_other() -> None:
    cassette = cassette_of_pages("a", "b", "c")

    asked = [*[page(letter * 20) for letter in "abcd"], WITHOUT_TOKEN]
    assert [answer(cassette, request) for request in asked] == [0, 1, 2, None, None]


def test_within_a_take_another_token_is_asked_for_where_that_is_possible() -> None:
    cassette = cassette_of_pages("a", calls_model=lambda request: True)

    asked = [page("b" * 20), page("b" * 20), page("c" * 20), WITHOUT_TOKEN]
    assert [answer(cassette, request, can_ask=True) for request in asked] == [0, 0, None, None]


def record_page(cassette: CassetteIndex, letter: str) -> tuple[int, ...]:
    """Record it; returns what it supersedes."""
    request = RequestRedaction().redact(SALT, page(letter * 20))
    made = Interaction(0, request, Response(ResponseHead(200)))
    key = request_key(request)
    recording = cassette.make_recording(made, key, cassette.take, replaces=True)
    cassette.add(recording, key, cassette.take)
    return recording.supersedes


def test_a_recording_with_another_token_replaces_the_one_there_was_and_not_its_own_takes() -> None:
    cassette = cassette_of_pages("a")
    cassette.start_take(2)

    assert [record_page(cassette, letter) for letter in "bc"] == [(0,), ()]
    asked = [page(letter * 20) for letter in "abc"]
    assert [answer(cassette, request) for request in asked] == [None, 1, 2]


def test_recording_the_pages_again_replaces_each_page_by_itself() -> None:
    cassette = cassette_of_pages("a", "b")
    cassette.start_take(2)

    assert [record_page(cassette, letter) for letter in "ab"] == [(0,), (1,)]
    assert len(cassette) == 2


SHAPED, SHAPED_TOO = (
    "sk-proj-Qz7hT2kP9xL4vT8wR1sY6nB3cH5jD0gA7eU2iO9p",
    "sk-proj-N4bR8xW2mK6tF1yH9cS3dV7gJ5aQ0eL2zU8pT6wX",
)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CODED: dict[str, Callable[[str], Request]] = {
    "base64": lambda key: posted({"file": _base64(f"my key is {key}, keep it")}),
    "a data URL": lambda key: posted(
        {"image_url": f"data:text/plain;base64,{_base64('ü' + key)}", "detail": "low"}
    ),
    "base64 in lines": lambda key: posted(
        {"file": base64.encodebytes(f"{'words ' * 20}{key}{' words' * 20}".encode()).decode()}
    ),
    "base64 for URLs in a path": lambda key: make_request(
        target=f"/files/{base64.urlsafe_b64encode(f'>>>{key}???'.encode()).decode()}/content"
    ),
    "base64 of base64": lambda key: posted(
        {"state": _base64(json.dumps({"of": _base64(f"{key}!")}))}
    ),
    "base64 in a form": lambda key: make_request(
        FORM, body=f"a=1&file={quote(_base64(f'>>>>{key}>>>>'), safe='')}".encode()
    ),
    "percent-encoding": lambda key: make_request(
        target=f"/x?next={quote(key).replace('-', '%2D')}"
    ),
    "percent-encoding twice": lambda key: make_request(
        target=f"/x?next={quote(quote('https://a/?b=' + key.replace('-', '%2D')))}&c=1"
    ),
    "base64 and plain": lambda key: posted({"text": f"{key} is {_base64(f'{key}.')} is {key}"}),
    "named in base64": lambda key: posted({"state": _base64(json.dumps({"api_key": key[8:]}))}),
}


@pytest.mark.parametrize("place", CODED)
def test_a_key_in_an_encoding_is_not_stored_and_hits_by_itself_alone(place: str) -> None:
    asked = CODED[place](SHAPED)
    stored = RequestRedaction().redact(SALT, asked)

    assert stored != asked
    assert sightings({"key": SHAPED[8:]}, {"": repr(stored).encode() + stored.body}) == []
    assert answer(recorded(asked), asked) == 0
    assert answer(recorded(asked), stored) == 0
    assert answer(recorded(asked), CODED[place](SHAPED_TOO)) is None
    assert answer(recorded(asked, CODED[place](SHAPED_TOO)), CODED[place](SHAPED_TOO)) == 1


@pytest.mark.parametrize("place", [place for place in CODED if place != "named in base64"])
def test_the_askers_own_key_in_an_encoding_stands_for_the_recorded_one(place: str) -> None:
    def quoting(key: str) -> Request:
        asked = CODED[place](key)
        return replace(
            asked, headers=(*asked.headers, (b"authorization", f"Bearer {key}".encode()))
        )

    cassette = recorded(quoting(SHAPED))

    assert answer(cassette, quoting(SHAPED)) == 0
    assert answer(cassette, quoting(SHAPED_TOO)) == 0
    assert answer(cassette, CODED[place](SHAPED_TOO)) is None


TAUGHT = "p+Q/7TnV4m=Xc9LpR2s&Wk8Hd"


def _uploading(content: bytes, media: bytes) -> Request:
    head = b'Content-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: ' + media
    body = b"--%b\r\n%b\r\n\r\n%b\r\n--%b--\r\n" % (b"XX", head, content, b"XX")
    return make_request(((b"content-type", b"multipart/form-data; boundary=XX"),), body=body)


REPEATED: dict[str, Callable[[str], Request]] = {
    "a file of text": lambda value: _uploading(f"DEBUG=1\nX {value}\n".encode(), b"text/plain"),
    "a file of octets": lambda value: _uploading(
        b"\0\1%b\0" % value.encode(), b"application/octet-stream"
    ),
    "a file of lines of JSON": lambda value: _uploading(
        json.dumps({"a": value}).encode() + b"\n", b"application/jsonl"
    ),
    "octets": lambda value: make_request(
        ((b"content-type", b"application/octet-stream"),), body=b"\0\1%b\xff" % value.encode()
    ),
    "octets in gzip": lambda value: make_request(
        ((b"content-type", b"application/octet-stream"), (b"content-encoding", b"gzip")),
        body=gzip.compress(b"\0\1%b\xff" % value.encode(), mtime=0),
    ),
    "twice side by side": lambda value: posted(
        {"text": f"{value}{value}", "path": f"/{value * 3}."}
    ),
    "hexadecimal digits": lambda value: posted({"text": f"it is {value.encode().hex()}!"}),
    "XML": lambda value: make_request(
        ((b"content-type", b"text/xml"),), body=f"<a>{html.escape(value)}</a>".encode()
    ),
}


@pytest.mark.parametrize("place", REPEATED)
def test_what_an_earlier_recording_taught_is_not_stored_and_hits_by_itself_alone(
    place: str,
) -> None:
    asked, redaction = REPEATED[place](TAUGHT), RequestRedaction()
    redaction.learn(SALT, [Secret("password", TAUGHT.encode())])
    stored = redaction.redact(SALT, asked)

    assert b"REDACTED." in stored.body
    assert answer(cassette_of(stored), asked) == 0
    assert answer(cassette_of(stored), stored) == 0
    assert answer(cassette_of(stored), REPEATED[place](TAUGHT[::-1])) is None
