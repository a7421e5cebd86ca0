"""Who may call the admin listener, seen on its sockets."""

import json
from collections.abc import AsyncIterator

import pytest

from tapeway.admin.app import make_application
from tapeway.admin.auth import BURST
from tapeway.admin.operation import Operation
from tapeway.admin.routes import TABLE
from tapeway.core.http.sdk_conventions import error_document
from tapeway.errors import ConfigError
from tests.admin.admin_and_proxy import World, world
from tests.admin.example_calls import ABSENT, QUERIES, example, filled

TOKEN = "a-token-of-this-test-1234"
LOCKED = [operation for operation in TABLE if not operation.public]
PUBLIC = [operation for operation in TABLE if operation.public]

UNAUTHORIZED = json.dumps(
    error_document(
        "unauthorized",
        "the admin API needs its token: send 'Authorization: Bearer TOKEN'",
        "",
        {},
    ),
    separators=(",", ":"),
).encode()

WRONG = {
    "none": b"",
    "wrong": b"Authorization: Bearer not-this-one\r\n",
    "empty": b"Authorization: Bearer \r\n",
    "nothing": b"Authorization: \r\n",
    "almost": b"Authorization: Bearer " + TOKEN[:-1].encode() + b"\r\n",
    "another scheme": b"Authorization: Basic " + TOKEN.encode() + b"\r\n",
    "no scheme": b"Authorization: " + TOKEN.encode() + b"\r\n",
    "utf-8": "Authorization: Bearer t\u00f6ken\r\n".encode(),
    "latin-1": b"Authorization: Bearer t\xf6ken\xff\r\n",
    "30 KB": b"Authorization: Bearer " + b"x" * 30_000 + b"\r\n",
    "1 MB": b"Authorization: Bearer " + b"x" * 1024 * 1024 + b"\r\n",
    "twice": b"Authorization: Bearer %b\r\nAuthorization: Bearer x\r\n" % TOKEN.encode(),
    "in the query": b"X-Token: " + TOKEN.encode() + b"\r\n",
}


@pytest.fixture(scope="module", autouse=True)
def _the_table_is_whole() -> None:
    assert {operation.path for operation in PUBLIC} == {"/healthz", "/readyz"}
    assert len(LOCKED) > 15


@pytest.fixture
async def locked() -> AsyncIterator[World]:
    async with world(token=TOKEN) as found:
        yield found


@pytest.mark.parametrize("credentials", WRONG.values(), ids=WRONG.keys())
async def test_no_route_is_reached_without_the_right_token(
    locked: World, credentials: bytes
) -> None:
    bodies = set()
    for operation in LOCKED:
        answer = await locked.raw(_request(operation, credentials))

        head, _, body = answer.partition(b"\r\n\r\n")
        assert head[9:12] == b"401", (operation.name, answer[:200])
        assert b"www-authenticate: bearer" in head.lower()
        bodies.add(body)
    assert bodies == {UNAUTHORIZED}, "a refusal tells what was wrong with the token"
    assert (locked.broker.mode, locked.broker.active, locked.broker.takes) == ("auto", "default", 1)


async def test_an_upgrade_does_not_go_round_the_token(locked: World) -> None:
    upgrade = (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )

    for operation in LOCKED:
        answer = await locked.raw(_head(operation.method, operation.path, upgrade))
        assert answer.startswith(b"HTTP/1.1 401 "), operation.name


async def test_paths_that_lead_nowhere_are_not_told_apart_without_a_token(locked: World) -> None:
    for method, path in [("GET", "/nowhere"), ("DELETE", "/api/v1/status"), ("FOO", "/x")]:
        answer = await locked.raw(_head(method, path))
        assert answer[9:12] == (b"405" if method == "FOO" else b"401"), path


@pytest.mark.parametrize("each", LOCKED, ids=lambda each: each.name)
async def test_every_route_is_reached_with_the_right_token(locked: World, each: Operation) -> None:
    await locked.ask("/things")
    credentials = b"authorization: bEaReR " + TOKEN.encode() + b"\r\n"

    if each.name == "events":
        locked.journal.close()
    answer = await locked.raw(_request(each, credentials))

    expected = b"404" if each.name in ABSENT else b"200"
    assert answer.startswith(b"HTTP/1.1 %b " % expected), answer[:300]


async def test_health_needs_no_token(locked: World) -> None:
    for operation in PUBLIC:
        assert (await locked.raw(_head("GET", operation.path))).startswith(b"HTTP/1.1 200 ")


async def test_the_token_is_not_repeated(locked: World) -> None:
    canary = b"canary-7f3a9c"

    answer = await locked.raw(
        _head("GET", "/api/v1/status", b"Authorization: Bearer %b\r\n" % canary)
    )

    assert canary not in answer


async def test_a_guesser_is_slowed_down_and_the_right_token_is_let_in_all_the_while() -> None:
    now = 1000.0
    async with world(token=TOKEN, clock=lambda: now) as locked:
        wrong = {"Authorization": "Bearer guess"}
        for _ in range(BURST):
            assert (await locked.call("GET", "/api/v1/status", headers=wrong)).status == 401
        late = await locked.call("GET", "/api/v1/status", headers=wrong)
        right = await locked.call("GET", "/api/v1/status")
        health = await locked.call("GET", "/healthz", headers=wrong)
        now += 1.0
        again = await locked.call("GET", "/api/v1/status", headers=wrong)

    assert (late.status, late.headers["Retry-After"]) == (429, "1")
    assert (await late.json())["error"]["code"] == "too_many_attempts"
    assert right.status == 200
    assert health.status == 200
    assert again.status == 401


