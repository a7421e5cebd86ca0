"""Addresses of other tapeways, and https:// by a certificate that has to be the right one."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientSession, web

from tapeway.errors import ConfigError, StoreError
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tapeway.stores.remote.client import address_of
from tapeway.stores.remote.store import RemoteStore
from tests.stores.contract.conftest import opened
from tests.stores.recordings import HEAD, answers, bodies, recording
from tests.stores.remote.far_side import far_side

TOKEN = "the-token-of-the-far-side"


@pytest.mark.parametrize(
    ("url", "root", "token"),
    [
        ("http://h:8081", "http://h:8081", None),
        ("HTTPS://Example.org", "https://example.org", None),
        ("http://h/behind/", "http://h/behind", None),
        ("http://[::1]:8081/", "http://[::1]:8081", None),
        ("http://tok%40en@h", "http://h", "tok@en"),
        ("http://:token@h:1", "http://h:1", "token"),
    ],
)
def test_an_address_is_taken_apart(url: str, root: str, token: str | None) -> None:
    address = address_of(url)

    assert (address.root, address.token) == (root, token)


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http:///x",
        "http://canary@",
        "http://canary@h:port",
        "http://:canary/x@h",
        "http://canary@h?x=1",
        "http://canary@h#x",
        "http://canary@[::1",
        "http://%20canary%0A@h",
        "http://:@h",
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url)

    assert "canary" not in refused.value.message
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_the_token_in_the_address_wins() -> None:
    assert address_of("http://one@h", "two").token == "one"
    assert address_of("http://h", "two").token == "two"
    assert isinstance(open_store("http://h"), RemoteStore)


@asynccontextmanager
async def _behind(certificate: trustme.LeafCert) -> AsyncIterator[str]:
    """A far side behind what ends TLS, as such listeners mostly are; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    async with far_side(MemoryStore(), TOKEN) as far, ClientSession() as http:

        async def answer(request: web.BaseRequest) -> web.Response:
            headers = {key: value for key, value in request.headers.items() if key != "Host"}
            headers.pop("Transfer-Encoding", None)
            async with http.request(
                request.method,
                far.url + request.raw_path,
                headers=headers,
                data=await request.read(),
            ) as got:
                return web.Response(status=got.status, body=await got.read())

        runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
            yield f"{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def test_only_a_certificate_of_the_right_authority_and_name_is_taken(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    for name, trusted in {"right": authority, "wrong": stranger}.items():
        trusted.cert_pem.write_to_path(str(tmp_path / name))
    right, wrong = str(tmp_path / "right"), str(tmp_path / "wrong")
    async with _behind(authority.issue_cert("127.0.0.1")) as port:
        url = f"https://127.0.0.1:{port}"
        async with opened(open_store(url, token=TOKEN, ca=right)) as store:
            await store.append("x", HEAD, recording(0))
            assert bodies(await store.load("x", writable=False)) == answers(0)
        for ca in (wrong, None):
            with pytest.raises(StoreError, match="TAPEWAY_STORE_CA") as refused:
                await open_store(url, token=TOKEN, ca=ca).open()
            assert TOKEN not in refused.value.message
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", right)
            async with opened(open_store(url, token=TOKEN)) as store:
                assert bodies(await store.load("x", writable=False)) == answers(0)
    async with _behind(authority.issue_cert("elsewhere.invalid")) as port:
        with pytest.raises(StoreError, match="of another name"):
            await open_store(f"https://127.0.0.1:{port}", token=TOKEN, ca=right).open()
