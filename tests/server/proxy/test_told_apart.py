"""A header that does not count, and that told two equal requests apart, is named with its rule."""

import logging

import pytest

from tapeway.admin.handlers.control import reported_cassette
from tapeway.engine.report.documents import cassette_report
from tapeway.engine.report.forms import text_report
from tests.server.in_process_proxy import running_proxy
from tests.support.socket_upstream import Peer

RULE = 'match = ["x-tenant"] below [rules] has it count'


def answer(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_log_journal_and_report_name_the_header_and_the_rule(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Peer(answer(b"one")) as peer,
        running_proxy(peer.url, mode="record") as proxy,
    ):
        for body in (b"one", b"two", b"one"):
            peer.then(answer(body))
        with caplog.at_level(logging.WARNING):
            for tenant in (b"a", b"b", b"a"):
                await proxy.ask(b"GET /x", b"X-Tenant: " + tenant)
        (report,) = await proxy.broker.reports()
        messages = [entry.message for entry in proxy.journal]

    assert len([record for record in caplog.records if RULE in record.getMessage()]) == 1
    assert messages[-1] is None
    assert all(RULE in str(message) for message in messages[:-1])
    assert report.told_apart == (f"GET /x: {RULE}",)
    assert f"told apart by a header that does not count: GET /x: {RULE}" in text_report([report])
    assert cassette_report(reported_cassette(report).model_dump(mode="json")) == report
