"""`tapeway serve` with a certificate: what listens, what it says, and who can reach it."""

import asyncio
import json
import os
import ssl
import subprocess
import sys
from pathlib import Path

import httpx
import openai
import pytest
import trustme

from tapeway.embedded.deck import serve
from tapeway.testing import StandIn, ThreadedStandIn
from tests.process.commands.test_run import app, run
from tests.process.serving import USAGE, Tapeway, refused

CA = trustme.CA()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[str, str]:
    """The files of a certificate for loopback, and of its key."""
    issued = CA.issue_cert("127.0.0.1", "localhost")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    for file, blobs in zip(files, (issued.cert_chain_pems, [issued.private_key_pem]), strict=True):
        file.write_bytes(b"".join(blob.bytes() for blob in blobs))
    return str(files[0]), str(files[1])


def trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    CA.configure_trust(context)
    return context


async def chat(url: str, key: str) -> tuple[str, str]:
    """The outcome and the text of a streamed call by OpenAI's client."""
    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1",
        api_key=key,
        max_retries=0,
        http_client=openai.DefaultAsyncHttpxClient(verify=trusting(), trust_env=False),
    ) as client:
        answer = await client.chat.completions.with_raw_response.create(
            model="gpt-4o-mini", messages=[{"role": "user", "content": "hello"}], stream=True
        )
        chunks = [chunk async for chunk in answer.parse()]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    return answer.headers["tapeway-outcome"], text


async def test_a_client_of_openai_records_and_replays_over_tls(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    async with StandIn() as upstream:
        options = ("--upstream", upstream.url, "--tls-cert", cert, "--tls-key", key)
        async with Tapeway(tmp_path, *options) as proxy:
            assert proxy.ready["proxy"].startswith("https://127.0.0.1:")
            assert proxy.ready["admin"].startswith("http://127.0.0.1:")
            said = [await chat(proxy.proxy, proxy.key) for _ in range(2)]

    assert [outcome for outcome, _ in said] == ["recorded", "replayed"]
    assert said[0][1] == said[1][1] != ""


async def test_the_admin_api_has_the_certificate_where_it_is_told_to(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    both = tmp_path / "both.pem"
    both.write_bytes(Path(cert).read_bytes() + Path(key).read_bytes())
    options = ("--mode", "replay", "--tls-cert", str(both), "--admin-tls")
    async with Tapeway(tmp_path, *options) as proxy:
        assert proxy.ready["admin"].startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=trusting(), trust_env=False) as client:
            status = await client.get(f"{proxy.ready['admin']}/api/v1/status")
            page = await client.get(f"{proxy.ready['admin']}/")
            missed = await client.get(f"{proxy.proxy}/v1/models")

        assert (status.status_code, page.status_code) == (200, 200)
        assert missed.json()["tapeway"]["journal"].startswith(proxy.ready["admin"])


async def test_only_http_1_1_is_offered(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    async with Tapeway(tmp_path, "--tls-cert", cert, "--tls-key", key) as proxy:
        ours = trusting()
        ours.set_alpn_protocols(["h2", "http/1.1"])
        port = int(proxy.proxy.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ours)
        found: ssl.SSLObject = writer.get_extra_info("ssl_object")

        assert found.selected_alpn_protocol() == "http/1.1"
        writer.transport.abort()


async def test_files_that_hold_no_certificate_stop_the_start(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    other = tmp_path / "other.pem"
    other.write_bytes(CA.issue_cert("localhost").private_key_pem.bytes())
    locked = tmp_path / "locked.pem"
    locked.write_text(LOCKED)
    backwards = tmp_path / "backwards.pem"
    backwards.write_bytes(CA.cert_pem.bytes() + Path(cert).read_bytes())
    text = tmp_path / "text"
    text.write_text("no certificate")
    for options, words in {
        ("--tls-key", key): "give --tls-cert FILE too",
        ("--admin-tls",): "give --tls-cert FILE too",
        ("--tls-cert", cert): "holds no private key",
        ("--tls-cert", cert, "--tls-key", str(other)): "does not belong",
        ("--tls-cert", str(backwards), "--tls-key", key): "those of its issuers behind",
        ("--tls-cert", cert, "--tls-key", f"{tmp_path}/gone"): "gone cannot be read: No such file",
        ("--tls-cert", cert, "--tls-key", str(locked)): "passphrase",
        ("--tls-cert", str(text), "--tls-key", key): "holds no certificate",
        ("--tls-cert", str(tmp_path / "nowhere"), "--tls-key", key): "cannot be read: No such file",
        ("--upstream-cert", f"{tmp_path}/nowhere:{key}"): "cannot be read: No such file",
        ("--upstream-cert", f"openai={cert}:{other}"): "does not belong",
        ("--upstream-cert", f"strange={cert}:{key}"): "give --route strange=URL too",
    }.items():
        code, message = await refused(tmp_path, *options)
        assert (code, words in message) == (USAGE, True), message
        assert "PRIVATE" not in message


def test_a_wrapped_command_gets_addresses_with_https(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    CA.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    script = app(tmp_path, "hello")[1]
    with ThreadedStandIn() as upstream:
        finished = run(
            tmp_path,
            *(f"--route=openai={upstream.url}", "--tls-cert", cert, "--tls-key", key),
            *("--admin-tls", f"--report={tmp_path}/report.html"),
            command=("env", f"SSL_CERT_FILE={tmp_path}/ca.pem", sys.executable, script, "hello"),
        )

    assert (finished.returncode, finished.stdout) == (0, "recorded\n"), finished.stderr
    assert "<html" in (tmp_path / "report.html").read_text()


def test_the_printed_variables_have_https(tmp_path: Path, certificate: tuple[str, str]) -> None:
    (tmp_path / "tapeway.toml").write_text(
        f"tls_cert = {json.dumps(certificate[0])}\ntls_key = {json.dumps(certificate[1])}\n"
    )
    command = (sys.executable, "-m", "tapeway", "env", "--provider", "openai")
    printed = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, env={**os.environ}
    )

    assert "export OPENAI_BASE_URL=https://127.0.0.1:8080/openai/v1\n" in printed.stdout


def test_a_program_can_serve_one_of_its_own(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    options = {"tls_cert": cert, "tls_key": key, "store": str(tmp_path / "cassettes")}
    for admin_tls, scheme in ((False, "http:"), (True, "https:")):
        with serve(mode="replay", **options, admin_tls=admin_tls) as deck:
            assert deck.proxy_url.startswith("https:")
            assert deck.admin_url.startswith(scheme)
            assert deck.mode() == "replay"


LOCKED = """-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,0123456789ABCDEF0123456789ABCDEF

AAAA
-----END RSA PRIVATE KEY-----
"""
