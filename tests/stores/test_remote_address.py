"""Addresses of other tapeways."""

import pytest

from tapeway.errors import ConfigError
from tapeway.stores.opening import open_store
from tapeway.stores.remote.client import address_of
from tapeway.stores.remote.store import RemoteStore


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

    assert (address.root, address.token, address.shown) == (root, token, root)


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
