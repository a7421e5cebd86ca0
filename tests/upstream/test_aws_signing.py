"""Requests signed anew are what AWS accepts, by botocore's own reckoning."""

import re

import pytest

from tapeway.core.http.sigv4 import ClientSignature, Signing, client_signature
from tapeway.core.model.messages import Headers
from tapeway.errors import UpstreamError
from tapeway.upstream.aws_signing import AwsSigner
from tests.server.in_process_proxy import running_proxy
from tests.support.aws_signatures import is_accepted
from tests.support.socket_upstream import Peer

ACCESS, SECRET, TOKEN = (
    "AKIDSYNTHETIC0000000",
    "synthetic/secret/synthetic/secret/000000",
    "synth-token",
)
HOST = "bedrock-runtime.us-east-1.amazonaws.com"
BASE = f"https://{HOST}"
BODY = b'{"messages": []}'
CLIENT = ClientSignature("us-east-1", "bedrock", b"")
DUMMY: Headers = (
    (b"Authorization", b"AWS4-HMAC-SHA256 Credential=D/20261126/us-east-1/bedrock/aws4_request, x"),
    (b"Content-Type", b"application/json"),
    (b"Accept-Encoding", b"identity"),
    (b"X-Forwarded-For", b"10.0.0.1"),
    (b"X-Amz-Date", b"20200101T000000Z"),
    (b"amz-sdk-request", b"attempt=1"),
    (b"X-Amz-User-Agent", b"aws-sdk-js/3  spaced"),
)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def accepted(target: str, headers: Headers) -> bool:
    """Whether AWS would accept the request."""
    fields = tuple([(name.decode(), value.decode()) for name, value in headers])
    return is_accepted(
        *("POST", target, (("host", HOST), *fields), BODY), access_key=ACCESS, secret_key=SECRET
    )


async def signed(
    target: str, headers: Headers = DUMMY, *, client: ClientSignature = CLIENT, **given: str
) -> tuple[str, Headers]:
    return await AwsSigner().sign(
        Signing(**given),
        client,
        method="POST",
        base=BASE,
        target=target,
        headers=headers,
        body=BODY,
    )


@pytest.mark.parametrize(
    "target",
    [
        "/model/m%3A0/converse",
        "/model/m:0/converse",
        "/model/a b/x".replace(" ", "%20"),
        "/q?b=2&a=1",
    ],
)
async def test_a_request_signed_anew_is_accepted(target: str) -> None:
    sent, headers = await signed(target)

    assert sent == target
    assert accepted(sent, headers)


async def test_only_fields_that_stay_as_they_are_are_signed_and_all_others_are_sent() -> None:
    _, headers = await signed("/model/m/converse")
    fields = {name.lower(): value for name, value in headers}

    names = re.search(rb"SignedHeaders=([^,]+)", fields[b"authorization"])
    assert names is not None
    assert names[1] == b"content-type;host;x-amz-content-sha256;x-amz-date;x-amz-user-agent"
    assert fields[b"x-forwarded-for"] == b"10.0.0.1"
    assert fields[b"amz-sdk-request"] == b"attempt=1"
    assert b"Credential=D/" not in fields[b"authorization"]
    assert len([name for name, _ in headers if name.lower() == b"x-amz-date"]) == 1


async def test_s3_takes_the_path_as_it_is_and_a_body_that_nobody_signed() -> None:
    client = ClientSignature("us-east-1", "s3", b"UNSIGNED-PAYLOAD")

    target, headers = await signed("/bucket/a%20b/c", client=client)

    assert accepted(target, headers)
    assert (b"X-Amz-Content-SHA256", b"UNSIGNED-PAYLOAD") in headers


async def test_a_session_token_of_the_proxy_is_sent_and_that_of_the_client_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)

    target, headers = await signed("/m", (*DUMMY, (b"x-amz-security-token", b"the client's")))

    assert [v for n, v in headers if n.lower() == b"x-amz-security-token"] == [TOKEN.encode()]
    assert accepted(target, headers)


async def test_service_and_region_of_the_option_come_before_those_of_the_client() -> None:
    _, headers = await signed("/m", service="execute-api", region="eu-central-1")

    assert b"/eu-central-1/execute-api/aws4_request" in dict(headers)[b"Authorization"]


async def test_a_presigned_address_is_signed_in_its_header() -> None:
    target = "/k?a=1&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F20261126%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Signature=b"
    client = client_signature(target, ())
    assert client is not None

    sent, headers = await signed(target, (), client=client)

    assert sent == "/k?a=1"
    assert accepted(sent, headers)


async def test_without_credentials_the_error_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("HOME", "/nonexistent")

    with pytest.raises(UpstreamError, match="AWS_ACCESS_KEY_ID") as failed:
        await signed("/m")

    assert (failed.value.status, failed.value.code) == (502, "signing_failed")


async def test_a_profile_that_does_not_exist_is_said_without_its_details(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    with pytest.raises(UpstreamError, match=r"cannot be read \(ProfileNotFound\)"):
        await signed("/m")


async def test_a_signature_that_cannot_be_replaced_is_refused_with_its_reason() -> None:
    with pytest.raises(UpstreamError, match="each message of its event stream"):
        await signed(
            "/m", client=ClientSignature("r", "bedrock", b"", "each message of its event stream")
        )
    with pytest.raises(UpstreamError, match="--sign"):
        await signed("/m", client=ClientSignature("", "", b""))


async def test_a_signature_for_the_upstream_s_own_host_is_passed_on_without_credentials(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    theirs = b"Authorization: " + DUMMY[0][1]
    async with (
        Peer() as peer,
        running_proxy(peer.url, signing={"default": Signing()}) as proxy,
        proxy.connect() as client,
    ):
        host = b"Host: 127.0.0.1:%d" % peer.port
        answer = await client.ask(b"\r\n".join([b"GET /1 HTTP/1.1", host, theirs, b"", b""]))
        refused = await proxy.ask(b"GET /2", theirs)

        assert answer.status == 200
        assert theirs in peer.requests[0]
        assert (refused.status, len(peer.requests)) == (502, 1)
        assert b"signing_failed" in refused.body
