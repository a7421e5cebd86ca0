"""Where a login holds for a connection (NTLM, Negotiate), nobody else gets that connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tapeway.core.model.control import Delivery, Mode
from tapeway.formats.native import document
from tapeway.server.proxy import ProxyOptions
from tapeway.stores.memory import MemoryStore
from tests.server.in_process_proxy import HitsOn, RunningProxy, running_proxy
from tests.server.websocket.conversing import connected
from tests.server.websocket.websocket_service import serving
from tests.support.login_service import CHALLENGE, LoginService, first_step, login_of
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import REUSED
from tests.support.socket_upstream import Peer

NOBODY = b"who?"


@asynccontextmanager
async def served(
    mode: Mode = "passthrough",
    *,
    delivery: Delivery = "buffer",
    hits: HitsOn = "front",
    store: MemoryStore | None = None,
) -> AsyncIterator[tuple[LoginService, RunningProxy]]:
    options = ProxyOptions(max_body=2**20, body_idle_s=10, delivery=delivery)
    async with (
        LoginService() as service,
        running_proxy(
            service.url,
            mode=mode,
            rules=REUSED,
            options=options,
            hits=hits,
            store=store or MemoryStore(),
        ) as proxy,
    ):
        yield service, proxy


class User:
    """A client on a connection of its own."""

    def __init__(self, proxy: RunningProxy, client: RawClient) -> None:
        self._proxy, self._client = proxy, client

    async def ask(self, *fields: bytes, path: bytes = b"/mail") -> Answer:
        return await self._client.ask(self._proxy.request(b"GET " + path, *fields))

    async def get(self, *fields: bytes, path: bytes = b"/mail") -> bytes:
        return (await self.ask(*fields, path=path)).body

    async def log_in(self, user: bytes) -> bytes:
        await self.get()
        await self.get(first_step())
        return await self.get(login_of(user))

    async def send(self) -> None:
        await self._client.send(self._proxy.request(b"GET /mail"))

    def leave(self) -> None:
        self._client.leave()


@asynccontextmanager
async def two_users(proxy: RunningProxy) -> AsyncIterator[tuple[User, User]]:
    async with proxy.connect() as ada, proxy.connect() as bob:
        yield User(proxy, ada), User(proxy, bob)


@pytest.mark.parametrize("hits", ["front", "ordinary"])
@pytest.mark.parametrize("delivery", ["buffer", "stream"])
@pytest.mark.parametrize("mode", ["passthrough", "record", "auto"])
async def test_each_client_is_the_user_that_it_logged_in_as(
    mode: Mode, delivery: Delivery, hits: HitsOn
) -> None:
    async with (
        served(mode, delivery=delivery, hits=hits) as (_, proxy),
        two_users(proxy) as (ada, bob),
    ):
        assert await ada.log_in(b"ada") == b"mail of ada"
        assert await bob.get() == NOBODY
        assert await bob.log_in(b"bob") == b"mail of bob"
        assert await ada.get() == b"mail of ada"
        assert await bob.get() == b"mail of bob"


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ([login_of(b"ada", b"Negotiate")], b"ada"),
        ([login_of(b"ada", b"nEGOTIATE", b"aUTHORIZATION")], b"ada"),
        ([login_of(b"ada", b"Negotiate", b"Proxy-Authorization")], b"ada"),
        ([b"Authorization: Basic YWRhOmFkYQ"], b"YWRhOmFkYQ"),
    ],
    ids=["negotiate", "any-case", "proxy-authorization", "persistent-auth"],
)
@pytest.mark.parametrize("mode", ["passthrough", "record", "auto"])
async def test_a_login_without_a_challenge_is_nobody_elses(
    mode: Mode, fields: list[bytes], user: bytes
) -> None:
    async with served(mode) as (_, proxy), two_users(proxy) as (ada, bob):
        assert await ada.get(*fields, path=b"/a") == b"mail of " + user
        assert await bob.get(path=b"/b") == NOBODY
        assert await ada.get(path=b"/c") == b"mail of " + user


async def test_the_steps_of_a_login_go_over_the_connection_of_the_challenge() -> None:
    async with served() as (service, proxy), two_users(proxy) as (ada, bob):
        await ada.get()
        await bob.get()
        await ada.get(first_step())
        await bob.get(first_step())

        assert await ada.get(login_of(b"ada")) == b"mail of ada"
        assert await bob.get(login_of(b"bob")) == b"mail of bob"
        assert [number for _, number in service.asked] == [0, 1, 0, 1, 0, 1]


async def test_pipelined_steps_are_taken_in_their_order() -> None:
    async with served() as (_, proxy), proxy.connect() as ada:
        steps = [[], [first_step()], [login_of(b"ada")], []]
        await ada.send(b"".join(proxy.request(b"GET /mail", *fields) for fields in steps))

        bodies = [(await ada.answer()).body for _ in steps]
        assert bodies == [NOBODY, b"", b"mail of ada", b"mail of ada"]


async def test_the_connection_ends_with_its_clients() -> None:
    async with served() as (service, proxy), two_users(proxy) as (ada, bob):
        await ada.log_in(b"ada")
        await bob.log_in(b"bob")
        ada.leave()
        await service.left(1)

        assert await bob.get() == b"mail of bob"


async def test_the_connection_of_a_client_that_left_during_an_answer_is_not_used_again() -> None:
    async with served("record") as (service, proxy), two_users(proxy) as (ada, bob):
        await ada.log_in(b"ada")
        service.hold = asyncio.Event()
        await ada.send()
        await service.held.wait()
        ada.leave()
        service.hold.set()
        await service.left(0)

        assert await bob.get() == NOBODY


async def test_after_the_services_connection_has_ended_nobody_is_logged_in() -> None:
    async with served() as (service, proxy), two_users(proxy) as (ada, _):
        await ada.log_in(b"ada")
        assert await ada.get(path=b"/bye") == b"bye"
        await service.left(0)

        assert await ada.get() == NOBODY
        assert await ada.log_in(b"ada") == b"mail of ada"


async def test_a_client_of_http_1_0_takes_its_login_with_it() -> None:
    async with served() as (service, proxy):
        old = b"GET /mail HTTP/1.0\r\nHost: a\r\n%b\r\n\r\n"
        answer = await proxy.send(old % login_of(b"ada", b"Negotiate"))
        assert answer.body == b"mail of ada"
        await service.left(0)

        assert (await proxy.ask(b"GET /mail")).body == NOBODY


async def test_clients_that_do_not_log_in_share_connections() -> None:
    challenge = b'WWW-Authenticate: Bearer realm="a, NTLM b"\r\nPersistent-Auth: false\r\n'
    answer = b"HTTP/1.1 401 Unauthorized\r\n%bContent-Length: 0\r\n\r\n" % challenge
    async with Peer(answer) as peer, running_proxy(peer.url, mode="passthrough") as proxy:
        for _ in range(3):
            await proxy.ask(b"GET /", b"Authorization: Bearer NTLM")
        assert peer.connections == 1


async def test_equal_steps_of_two_clients_are_two_calls() -> None:
    async with served("auto") as (service, proxy), two_users(proxy) as (ada, bob):
        await asyncio.gather(ada.get(first_step()), bob.get(first_step()))

        assert await ada.get(login_of(b"ada")) == b"mail of ada"
        assert await bob.get(login_of(b"bob")) == b"mail of bob"
        service.hold = asyncio.Event()
        asking = asyncio.gather(ada.get(path=b"/new"), bob.get(path=b"/new"))
        await service.held.wait()
        service.hold.set()
        of_ada, of_bob = await asking
        assert (of_ada, of_bob) == (b"mail of ada", b"mail of bob")


async def test_in_auto_an_answer_serves_its_connection_again() -> None:
    async with served("auto") as (service, proxy), two_users(proxy) as (ada, bob):
        await ada.log_in(b"ada")
        asked = len(service.asked)
        again = await ada.ask()
        assert (again.body, again.outcome, len(service.asked)) == (
            *(b"mail of ada", b"replayed", asked),
        )
        # Whoever logs in anew on the connection may be somebody else.
        assert await ada.log_in(b"eve") == b"mail of eve"
        assert await ada.get() == b"mail of eve"
        assert await bob.get() == NOBODY


async def test_in_auto_a_websocket_session_is_for_the_connection_that_logged_in() -> None:
    async def greet(socket: web.WebSocketResponse, request: web.Request) -> None:
        async for _ in socket:
            await socket.send_str(request.headers["Authorization"].rpartition(".")[2])

    async with serving(asking=greet) as service, running_proxy(service.url, mode="auto") as proxy:
        for user in ("ada", "bob"):
            login = {"Authorization": f"Negotiate TlRMTVNTUAADAAAAGAAYAIIAAAA.{user}"}
            async with connected(proxy.url, "/chat", login) as client:
                await client.send("who am I?")
                assert await client.recv() == user


@pytest.mark.parametrize("hits", ["front", "ordinary"])
async def test_logins_of_two_users_replay_in_their_order(hits: HitsOn) -> None:
    store = MemoryStore()
    async with served("record", store=store) as (_, proxy), two_users(proxy) as (ada, bob):
        live = await logins(ada, bob)
    async with (
        running_proxy(mode="replay", store=store, hits=hits) as proxy,
        two_users(proxy) as (ada, bob),
    ):
        assert await logins(ada, bob) == live
    assert [body for body, _ in live] == [
        *(NOBODY, b"", b"mail of ada", NOBODY, b"", b"mail of bob", b"mail of ada", b"mail of bob"),
    ]


async def logins(ada: User, bob: User) -> list[tuple[bytes, list[bytes]]]:
    answers = []
    for user, name in ((ada, b"ada"), (bob, b"bob")):
        answers += [await user.ask(), await user.ask(first_step()), await user.ask(login_of(name))]
    answers += [await ada.ask(), await bob.ask()]
    return [(answer.body, answer.values(b"WWW-Authenticate")) for answer in answers]


async def test_no_token_of_a_client_is_stored_and_the_challenge_is() -> None:
    store = MemoryStore()
    async with served("record", store=store) as (_, proxy), two_users(proxy) as (ada, _):
        await ada.log_in(b"ada")
        await ada.get()
        stored = await store.load("default", writable=False)

    assert stored is not None
    text = document.save(stored)
    assert CHALLENGE in text
    assert b"TlRMTVNTUAAB" not in text
    assert b"TlRMTVNTUAAD" not in text
