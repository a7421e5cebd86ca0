"""Keys that an earlier tapeway computed are computed anew when a cassette is first used."""

import json

from tapeway.stores.postgres.store import PostgresStore
from tests.server.in_process_proxy import running_proxy
from tests.stores.postgres_server import run
from tests.support.socket_upstream import Peer

JSON = b"Content-Type: application/json"


def call(id: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":%d,"method":"ping"}' % id


async def test_a_recording_answers_by_its_new_key(postgres_url: str, postgres_dsn: str) -> None:
    result = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    answer = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
    store = PostgresStore(postgres_url)
    await store.open()
    async with (
        Peer(answer % (len(result), result)) as peer,
        running_proxy(peer.url, store=store) as proxy,
    ):
        await proxy.ask(b"POST /mcp", JSON, body=call(1))
    await store.close()
    schema = postgres_url.rpartition("schema=")[2]
    for change in ("log SET key = '\\x00'", "cassette SET generation = 0"):
        await run(postgres_dsn, f"UPDATE {schema}.{change}")

    store = PostgresStore(postgres_url)
    await store.open()
    try:
        async with running_proxy(mode="replay", store=store) as proxy:
            replayed = await proxy.ask(b"POST /mcp", JSON, body=call(2))
    finally:
        await store.close()

    assert json.loads(replayed.body) == {"jsonrpc": "2.0", "id": 2, "result": {}}
