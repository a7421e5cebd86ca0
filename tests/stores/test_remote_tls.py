"""Another tapeway behind https://: by a certificate that has to be the right one."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from aiohttp import ClientSession, web

from tapeway.errors import StoreError
from tapeway.stores.memory import MemoryStore
from tapeway.stores.opening import open_store
from tests.stores.contract.conftest import opened
from tests.stores.far_side import far_side
from tests.stores.recordings import HEAD, answers, bodies, recording

TOKEN = "the-token-of-the-far-side"


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
    for name, each in {"right": authority, "wrong": stranger}.items():
        each.cert_pem.write_to_path(str(tmp_path / name))
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
    async with _behind(authority.issue_cert("elsewhere.invalid")) as port:
        with pytest.raises(StoreError, match="of another name"):
            await open_store(f"https://127.0.0.1:{port}", token=TOKEN, ca=right).open()
