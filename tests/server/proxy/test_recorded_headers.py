"""Which response headers are recorded, and that the client of a live answer gets all of them."""

import pytest

from tapeway.engine.recording.selection import Policy
from tests.server.in_process_proxy import running_proxy
from tests.server.streaming import routes
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

ANSWER = (
    b'HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nETag: "1"\r\n'
    b"Date: Thu, 26 Nov 2026 21:43:54 GMT\r\nx-request-id: req_1\r\nRetry-After: 3\r\n"
    b"CF-RAY: badfab06862e48f4-FRA\r\nSet-Cookie: sid=1\r\n\r\nok"
)
LASTING = ["content-type", "etag", "retry-after"]
EACH_TIME = ["cf-ray", "date", "set-cookie", "x-request-id"]


@pytest.mark.parametrize("minimal", [False, True])
async def test_minimal_headers_leave_out_what_differs_each_time(*, minimal: bool) -> None:
    policy = Policy(minimal_headers=minimal)
    async with (
        Peer(ANSWER) as peer,
        running_proxy(mode="auto", rules=REUSED, routes=routes(peer.url), policy=policy) as proxy,
    ):
        live = await proxy.ask(b"GET /v1/models")
        (recorded,) = await proxy.recorded()
        replayed = await proxy.ask(b"GET /v1/models")

    names = sorted(name.decode().lower() for name, _ in recorded.response.headers)
    assert names == (LASTING if minimal else sorted(LASTING + EACH_TIME))
    assert [name for name in EACH_TIME if f"\n{name}:".encode() not in live.head.lower()] == []
    assert (b"CF-RAY: " in replayed.head) != minimal
    assert replayed.body == b"ok"
