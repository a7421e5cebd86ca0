import asyncio
import socket
from asyncio import Event
from contextlib import AsyncExitStack, ExitStack, closing

import pytest
from aiohttp import ClientConnectionError, ClientSession, web

from tapeway.errors import TapewayError
from tapeway.server.listeners import LateListener, adopt, listen, mount


def test_a_port_is_taken_from_the_moment_it_is_given_out() -> None:
    # Two processes that start together would otherwise both believe to have it.
    first = listen("--listen", "127.0.0.1", 0)
    with closing(first.socket), pytest.raises(TapewayError, match="taken by another process") as it:
        listen("--admin-listen", "127.0.0.1", first.port)

    assert it.value.message.startswith(f"--admin-listen 127.0.0.1:{first.port} ")


def test_who_connects_before_it_serves_waits() -> None:
    listener = listen("--listen", "127.0.0.1", 0)
    with (
        closing(listener.socket),
        socket.create_connection((listener.host, listener.port)) as early,
    ):
        assert early.getpeername()[1] == listener.port


def test_an_ipv6_address_stands_in_brackets_in_a_url() -> None:
    listener = listen("--listen", "::1", 0)
    with closing(listener.socket):
        assert listener.url == f"http://[::1]:{listener.port}"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("192.0.2.1", "is not an address of this machine"),
        ("no-such-host.invalid", "does not resolve"),
    ],
)
def test_a_place_that_is_not_ours_is_named(host: str, said: str) -> None:
    with pytest.raises(TapewayError, match=said) as refusal:
        listen("--listen", host, 0)

    assert refusal.value.message.startswith(f"--listen {host}")


def test_a_listener_of_the_parent_is_taken_where_its_address_is_asked_for() -> None:
    opened = listen("--listen", "127.0.0.1", 0)
    number = opened.socket.detach()
    adopt(number)
    adopted = listen("--listen", "127.0.0.1", opened.port)
    with closing(adopted.socket):
        assert (adopted.socket.fileno(), adopted.url) == (number, opened.url)


class Made:
    """Makes a server that says hello, and counts how often it was asked to."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> web.Server:
        self.count += 1
        return web.Server(_hello)


async def _hello(request: web.BaseRequest) -> web.Response:
    return web.Response(text="hello")


async def _broken() -> web.Server:
    raise ImportError("something is missing")


async def test_a_late_server_is_made_once_for_the_clients_that_wait_for_it() -> None:
    listener, make = listen("--admin-listen", "127.0.0.1", 0), Made()
    async with AsyncExitStack() as stack, ClientSession() as client:
        late = LateListener(stack, make, listener)
        await asyncio.sleep(0)
        assert make.count == 0

        answers = await asyncio.gather(*[client.get(listener.url) for _ in range(3)])

        assert [await answer.text() for answer in answers] == ["hello"] * 3
        assert make.count == 1
        await late.close()
        await late.ended()
        with pytest.raises(ClientConnectionError):
            await client.get(listener.url)


async def test_a_late_server_that_nobody_called_is_closed_without_being_made() -> None:
    listener, make = listen("--admin-listen", "127.0.0.1", 0), Made()
    async with AsyncExitStack() as stack, ClientSession() as client:
        late = LateListener(stack, make, listener)
        await late.close()
        await late.ended()

        with pytest.raises(ClientConnectionError):
            await client.get(listener.url)
    assert make.count == 0


async def test_a_late_server_that_is_being_made_is_closed_when_it_is_there() -> None:
    listener, called, going_on = listen("--admin-listen", "127.0.0.1", 0), Event(), Event()

    async def make() -> web.Server:
        called.set()
        await going_on.wait()
        return web.Server(_hello)

    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        late = LateListener(stack, make, listener)
        # As a client has it begin, which would be accepted or not.
        late._begin()
        await called.wait()
        closing_it = tasks.create_task(late.close())
        await asyncio.sleep(0)
        assert not closing_it.done()
        going_on.set()
        await closing_it
        await late.ended()

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((listener.host, listener.port))


async def test_clients_of_a_late_server_that_cannot_be_made_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = listen("--admin-listen", "127.0.0.1", 0)
    async with AsyncExitStack() as stack, ClientSession() as client:
        late = LateListener(stack, _broken, listener)
        with pytest.raises(ClientConnectionError):
            await client.get(listener.url)
        await late.close()
        await late.ended()

    assert f"{listener.url} cannot be served" in caplog.text


def _waiting(listening: socket.socket, stack: ExitStack) -> int:
    listening.setblocking(False)
    count = 0
    while True:
        try:
            stack.enter_context(listening.accept()[0])
        except BlockingIOError:
            return count
        count += 1


async def test_a_listener_whose_stack_ends_accepts_nobody_and_closes_what_is_open() -> None:
    listener = listen("--listen", "127.0.0.1", 0)
    async with AsyncExitStack() as stack:
        await mount(stack, web.Server(_hello), listener)
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await reader.readuntil(b"hello")

    async with asyncio.timeout(60):
        assert await reader.read() == b""
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*listener.address)
