"""Addresses in header fields and cookies lead back; policies stay as they are."""

import pytest

from tapeway.core.http.routing import Route, RouteTable, resolve
from tapeway.core.model.messages import ResponseHead
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.way_back.addresses import WayBack, WaysBack
from tapeway.core.way_back.head import lead_head, names_addresses
from tapeway.providers.paths import owner

UP = "https://api.example"
PROXY = "http://127.0.0.1:8080"
TABLE = RouteTable({"svc": Route("svc", UP)})


def way() -> WayBack:
    return WaysBack(TABLE, owner).of(
        resolve(TABLE, owner, "/@c/svc/x", RequestFields(())), UP, PROXY, {}
    )


def led(name: str, value: str) -> str:
    """The value of a field after it was led back."""
    head = ResponseHead(200, headers=((name.encode(), value.encode()),))
    assert names_addresses(head) or "/" not in value or lead_head(head, way()) is head
    return lead_head(head, way()).headers[0][1].decode()


@pytest.mark.parametrize(
    "name",
    [
        *("Location", "Content-Location", "Operation-Location", "Azure-AsyncOperation"),
        *("X-Goog-Upload-URL", "x-next", "Refresh", "X-Pagination", "SourceMap"),
    ],
)
def test_an_absolute_url_leads_back_in_every_field(name: str) -> None:
    assert led(name, f"{UP}/jobs/1?a={UP}/2") == f"{PROXY}/@c/svc/jobs/1?a={UP}/2"


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        (
            "Link",
            f'<{UP}/i?page=2>; rel="next", <{UP}/i?page=9>; rel="last", <https://docs.example>; rel=help',
            f'<{PROXY}/@c/svc/i?page=2>; rel="next", <{PROXY}/@c/svc/i?page=9>; rel="last", '
            "<https://docs.example>; rel=help",
        ),
        ("Link", "</i?page=2>; rel=next", "</@c/svc/i?page=2>; rel=next"),
        ("Location", "/jobs/1", "/@c/svc/jobs/1"),
        ("Operation-Location", "/jobs/1", "/@c/svc/jobs/1"),
        ("Location", f"{UP}/x?ids=1,{UP}/2", f"{PROXY}/@c/svc/x?ids=1,{UP}/2"),
        (
            "X-Urls",
            f"{UP}/a,{UP}/b, {UP}/c",
            ",".join(f"{PROXY}/@c/svc/{x}" for x in "ab") + f", {PROXY}/@c/svc/c",
        ),
        ("Refresh", f"5; url={UP}/x", f"5; url={PROXY}/@c/svc/x"),
        (
            "WWW-Authenticate",
            f'Bearer realm="mcp", resource_metadata="{UP}/.well-known/x"',
            f'Bearer realm="mcp", resource_metadata="{PROXY}/@c/svc/.well-known/x"',
        ),
        ("X-Path", "/jobs/1", "/jobs/1"),
        ("X-Text", f"not{UP}/x", f"not{UP}/x"),
        ("Location", "relative", "relative"),
    ],
)
def test_each_address_of_a_value_leads_back(name: str, value: str, expected: str) -> None:
    assert led(name, value) == expected


@pytest.mark.parametrize(
    "name",
    [
        *("Content-Security-Policy", "Content-Security-Policy-Report-Only"),
        *("Report-To", "Reporting-Endpoints", "NEL"),
        *("Access-Control-Allow-Origin", "Access-Control-Expose-Headers"),
    ],
)
def test_a_policy_stays_as_it_is(name: str) -> None:
    assert led(name, f"x; {UP}/y") == f"x; {UP}/y"


def test_a_cookie_leads_back_and_no_address_in_its_value() -> None:
    assert led("Set-Cookie", f"to={UP}/x; Path=/; Secure") == f"to={UP}/x; Path=/@c/svc/"


def test_a_head_without_addresses_is_returned_itself() -> None:
    head = ResponseHead(200, headers=((b"Content-Type", b"text/html"), (b"Date", b"1/2/3")))

    assert not names_addresses(head)
    assert lead_head(head, way()) is head
