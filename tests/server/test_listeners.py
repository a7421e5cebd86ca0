import socket
from contextlib import ExitStack, closing

import pytest

from tapeway.errors import TapewayError
from tapeway.server.listeners import inherited_listener, listen, listen_shared


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


def test_several_listen_on_one_port_and_each_gets_some_of_the_connections() -> None:
    with ExitStack() as stack:
        together = listen_shared("--listen", "127.0.0.1", 0, 3)
        for each in together:
            stack.enter_context(closing(each.socket))
        places = {each.place for each in together}
        for _ in range(300):
            stack.enter_context(socket.create_connection(together[0].place))
        taken = [_waiting(each.socket, stack) for each in together]

    assert len(places) == 1
    assert sum(taken) == 300
    assert min(taken) > 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_port_that_several_share_is_taken_for_everybody_else(count: int) -> None:
    # Another tapeway with workers would get a part of the connections, and nobody would know.
    together = listen_shared("--listen", "127.0.0.1", 0, 2)
    with ExitStack() as stack:
        for each in together:
            stack.enter_context(closing(each.socket))
        with pytest.raises(TapewayError, match="taken by another process"):
            listen_shared("--listen", "127.0.0.1", together[0].port, count)


def test_a_taken_port_is_not_shared() -> None:
    first = listen("--listen", "127.0.0.1", 0)
    with closing(first.socket), pytest.raises(TapewayError, match="taken by another process"):
        listen_shared("--listen", "127.0.0.1", first.port, 2)


def test_one_that_was_handed_over_knows_where_it_listens() -> None:
    listener = listen("--listen", "127.0.0.1", 0)
    other = inherited_listener(listener.socket.detach())
    with closing(other.socket):
        assert other.url == listener.url


def _waiting(listening: socket.socket, stack: ExitStack) -> int:
    listening.setblocking(False)
    count = 0
    while True:
        try:
            stack.enter_context(listening.accept()[0])
        except BlockingIOError:
            return count
        count += 1