async def test_a_missing_token_is_no_guess() -> None:
    async with world(token=TOKEN, clock=lambda: 1000.0) as locked:
        for _ in range(BURST + 1):
            async with locked.http.get(locked.admin + "/api/v1/status") as answer:
                assert answer.status == 401
        assert (await locked.call("GET", "/api/v1/status")).status == 200


FOREIGN = {
    "host": b"Host: evil.example\r\n",
    "host with our port": b"Host: evil.example:8081\r\n",
    "host that begins like ours": b"Host: localhost.evil.example\r\n",
    "host that is another's address": b"Host: 192.0.2.7\r\n",
    "all addresses": b"Host: 0.0.0.0:8081\r\n",
    "host with a user": b"Host: localhost@evil.example\r\n",
    "empty host": b"Host: \r\n",
    "origin": b"Host: localhost\r\nOrigin: http://evil.example\r\n",
    "null origin": b"Host: localhost\r\nOrigin: null\r\n",
    "origin of another port": b"Host: localhost:8081\r\nOrigin: http://localhost:8080\r\n",
    "origin of a file": b"Host: localhost\r\nOrigin: file://\r\n",
    "origin that begins like ours": b"Host: localhost\r\nOrigin: http://localhost.evil.example\r\n",
    "two origins": b"Host: localhost\r\nOrigin: http://localhost\r\nOrigin: http://evil\r\n",
    "cross-site": b"Host: localhost\r\nSec-Fetch-Site: cross-site\r\n",
    "same-site": b"Host: localhost\r\nSec-Fetch-Site: same-site\r\n",
}


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN.keys())
async def test_a_page_of_another_site_reaches_nothing(open_world: World, headers: bytes) -> None:
    for operation in TABLE:
        answer = await open_world.raw(_request(operation, b"", headers))

        assert answer.startswith(b"HTTP/1.1 403 "), (operation.name, answer[:200])
        assert b"access-control" not in answer.lower()
        assert b"evil" not in answer
    broker = open_world.broker
    assert (broker.mode, broker.active, broker.takes) == ("auto", "default", 1)


OWN = {
    "localhost": b"Host: localhost:8081\r\n",
    "another loopback name": b"Host: tapeway.localhost\r\n",
    "version 4": b"Host: 127.0.0.1:9999\r\n",
    "version 6": b"Host: [::1]:8081\r\n",
    "in capitals, with a dot": b"Host: LOCALHOST.\r\n",
    "our origin": b"Host: localhost:8081\r\nOrigin: http://localhost:8081\r\n",
    "our origin, default port": b"Host: localhost:80\r\nOrigin: http://localhost\r\n",
    "behind TLS": b"Host: localhost:8081\r\nOrigin: https://localhost:8081\r\n",
    "same-origin": b"Host: localhost\r\nSec-Fetch-Site: same-origin\r\n",
    "typed in": b"Host: localhost\r\nSec-Fetch-Site: none\r\n",
}


@pytest.mark.parametrize("headers", OWN.values(), ids=OWN.keys())
async def test_a_call_to_its_own_name_is_served(open_world: World, headers: bytes) -> None:
    answer = await open_world.raw(_head("GET", "/api/v1/status", b"", headers))

    assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]


async def test_http_1_0_needs_no_host(open_world: World) -> None:
    answer = await open_world.raw(b"GET /healthz HTTP/1.0\r\n\r\n")

    assert answer[9:12] == b"200"


async def test_the_authority_of_the_request_line_is_not_believed(open_world: World) -> None:
    answer = await open_world.raw(_head("GET", "http://localhost/api/v1/status"))

    assert answer.startswith(b"HTTP/1.1 400 ")


async def test_a_preflight_is_granted_nothing(open_world: World) -> None:
    asks = b"Access-Control-Request-Method: PUT\r\n"

    answer = await open_world.raw(_head("OPTIONS", "/api/v1/mode", asks))

    assert answer.startswith(b"HTTP/1.1 405 ")
    assert b"access-control" not in answer.lower()


async def test_another_version_of_http_is_refused(open_world: World) -> None:
    answer = await open_world.raw(b"GET /healthz HTTP/2.0\r\nHost: localhost\r\n\r\n")

    assert answer[9:12] in (b"505", b"400")


@pytest.mark.parametrize(("host", "token"), [("0.0.0.0", None), ("::", None), ("127.0.0.1", "")])
async def test_an_open_door_is_not_built(open_world: World, host: str, token: str | None) -> None:
    with pytest.raises(ConfigError, match="token"):
        make_application(
            open_world.broker,
            open_world.journal,
            token=token,
            listener=(host, 8081),
            version="1",
        )


async def test_beyond_loopback_private_names_and_addresses_lead_here() -> None:
    async with world(token=TOKEN, listener_host="0.0.0.0") as found:
        statuses = {
            host: (await found.call("GET", "/api/v1/status", headers={"Host": host})).status
            for host in ("tapeway:8081", "10.1.2.3", "tapeway.default.svc", "evil.example")
        }

    assert statuses == {
        "tapeway:8081": 200,
        "10.1.2.3": 200,
        "tapeway.default.svc": 200,
        "evil.example": 403,
    }


def _head(method: str, path: str, more: bytes = b"", host: bytes = b"Host: localhost\r\n") -> bytes:
    line = f"{method} {path} HTTP/1.1\r\n".encode()
    return line + host + b"Connection: close\r\n" + more + b"\r\n"


def _request(operation: Operation, more: bytes, host: bytes = b"Host: localhost\r\n") -> bytes:
    carried = example(operation)
    path = filled(operation.path) + QUERIES.get(operation.name, "")
    if not carried.body:
        return _head(operation.method, path, more, host)
    framing = b"Content-Type: %b\r\nContent-Length: %d\r\n" % (
        carried.type.encode(),
        len(carried.body),
    )
    return _head(operation.method, path, more + framing, host) + carried.body
