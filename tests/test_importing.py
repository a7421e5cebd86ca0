"""Modules are imported without garbage collections, wherever a program of tapeway's begins."""

import gc
import subprocess
import sys

import pytest

from tapeway.importing import imported

_COLLECTIONS_OF_A_WORKER = """
import gc, runpy, sys
begun = 0
def count(phase, info):
    global begun
    begun += phase == "start"
gc.callbacks.append(count)
sys.argv = ["worker"]
try:
    runpy.run_module("tapeway.workers", run_name="__main__", alter_sys=True)
except TypeError:
    # It got no descriptors to serve on; by then it has imported everything.
    print(begun, "tapeway.server.lifecycle" in sys.modules)
"""


def test_a_worker_imports_the_server_without_collections() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _COLLECTIONS_OF_A_WORKER], capture_output=True, text=True, check=True
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
