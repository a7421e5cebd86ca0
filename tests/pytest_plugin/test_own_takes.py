"""Tests that begin takes themselves, by a rewind and the like, and fixtures that call others."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.pytest_plugin.inner import cassettes, run, write


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with ThreadedStandIn() as found:
        yield found.url


STEERED = """
def words(requests):
    return [each["body"]["messages"][0]["content"] for each in requests]

@pytest.fixture(scope="module")
def inner():
    ask("inner")

@pytest.fixture(scope="module")
def outer(request):
    ask("before it")
    request.getfixturevalue("inner")
    ask("after it")

@pytest.fixture
def rewound(tapeway):
    ask("in a fixture")
    tapeway.rewind()

def test_steers(rewound, cassette, tapeway, request):
    request.getfixturevalue("outer")
    steps = [
        tapeway.rewind,
        lambda: tapeway.eject(cassette.name),
        lambda: tapeway.mode("auto", cassette=cassette.name),
        lambda: tapeway.insert(cassette.name),
    ]
    for number, step in enumerate(steps):
        ask(f"number {number}")
        step()
    sent = ["in a fixture", *(f"number {number}" for number in range(4))]
    assert words(cassette.requests) == sent
    assert len(cassette.calls) == len(sent)
    assert words(tapeway.requests()) == sent[1:]

@pytest.mark.tapeway(cassette="shared")
@pytest.mark.parametrize("asked", ["a", "b"])
def test_shared(asked, tapeway):
    ask(asked)
    tapeway.rewind()
"""
FAILS = """
def test_ejects(cassette, tapeway):
    ask("to be set aside")
    tapeway.eject(cassette.name)
    assert 0

def test_rewinds(cassette, tapeway):
    ask("changed")
    tapeway.rewind()
    ask("changed too")

def test_asks_nothing():
    pass
"""


def prompts(text: bytes) -> list[str]:
    found = json.loads(text)["interactions"]
    return [interaction["request"]["json"]["messages"][0]["content"] for interaction in found]


@pytest.mark.slow
def test_what_a_test_sent_is_its_own_whatever_takes_it_began(tmp_path: Path, upstream: str) -> None:
    write(tmp_path, STEERED)
    recorded = run(tmp_path, "--tapeway=record", upstream=upstream)
    before = cassettes(tmp_path)
    replayed = run(tmp_path, "--tapeway-unused=fail")
    pruned = run(tmp_path, "--tapeway-prune")
    write(tmp_path, FAILS, "test_more.py")
    failed = run(tmp_path, "--tapeway=record", "test_more.py", upstream=upstream)
    write(tmp_path, FAILS.replace("changed", "altered"), "test_more.py")
    missed = run(tmp_path, "test_more.py")

    assert "3 passed" in recorded.stdout, recorded.stdout
    assert prompts(before["test_it/test_steers"]) == [
        *("in a fixture", "number 0", "number 1", "number 2", "number 3"),
    ]
    assert prompts(before["test_it/fixtures.module"]) == ["before it", "inner", "after it"]
    assert replayed.returncode == 0, replayed.stdout
    assert "nothing was pruned: a test began new takes itself" in pruned.stdout
    assert "1 failed, 2 passed" in failed.stdout
    assert (tmp_path / ".tapeway/failed/test_more/test_ejects.json").exists()
    assert {name: cassettes(tmp_path)[name] for name in before} == before
    assert sorted({*cassettes(tmp_path)} - {*before}) == ["test_more/test_rewinds"]
    # A miss counts after a rewind too, for its own test alone.
    assert "2 failed, 1 passed" in missed.stdout
    for asked in ("altered", "altered too"):
        assert f"→ {asked}\n" in missed.stdout
