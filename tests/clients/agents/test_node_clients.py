"""Clients for Node.js, recorded and replayed with `--offline`: by their services' own names, and Bedrock's
by base URL.

Node.js follows proxy variables from 22.21 and 24.5 on. `make agents` installs one that does, and the
clients; the tests are skipped otherwise.
"""

import shutil
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.agents.test_elsewhere import NODE_MODULES, PROGRAMS, need
from tests.process.commands.test_run import run
from tests.support.aws_signatures import is_signed_by, signature_of
from tests.support.canary import sightings
from tests.support.company import KEYS, REGION, Network, company

pytestmark = pytest.mark.slow

NODE = NODE_MODULES / ".bin" / "node"
OF_BEDROCK = ("aws", "anthropic-bedrock")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command that asks with the clients named behind it."""
    need(NODE_MODULES / "@aws-sdk" / "client-bedrock-runtime")
    # Node looks for packages beside the program.
    folder = tmp_path_factory.mktemp("programs")
    (folder / "node_modules").symlink_to(NODE_MODULES)
    copy = shutil.copy(PROGRAMS / "service_clients.mjs", folder)
    return (need(NODE), str(copy))


@pytest.mark.parametrize("client", ["openai", "anthropic", "vercel", "google", *OF_BEDROCK])
async def test_a_client_replays_offline_without_a_base_url(
    tmp_path: Path, command: tuple[str, ...], client: str
) -> None:
    async with company(tmp_path) as network:
        live = await network.run("--", *command, client)
        assert live.code == 0, live.err
        assert "hello" in live.out
        secrets = {"the password": network.password, **KEYS}
        if client in OF_BEDROCK:
            assert all(is_signed_by(request, KEYS) for request in network.asked)
            secrets |= {request.target: signature_of(request) for request in network.asked}
        places = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
        places |= {"out": live.out.encode(), "err": live.err.encode()}
        assert sightings(secrets, places) == []
    replayed = await Network(tmp_path).run("--strict", "--", *command, client, offline=True)

    assert (replayed.code, replayed.out) == (0, live.out), replayed.err
    assert (live.report["bypassed"], replayed.report["bypassed"]) == ([], [])


@pytest.mark.parametrize("client", OF_BEDROCK)
def test_a_client_of_bedrock_is_signed_anew_and_replayed_with_dummies(
    tmp_path: Path, command: tuple[str, ...], client: str
) -> None:
    command = (*command, client)
    keys = {name: value for name, value in KEYS.items() if name.startswith("AWS_")}
    with ThreadedStandIn() as service:
        route = f"--route=bedrock={service.url}"
        live = run(tmp_path, route, command=command, environ={**keys, **REGION})
    replayed = run(tmp_path, "--offline", "--strict", command=command, environ=REGION)

    assert live.returncode == 0, live.stderr
    assert (replayed.returncode, replayed.stdout) == (0, live.stdout), replayed.stderr
    assert service.requests
    assert all(is_signed_by(request, keys) for request in service.requests)
    stored = (tmp_path / "cassettes" / "default.json").read_bytes()
    signatures = {request.target: signature_of(request) for request in service.requests}
    places = {"the cassette": stored, "the log": live.stderr.encode()}
    assert sightings(keys | signatures, places) == []
