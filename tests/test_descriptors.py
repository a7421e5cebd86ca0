"""How many file descriptors there are, and for whom."""

import os
import resource
import subprocess
import sys

import pytest

import tapeway.descriptors as descriptors
from tapeway.descriptors import descriptor_limit, descriptors_left

_LEFT_WITHOUT_INPUT = """
import os
os.close(0)
held = os.open(os.devnull, os.O_RDONLY)
assert held == 0
os.close(0)
from tapeway.descriptors import descriptor_limit, descriptors_left
print(descriptors_left() == descriptor_limit())
"""
_RESTORED = """
import os, resource, subprocess, sys
from tapeway.descriptors import raise_descriptor_limit, restore_descriptor_limit
raise_descriptor_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE))
show = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))"
command = [sys.executable, "-c", show]
print(subprocess.check_output(command, preexec_fn=restore_descriptor_limit, text=True), end="")
"""


def _run(source: str) -> list[str]:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))

    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, preexec_fn=few
    )
    return done.stdout.splitlines()


def test_each_open_file_leaves_one_less() -> None:
    before = descriptors_left()
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    try:
        assert descriptors_left() <= before - 1
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert descriptors_left() == before


def test_with_none_left_there_is_none() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/dev/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    opened: list[int] = []
    try:
        while descriptors_left():
            opened.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises(OSError, match="Too many open files"):
            os.open(os.devnull, os.O_RDONLY)
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptor_limit() == soft


def test_a_process_without_standard_input_has_all_of_them() -> None:
    assert _run(_LEFT_WITHOUT_INPUT) == ["True"]


def test_the_limit_is_raised_and_a_child_gets_what_it_was() -> None:
    assert _run(_RESTORED) == ["(200, 200)", "(100, 200)"]


@pytest.mark.parametrize(
    ("files", "kept", "cassettes", "connections"),
    [(24, 16, 4, 6), (256, 32, 21, 64), (1024, 64, 85, 256), (1 << 20, 64, 1024, 500)],
)
def test_open_files_are_shared_out(
    files: int, kept: int, cassettes: int, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "descriptor_limit", lambda: files)

    assert descriptors.descriptors_kept_back() == kept
    assert descriptors.max_open_cassettes() == cassettes
    assert descriptors.max_upstream_connections() == connections
