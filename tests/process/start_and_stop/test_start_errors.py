"""What cannot be started ends with one line that says what happened and what to do."""

import socket
from pathlib import Path

import pytest

from tests.process.privileges import drop_rights
from tests.process.serving import FAILURE, USAGE, refused


@pytest.mark.parametrize(
    ("options", "happened", "to_do"),
    [
        (("--listne", "127.0.0.1:0"), "No such option", "--listen"),
        (("--mode", "rewind"), "'rewind'", "use replay, record, auto, passthrough"),
        (("--listen", "127.0.0.1:65536"), "--listen", "65535"),
        (("--store", "redis://host"), "no store of the kind redis:", "use a folder"),
        (("--upstream-ca", "no-such-file.pem"), "no-such-file.pem", "PEM"),
        (("--admin-listen", "0.0.0.0:0"), "admin API", "--admin-token"),
        (("surplus",), "surplus", "--help"),
    ],
)
async def test_an_option_that_cannot_be_used_is_named(
    tmp_path: Path, options: tuple[str, ...], happened: str, to_do: str
) -> None:
    code, message = await refused(tmp_path, *options)

    assert code == USAGE
    assert happened in message
    assert to_do in message
    assert not (tmp_path / "cassettes").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('listne = "127.0.0.1:0"', "tapeway.toml: unknown key listne"),
        ('mode = "rewind"', "tapeway.toml: mode"),
        ("mode = ", "tapeway.toml is not TOML"),
    ],
)
async def test_a_file_of_options_that_cannot_be_used_is_named_with_its_key(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "tapeway.toml").write_text(text)

    code, message = await refused(tmp_path)

    assert code == USAGE
    assert said in message


async def test_a_variable_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    code, message = await refused(tmp_path, environ={"TAPEWAY_MODE": "rewind"})

    assert code == USAGE
    assert "TAPEWAY_MODE" in message


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
