"""Addresses that lead back to the proxy, in the terms that the client used."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.routing import RequestAddress, Route, RouteTable, resolve
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.way_back.addresses import WayBack, WaysBack
from tapeway.providers.paths import owner

PROXY = "http://127.0.0.1:8080"
TABLE = RouteTable(
    {
        "openai": Route("openai", "https://api.openai.com"),
        "gateway": Route("gateway", "https://gw.example/llm/v1"),
        "tools": Route("tools", "https://gw.example"),
    },
    Route("default", "https://mine.example"),
)
NO_DEFAULT = RouteTable(
    {
        "openai": Route("openai", "https://api.openai.com"),
        "gemini": Route("gemini", "https://google.example"),
        "azure": Route("azure", None),
    }
)


def way(asked: str, base: str | None = None, table: RouteTable = TABLE) -> WayBack:
    """The way back of a response to a request for this path, made at a URL."""
    address = resolve(table, owner, asked, RequestFields(()))
    made_at = address.route.url or "" if base is None else base
    return WaysBack(table, owner).of(address, made_at, PROXY, {})


@pytest.mark.parametrize(
    ("asked", "url", "led"),
    [
        ("/openai/x", "https://api.openai.com/v1/files/1?a=b#c", "/openai/v1/files/1?a=b#c"),
        ("/@c/openai/x", "https://api.openai.com/v1", "/@c/openai/v1"),
        ("/@~slot/openai/x", "https://api.openai.com", "/@~slot/openai/"),
        ("/openai/x", "HTTPS://API.OpenAI.com:443/v1", "/openai/v1"),
        ("/openai/x", "https://me:pw@api.openai.com/v1", "/openai/v1"),
        ("/openai/x", "https://api.openai.com?a=b", "/openai/?a=b"),
        # Another route than the client's own.
        ("/openai/x", "https://mine.example/jobs/1", "/jobs/1"),
        ("/@c/openai/x", "https://mine.example/jobs/1", "/@c/jobs/1"),
        ("/@c/x", "https://api.openai.com/v1/files", "/@c/openai/v1/files"),
        # The longest path is the most specific, and the client's own route comes first.
        ("/openai/x", "https://gw.example/llm/v1/chat", "/gateway/chat"),
        ("/openai/x", "https://gw.example/llm/v2/chat", "/tools/llm/v2/chat"),
        ("/tools/x", "https://gw.example/llm/v1/chat", "/tools/llm/v1/chat"),
        ("/gateway/x", "https://gw.example/llm/v1/chat", "/gateway/chat"),
    ],
)
def test_an_address_of_a_route_leads_through_the_proxy(asked: str, url: str, led: str) -> None:
    found = way(asked)

    assert found.lead(url) == PROXY + led
    assert not found.elsewhere


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("https://other.example/v1/x", "https://other.example"),
        ("http://api.openai.com/v1", "http://api.openai.com"),
        ("https://api.openai.com:8443/v1", "https://api.openai.com:8443"),
        ("https://api.openai.com.evil.example/v1", "https://api.openai.com.evil.example"),
        ("https://api.openai.com@evil.example/v1", "https://evil.example"),
        # The proxy cannot be asked for these paths of the default route.
        ("https://mine.example/openai/v1", "https://mine.example"),
        ("https://mine.example/@c/x", "https://mine.example"),
        (f"{PROXY}/openai/v1", None),
        ("https://api.openai.com:port/v1", None),
        ("https://api.openai.com:99999/v1", None),
        ("https://[::1/base", None),
        ("https:///x", None),
        ("/v1/x", None),
        ("mailto:me@api.openai.com", None),
        ("", None),
    ],
)
def test_any_other_address_stays_and_its_origin_is_named(url: str, named: str | None) -> None:
    found = way("/openai/x")

    assert found.lead(url) == url
    assert list(found.elsewhere) == ([] if named is None else [named])


def test_a_recording_leads_back_from_the_origin_at_which_it_was_made() -> None:
    found = way("/@c/openai/x", base="http://127.0.0.1:9000/base")

    assert found.lead("http://127.0.0.1:9000/base/v1/x") == f"{PROXY}/@c/openai/v1/x"
    assert found.lead("https://api.openai.com/v1/x") == f"{PROXY}/@c/openai/v1/x"
    assert found.lead("http://127.0.0.1:9000/basement") == "http://127.0.0.1:9000/basement"


def test_a_recording_of_a_service_without_a_route_leads_back_too() -> None:
    found = way("/jobs", base="https://elsewhere.example", table=NO_DEFAULT)

    assert found.lead("https://elsewhere.example/jobs/1") == f"{PROXY}/jobs/1"


@pytest.mark.parametrize(
    ("asked", "url", "led"),
    [
        ("/v1beta/models", "https://google.example/upload/v1beta/files", "/upload/v1beta/files"),
        ("/v1beta/models", "https://google.example/other", "/gemini/other"),
        ("/@c/v1/responses", "https://api.openai.com/v1/files/1", "/@c/v1/files/1"),
        ("/@c/v1/responses", "https://api.openai.com/jobs/1", "/@c/openai/jobs/1"),
    ],
)
def test_a_route_that_was_read_off_the_path_is_named_where_the_new_path_does_not_tell(
    asked: str, url: str, led: str
) -> None:
    assert way(asked, table=NO_DEFAULT).lead(url) == PROXY + led


@pytest.mark.parametrize(
    ("asked", "reference", "led"),
    [
        ("/tools/sse", "/messages/?session_id=abc", "/tools/messages/?session_id=abc"),
        ("/@c/tools/sse", "/messages", "/@c/tools/messages"),
        ("/gateway/x", "/llm/v1/jobs/1", "/gateway/jobs/1"),
        ("/gateway/x", "/elsewhere", "/elsewhere"),
        ("/x", "/jobs/1", "/jobs/1"),
        ("/@c/x", "/jobs/1", "/@c/jobs/1"),
        ("/tools/sse", "messages", "messages"),
        ("/tools/sse", "?a=/b", "?a=/b"),
        ("/tools/sse", "//gw.example/x", f"{PROXY}/tools/x"),
        ("/tools/sse", "//evil.example/x", "//evil.example/x"),
        ("/tools/sse", "", ""),
    ],
)
def test_a_path_gets_the_prefix_that_the_client_used(asked: str, reference: str, led: str) -> None:
    assert way(asked).lead_reference(reference) == led


@given(st.text(max_size=30), st.sampled_from(["", "https://gw.example", "https://", "//", "/"]))
def test_no_text_at_all_is_an_error(rest: str, start: str) -> None:
    way("/tools/x").lead_reference(start + rest)
    way("/tools/x", base=start + rest).lead("https://gw.example/x")


def test_a_route_without_a_url_leads_nowhere() -> None:
    address = RequestAddress(None, Route("azure", None), "/x", "/azure")
    found = WaysBack(NO_DEFAULT, owner).of(address, "", PROXY, {})

    assert found.lead("https://x.example/y") == "https://x.example/y"
    assert found.lead_reference("/y") == "/azure/y"
