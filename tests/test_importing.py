"""Modules are imported without garbage collections, wherever a program of tapeway's begins."""

import gc
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tapeway.importing import imported, without_authorities
from tests.upstream.certificate_authority import AUTHORITY

_COLLECTIONS_OF_A_SERVER = """
import gc, sys
import click
from tapeway.cli.main import tapeway
begun = 0
def count(phase, info):
    global begun
    begun += phase == "start"
gc.callbacks.append(count)
tapeway.get_command(click.Context(tapeway), "serve")
print(begun, "tapeway.server.lifecycle" in sys.modules)
"""


def test_the_command_imports_the_server_without_collections() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTIONS_OF_A_SERVER], capture_output=True, text=True, check=True
    )

    begun, whole = done.stdout.split()
    assert whole == "True"
    assert int(begun) < 40


@pytest.mark.parametrize("name", ["json.tool", "tapeway.no_such_module"])
@pytest.mark.parametrize("collects", [True, False])
def test_collections_go_on_as_before(name: str, collects: bool) -> None:
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        if name.startswith("json"):
            assert imported(name) is sys.modules[name]
        else:
            with pytest.raises(ModuleNotFoundError):
                imported(name)
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


_AUTHORITIES_READ = """
import tapeway.cli.serve
from aiohttp import connector
import ssl
contexts = (connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED)
contexts += (ssl.create_default_context(),)
print(*(each.cert_store_stats()["x509_ca"] for each in contexts))
"""


@pytest.fixture
def one_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    AUTHORITY.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))


@pytest.mark.usefixtures("one_authority")
def test_a_server_reads_no_authorities_as_it_starts() -> None:
    command = [sys.executable, "-c", _AUTHORITIES_READ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["0", "0", "1"]


@pytest.mark.usefixtures("one_authority")
def test_contexts_know_the_authorities_again_after_an_import_that_failed() -> None:
    with without_authorities():
        assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 0
    with pytest.raises(ImportError), without_authorities():
        imported("tapeway.no_such_module")

    assert ssl.create_default_context().cert_store_stats()["x509_ca"] == 1
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_default_verify_paths()
    assert context.cert_store_stats()["x509_ca"] == 1
