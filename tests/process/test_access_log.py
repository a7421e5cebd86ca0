"""A line for each request, of whichever outcome and on whichever way, without secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway
from tests.support.canary import canary
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import reuse_all

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACED = (("traceparent", f"00-{TRACE}-00f067aa0ba902b7-01"), ("X-Request-Id", "order-7"))
FIELDS = [
    *("client_address", "method", "path", "cassette", "route", "outcome", "status", "code"),
    *("bytes", "duration_ms", "id", "request_id", "trace_id"),
]
STORES = ((), ("--store", "sqlite:recorded.db"))


def lines(tapeway: Tapeway) -> list[dict[str, Any]]:
    """The lines of the access log."""
    return [line for line in tapeway.log if line["logger"] == "tapeway.access"]


async def answer_to(tapeway: Tapeway, sent: bytes) -> Answer:
    """What answers these bytes."""
    async with RawClient(tapeway.proxy) as client:
        await client.send(sent)
        return await client.answer()


@pytest.mark.parametrize("options", STORES, ids=["a folder", "sqlite"])
async def test_each_request_has_one_line_with_its_outcome(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    reuse_all(tmp_path)
    async with (
        Upstream() as upstream,
        Tapeway(tmp_path, "--access-log", "--upstream", upstream.url, *options) as tapeway,
    ):
        answers = [await tapeway.ask("/a", b"", *TRACED) for _ in range(3)]
        await tapeway.admin("PUT", "/api/v1/mode", {"mode": "replay"})
        await tapeway.ask("/missing")
        await tapeway.until(lambda: len(lines(tapeway)) == 4, "four lines")
        journal = (await tapeway.admin("GET", "/api/v1/journal"))[1]["entries"]

    found = lines(tapeway)
    assert [(entry["outcome"], entry["status"]) for entry in found] == [
        *(("recorded", 200), ("replayed", 200), ("replayed", 200)),
        ("miss", 400),
    ]
    for line, entry in zip(found, reversed(journal), strict=True):
        names = [name for name in line if name not in ("at", "level", "logger", "message")]
        assert names == FIELDS
        assert {name: entry[name] for name in entry if name in names} == {
            name: line[name] for name in names if name in entry
        }
    assert {line["client_address"] for line in found} == {"127.0.0.1"}
    assert [(line["request_id"], line["trace_id"]) for line in found[:3]] == [
        ("order-7", TRACE)
    ] * 3
    assert (found[3]["request_id"], found[3]["trace_id"]) == (found[3]["id"], None)
    assert [line["bytes"] for line in found[:3]] == [len(answers[0].body)] * 3


async def test_the_line_of_a_failed_call_has_the_code_and_a_warning_says_more(
    tmp_path: Path,
) -> None:
    async with Upstream() as upstream:
        url = upstream.url
    options = ("--access-log", "--upstream", url)
    async with Tapeway(tmp_path, *options) as tapeway:
        for _ in range(12):
            await tapeway.ask("/a", b"", *TRACED)

    found = lines(tapeway)
    assert [line["code"] for line in found] == ["upstream_unreachable"] * 12
    warnings = [line for line in tapeway.log if line["logger"] == "tapeway.failures"]
    equal = [line for line in warnings if line["path"] == "/a"]
    assert [line["times"] for line in equal] == [1, 10, 12]
    assert {(line["level"], line["route"], line["code"]) for line in equal} == {
        ("warning", "default", "upstream_unreachable")
    }
    assert [line["id"] for line in equal] == [found[at]["id"] for at in (0, 9, 11)]
    assert {line["request_id"] for line in equal} == {"order-7"}


async def test_it_is_off_by_default_and_independent_of_the_level(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--mode", "replay") as silent:
        await silent.ask("/v1/models")
    assert lines(silent) == []

    options = ("--mode", "replay", "--access-log", "--log-level", "error")
    async with Tapeway(tmp_path, *options) as tapeway:
        await tapeway.ask("/v1/models")
        await tapeway.until(lambda: lines(tapeway), "a line")
    assert {line["logger"] for line in tapeway.log} == {"tapeway.access"}


async def test_secrets_are_replaced_wherever_the_client_put_them(tmp_path: Path) -> None:
    secret = canary()
    async with (
        Upstream() as upstream,
        Tapeway(tmp_path, "--access-log", "--upstream", upstream.url) as tapeway,
    ):
        for _ in range(2):
            await tapeway.ask(
                f"/a?api_key={secret}&q=1",
                b"",
                ("x-api-key", secret),
                ("X-Request-Id", f"of-{secret}"),
            )
        await tapeway.ask("/b", b"", ("X-Request-Id", tapeway.key))
        await tapeway.until(lambda: len(lines(tapeway)) == 3, "three lines")
        journal = (await tapeway.admin("GET", "/api/v1/journal"))[1]

    assert secret not in tapeway.stderr
    assert secret not in json.dumps(journal)
    assert tapeway.key not in json.dumps(journal)
    assert {line["path"].partition("=")[0] for line in lines(tapeway)[:2]} == {"/a?api_key"}
    assert {line["request_id"][:3] for line in lines(tapeway)[:2]} == {"of-"}


async def test_input_that_is_no_request_has_a_line_and_an_entry(tmp_path: Path) -> None:
    async with Tapeway(tmp_path, "--mode", "replay", "--access-log") as tapeway:
        refused = [
            await answer_to(tapeway, raw)
            for raw in (
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: a\r\nBad Name: x\r\n\r\n",
                b"GET /\r\n",
            )
        ]
        await tapeway.until(lambda: len(lines(tapeway)) == 3, "three lines")
        journal = (await tapeway.admin("GET", "/api/v1/journal"))[1]["entries"]

    ids = [answer.value(b"x-request-id").decode() for answer in refused]
    assert [line["id"] for line in lines(tapeway)] == ids
    assert [entry["id"] for entry in reversed(journal)] == ids
    assert [line["status"] for line in lines(tapeway)] == [505, 400, 505]
    assert {line["outcome"] for line in lines(tapeway)} == {"error"}
    assert "HTTP/2" in journal[-1]["message"]
    assert [line["message"] for line in tapeway.log if "HTTP/2" in line["message"]] == [
        "a client speaks HTTP/2 without TLS and gets 505: have it speak HTTP/1.1"
    ]
