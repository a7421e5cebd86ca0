"""An upstream that is not there fails the call and nothing else."""

import json
from pathlib import Path

import pytest

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway
from tests.support.ports import free_ports
from tests.support.raw_client import Answer


def error_of(answer: Answer) -> dict[str, str]:
    error: dict[str, str] = json.loads(answer.body)["error"]
    return error


@pytest.mark.parametrize("mode", ["auto", "record", "passthrough"])
async def test_it_is_named_with_what_to_look_at_and_asked_anew_once_it_is_there(
    tmp_path: Path, mode: str
) -> None:
    [port] = free_ports(1)
    options = ("--upstream", f"http://127.0.0.1:{port}", "--mode", mode)
    async with Tapeway(tmp_path, *options) as tapeway:
        for _ in range(2):
            answer = await tapeway.ask("/x")
            assert answer.status == 502
            assert answer.outcome == b"error"
            assert error_of(answer)["code"] == "upstream_unreachable"
            assert f"127.0.0.1:{port} cannot be reached" in error_of(answer)["message"]
            assert "is it running" in error_of(answer)["message"]
        async with Upstream(port=port) as upstream:
            assert (await tapeway.ask("/x")).body == upstream.only_answer("/x")
        assert (await tapeway.admin("GET", "/readyz"))[0] == 200


async def test_a_name_that_leads_nowhere_is_told_from_a_service_that_is_down(
    tmp_path: Path,
) -> None:
    options = ("--upstream", "http://no-such-host.invalid")
    async with Tapeway(tmp_path, *options) as tapeway:
        answer = await tapeway.ask("/x")
        assert answer.status == 502
        assert error_of(answer)["code"] == "upstream_dns"
        assert "no-such-host.invalid" in error_of(answer)["message"]
        assert "check the URL and the network" in error_of(answer)["message"]
        status = await tapeway.status()

    assert status["counts"]["error"] == 1
    assert list(tapeway.store.glob("*.json")) == []
