"""The options for pages and host names that are foreign otherwise."""

from pathlib import Path

import pytest

from tests.process.serving import Tapeway, refused
from tests.support.raw_client import RawClient


async def status_of(tapeway: Tapeway, origin: str, host: str = "127.0.0.1") -> int:
    lines = ("GET /nowhere HTTP/1.1", f"Host: {host}", *([f"Origin: {origin}"] if origin else []))
    async with RawClient(tapeway.proxy) as client:
        return (await client.ask("\r\n".join([*lines, "", ""]).encode())).status


OPTIONS: dict[str, tuple[list[str], dict[str, str], str]] = {
    "flags": (
        [
            *("--allow-origin", "https://a.example", "--allow-origin", "https://b.example:8443"),
            *("--allow-host", "c.example", "--allow-host", "d.example"),
        ],
        {},
        "",
    ),
    "variables": (
        [],
        {
            "TAPEWAY_ALLOW_ORIGIN": "https://a.example,https://b.example:8443",
            "TAPEWAY_ALLOW_HOST": "c.example, d.example",
        },
        "",
    ),
    "the file": (
        [],
        {},
        'allow_origin = ["https://a.example", "https://b.example:8443"]\n'
        'allow_host = ["c.example", "d.example"]\n',
    ),
}


@pytest.mark.parametrize("given", OPTIONS.values(), ids=OPTIONS)
async def test_origins_and_hosts_are_allowed_by_flag_variable_and_file(
    tmp_path: Path, given: tuple[list[str], dict[str, str], str]
) -> None:
    flags, environ, file = given
    if file:
        (tmp_path / "tapeway.toml").write_text(file)
    async with Tapeway(tmp_path, "--mode", "replay", *flags, environ=environ) as tapeway:
        for origin in ("https://a.example", "https://b.example:8443", "http://localhost:3000", ""):
            assert await status_of(tapeway, origin) == 404
        for host in ("c.example", "d.example:80"):
            assert await status_of(tapeway, "", host) == 404
        assert await status_of(tapeway, "https://b.example") == 403
        assert await status_of(tapeway, "https://e.example") == 403
        assert await status_of(tapeway, "", "e.example") == 421
        warnings = [line["message"] for line in tapeway.log if line["level"] == "warning"]

    refused = [message for message in warnings if not message.startswith("a call failed: ")]
    assert [message.rpartition("; ")[2] for message in refused] == [
        "--allow-origin https://b.example serves it",
        "--allow-origin https://e.example serves it",
        "--allow-host e.example serves it",
    ]


async def test_beyond_loopback_every_host_is_served_and_no_foreign_page(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--mode", "replay", "--listen", "0.0.0.0:0") as tapeway:
        assert await status_of(tapeway, "", "tapeway.corp.example") == 404
        assert await status_of(tapeway, "http://web:3000", "tapeway.corp.example") == 404
        assert await status_of(tapeway, "http://192.0.2.7:3000", "192.0.2.7:8080") == 404
        # The name may have been made to lead here.
        own = "http://tapeway.corp.example"
        assert await status_of(tapeway, own, "tapeway.corp.example") == 403


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--allow-origin", "app.example", "'app.example' is not the origin of a page; give scheme"),
        ("--allow-origin", "https://a.example/x", "is not the origin of a page; give scheme"),
        ("--allow-host", "*", "'*' is not the name of a host; give it without scheme and port"),
    ],
)
async def test_what_is_no_origin_and_no_host_stops_the_start(
    tmp_path: Path, option: str, value: str, said: str
) -> None:
    code, message = await refused(tmp_path, option, value)

    assert code == 2
    assert message.startswith(f"{option}: ")
    assert said in message
