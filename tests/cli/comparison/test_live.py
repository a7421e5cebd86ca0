"""`tapeway verify --live`: what services answer now beside what is recorded."""

import http.client
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Failure, Request
from tapeway.providers.catalogue import PROVIDERS
from tapeway.testing import ThreadedStandIn
from tests.cli.invocation import run, run_tapeway, written
from tests.conversations.recorded_calls import CHAT, MESSAGES, call, user
from tests.support.aws_signatures import is_signed_by
from tests.support.ports import free_port

KEY = "sk-live-a1b2c3d4e5f6a7b8"
ASKED: dict[str, Json] = {"model": "gpt-5.5", "messages": [user("hi")]}


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedStandIn]:
    """A stand-in for OpenAI and Anthropic, and one key of the environment."""
    for provider in PROVIDERS.values():
        for name in [other_name for names in provider.keys for other_name in names]:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with ThreadedStandIn() as found:
        yield found


def recorded(
    upstream: ThreadedStandIn,
    index: int,
    asked: dict[str, Json],
    target: str = CHAT,
    method: str = "POST",
) -> Interaction:
    """A recording of what the stand-in answers."""
    place = urlsplit(upstream.url)
    connection = http.client.HTTPConnection(str(place.hostname), place.port)
    headers = {"content-type": "application/json", "authorization": "Bearer x", "x-api-key": "x"}
    connection.request(method, target, json.dumps(asked), headers)
    answer = connection.getresponse()
    body, media = answer.read(), answer.headers["content-type"].encode()
    connection.close()
    upstream.requests.clear()
    route = "anthropic" if target == MESSAGES else "openai"
    return call(index, target, asked, body, media=media, route=route, status=answer.status)


def changed(item: Interaction, **fields: Json) -> Interaction:
    """The recording with other fields in its answer; None takes one away."""
    document = json.loads(item.response.body) | fields
    body = json.dumps({name: member for name, member in document.items() if member is not None})
    return replace(item, response=replace(item.response, body=body.encode()))


def verify(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn, *arguments: str
) -> tuple[int, str, str]:
    routes = [f"--route={name}={upstream.url}" for name in ("openai", "anthropic")]
    return run_tapeway(capsys, "verify", "--live", *routes, *arguments)


