"""What cannot be started ends with one line that says what happened and what to do."""

import socket
from pathlib import Path

import pytest

from tests.process.privileges import drop_rights
from tests.process.serving import FAILURE, refused


@pytest.mark.parametrize("option", ["--listen", "--admin-listen"])
async def test_a_taken_port_is_named_with_its_option(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, message = await refused(tmp_path, option, address)

    assert code == FAILURE
    assert message.startswith(f"{option} {address} is taken by another process")
    assert "give another port" in message
    assert not (tmp_path / "cassettes").exists()


async def test_a_privileged_port_is_refused_to_others(tmp_path: Path) -> None:
    start = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
    if int(start.read_text()) <= 80:
        pytest.skip("every user may bind every port here")

    code, message = await refused(tmp_path, "--listen", "127.0.0.1:80", limit=drop_rights)

    assert code == FAILURE
    assert "may not be bound by this user: give a port of 1024 or above" in message