def test_a_service_that_answers_as_recorded_has_not_drifted(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    items = [recorded(upstream, 0, ASKED), recorded(upstream, 1, {**ASKED, "stream": True})]
    file = written("a", *items)
    before = file.read_bytes()

    assert verify(capsys, upstream) == (0, "a: 2 calls, no drift\n", "")
    assert [request.target for request in upstream.requests] == [CHAT, CHAT]
    assert [dict(request.headers)["authorization"] for request in upstream.requests] == [
        f"Bearer {KEY}"
    ] * 2
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == ["a.json"]


def test_each_kind_of_drift_has_its_level_side_by_side(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    whole = recorded(upstream, 0, ASKED)
    written("a", changed(whole, created="yesterday", model=None, region={"name": "eu"}))

    code, out, err = verify(capsys, upstream, "a")

    assert (code, err) == (1, "")
    assert [line.split() for line in out.splitlines()] == [
        ["a", "#0", "POST", CHAT],
        ["field", "recorded", "live"],
        ["error", "body.created", "string", "number"],
        ["warning", "body.region", "object", "nothing"],
        ["info", "body.model", "nothing", "string"],
        ["a:", "1", "call,", "1", "error,", "1", "warning,", "1", "info"],
    ]


def test_a_field_that_was_added_or_is_gone_is_no_error(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    written("a", changed(recorded(upstream, 0, ASKED), gone=[{"deep": 1}], model=None))

    code, out, _ = verify(capsys, upstream, "a", "--format", "json")

    (result,) = json.loads(out)
    assert code == 0
    assert result["asked"][0]["drift"] == [
        {"level": "warning", "path": "body.gone", "recorded": "list", "live": "nothing"},
        {"level": "info", "path": "body.model", "recorded": "nothing", "live": "string"},
    ]


def test_another_status_or_type_of_content_is_an_error(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    item = recorded(upstream, 0, ASKED)
    gone = replace(item.response, head=replace(item.response.head, status=404))
    written("a", replace(item, response=gone))
    written("b", call(0, CHAT, ASKED, b"data: {}\n\n", media=b"text/event-stream"))

    code, out, _ = verify(capsys, upstream)

    rows = [line.split() for line in out.splitlines() if line.startswith("  error")]
    assert (code, rows) == (
        1,
        [
            ["error", "status", "404", "200"],
            ["error", "content-type", "text/event-stream", "application/json"],
        ],
    )


def test_the_budget_is_for_all_cassettes_and_asks_one_of_each_kind_first(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    chats = [recorded(upstream, at, {**ASKED, "messages": [user(f"job {at}")]}) for at in range(3)]
    message = recorded(
        upstream, 3, {"model": "claude", "max_tokens": 9, "messages": [user("hi")]}, MESSAGES
    )
    written("a", *chats)
    written("b", message)

    code, out, _ = verify(capsys, upstream, "--budget", "2")

    assert code == 0
    assert sorted(request.target for request in upstream.requests) == [CHAT, MESSAGES]
    assert out == "a: 1 call, no drift; not asked: 2 beyond the budget\nb: 1 call, no drift\n"


def test_only_what_changes_nothing_is_asked_and_only_where_a_route_leads(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    plain = recorded(upstream, 0, ASKED)
    evil = replace(plain.request, route="elsewhere", base="http://127.0.0.1:9")
    secret: Json = [user("my key is REDACTED.authorization.fnbmapdk")]
    written(
        "a",
        plain,
        replace(plain, index=1),
        replace(call(2, "/v1/files", {"a": 1}, {}), index=2),
        replace(plain, index=3, request=evil),
        call(4, CHAT, {**ASKED, "messages": secret}, {}),
        call(5, CHAT, {**ASKED, "n": 2}, {}, status=429),
        replace(call(6, CHAT, {**ASKED, "n": 3}, {}), failure=Failure("timeout", "none came")),
        call(7, "/v1/responses", {"input": "x"}, {"id": "resp_h5Xw0Vb1jZ"}, status=500),
        call(8, "/v1/responses", {"input": "y", "previous_response_id": "resp_h5Xw0Vb1jZ"}, {}),
    )

    code, out, _ = verify(capsys, upstream)

    assert code == 0
    assert len(upstream.requests) == 1
    assert out == (
        "a: 1 call, no drift; not asked: 1 a secret was taken out of the request, "
        "1 asked already, 1 continues what an earlier answer began, "
        "1 may change something at the service, 1 no route leads there, 3 recorded as a failure\n"
    )


def test_cassettes_in_a_database_are_asked_and_left_as_they_are(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    written("a", changed(recorded(upstream, 0, ASKED), created="yesterday"))
    assert run(capsys, "convert", "a", "sqlite:x.db#a")[0] == 0
    before = run(capsys, "show", "sqlite:x.db#a", "--format", "json")

    code, out, _ = verify(capsys, upstream, "--store", "sqlite:x.db")

    assert (code, "  error  body.created  string    number" in out) == (1, True)
    assert run(capsys, "show", "sqlite:x.db#a", "--format", "json") == before


def test_a_key_goes_to_its_own_provider_alone(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Json] = {"model": "claude", "max_tokens": 9, "messages": [user("hi")]}
    written("a", recorded(upstream, 0, asked, MESSAGES))

    verify(capsys, upstream)
    sent = dict(upstream.requests[0].headers)
    assert KEY not in sent.values()

    upstream.requests.clear()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    assert verify(capsys, upstream)[0] == 0
    assert dict(upstream.requests[0].headers)["x-api-key"] == "sk-ant-0123456789"


def test_a_service_that_does_not_answer_is_no_drift(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    written("a", recorded(upstream, 0, ASKED))

    route = f"--route=openai=http://127.0.0.1:{free_port()}"
    code, out, _ = run(capsys, "verify", "--live", route)

    assert code == 2
    assert "  not answered: " in out
    assert out.endswith("\na: 1 call, 1 not answered\n")
    assert KEY not in out


def test_a_cassette_that_cannot_be_read_is_named_and_the_others_are_asked(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn
) -> None:
    written("a", recorded(upstream, 0, ASKED))
    written("b").write_text("{")

    code, out, err = verify(capsys, upstream)

    assert (code, out) == (2, "a: 1 call, no drift\n")
    assert err.startswith("tapeway: cassettes/b.json line 1")
    assert run(capsys, "verify", "--budget", "3")[0] == 2


ACCESS, SECRET = "AKIDSYNTHETIC0000000", "synthetic/secret/synthetic/secret/000000"
CONVERSE = "/model/anthropic.claude-sonnet-5-v1%3A0/converse"
SAID: dict[str, Json] = {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}
PROFILE = f"[of-role]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n"


@pytest.fixture
def without_aws(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment in which no credentials of AWS are found."""
    for name in [text for text in os.environ if text.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    return monkeypatch


@pytest.mark.parametrize("chain", ["variables", "profile", "default profile", "program"])
def test_a_call_to_bedrock_is_signed_with_whatever_credentials_the_chain_finds(
    capsys: pytest.CaptureFixture[str],
    upstream: ThreadedStandIn,
    without_aws: pytest.MonkeyPatch,
    tmp_path: Path,
    chain: str,
) -> None:
    written("a", replace(recorded(upstream, 0, SAID, CONVERSE), request=aws_request()))
    (tmp_path / "credentials").write_text(PROFILE)
    answer = {"Version": 1, "AccessKeyId": ACCESS, "SecretAccessKey": SECRET}
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    program = f"[default]\ncredential_process = cat {tmp_path}/answer.json\n"
    (tmp_path / "config").write_text(program if chain == "program" else "")
    if chain == "default profile":
        (tmp_path / "credentials").write_text(PROFILE.replace("of-role", "default"))
    given = {
        "variables": {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET},
        "profile": {"AWS_PROFILE": "of-role"},
    }
    for name, value in given.get(chain, {}).items():
        without_aws.setenv(name, value)
    without_aws.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    without_aws.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    upstream.requests.clear()

    route = f"--route=bedrock={upstream.url}"
    assert run_tapeway(capsys, "verify", "--live", route) == (0, "a: 1 call, no drift\n", "")
    [sent] = upstream.requests
    assert is_signed_by(sent, {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET})
    assert "/eu-west-1/bedrock/" in (sent.header("authorization") or "")


def test_without_credentials_nothing_is_sent_and_the_reason_is_given(
    capsys: pytest.CaptureFixture[str], upstream: ThreadedStandIn, without_aws: pytest.MonkeyPatch
) -> None:
    written("a", replace(recorded(upstream, 0, SAID, CONVERSE), request=aws_request()))
    upstream.requests.clear()

    code, out, _ = run_tapeway(capsys, "verify", "--live", f"--route=bedrock={upstream.url}")

    assert code == 2
    assert "tapeway found no AWS credentials to sign it with" in out
    assert upstream.requests == []


@pytest.mark.parametrize(
    ("host", "option", "signed_for"),
    [
        ("bucket.s3.eu-west-1.amazonaws.com", "s3=aws", "/eu-west-1/s3/"),
        ("s3.eu-west-1.amazonaws.com", "s3=aws", "/eu-west-1/s3/"),
        ("minio.example.com", "s3=aws:s3:us-east-2", "/us-east-2/s3/"),
    ],
)
def test_what_was_signed_on_another_route_is_signed_again(
    capsys: pytest.CaptureFixture[str],
    upstream: ThreadedStandIn,
    without_aws: pytest.MonkeyPatch,
    host: str,
    option: str,
    signed_for: str,
) -> None:
    made = recorded(upstream, 0, {}, "/v1/models", "GET")
    signed = (("authorization", "AWS4-HMAC-SHA256 REDACTED.authorization.abcdefgh"),)
    request = Request("s3", "GET", "/v1/models", (), base=f"https://{host}")
    written("a", replace(made, request=replace(request, credentials=signed)))
    written("b", replace(made, request=request))
    without_aws.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    without_aws.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    upstream.requests.clear()

    asked = run_tapeway(
        *(capsys, "verify", "--live", f"--route=s3={upstream.url}", f"--sign={option}")
    )

    assert asked[0] == 0, asked
    sent, unsigned = upstream.requests
    assert is_signed_by(sent, {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET})
    assert signed_for in (sent.header("authorization") or "")
    # What was asked without a signature is so again.
    assert unsigned.header("authorization") is None


def aws_request() -> Request:
    return Request(
        *("bedrock", "POST", CONVERSE, ((b"content-type", b"application/json"),)),
        json.dumps(SAID).encode(),
        "https://bedrock-runtime.eu-west-1.amazonaws.com",
    )
