"""Whole runs of the other test runners, over a tapeway that runs already; by default of one."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tapeway.embedded.deck import Deck, serve
from tapeway.testing import ThreadedStandIn
from tests.clients.node.npm_project import Projects, cassettes, run
from tests.support.thoroughness import runs_everything

pytestmark = pytest.mark.usefixtures("forked_proxies")

ASTRAY = "POST /v1/chat/completions was sent while no test had a cassette for it"
DIFFERENCE = "messages[0].content: Name a spider. → Name a big spider."


@dataclass(frozen=True, slots=True)
class Runner:
    """A test runner: its command, the cassettes its tests make, and that of the one that fails."""

    program: str
    command: tuple[str, ...]
    kept: frozenset[str]
    failed: str
    said: tuple[str, ...]
    """What else the second run says."""
    record: str
    """The command that records what one test missed."""

    def __str__(self) -> str:
        return self.program


RUNNERS = [
    Runner(
        "jest",
        ("jest",),
        frozenset(
            {
                *("chat.test/spiders.named-185420", "chat.test/spiders.Named-063688"),
                *("concurrent/one", "concurrent/two", "concurrent/three"),
            }
        ),
        "chat.test/fails-after-it-asked",
        (ASTRAY, "tapeway: 4 replayed, 2 missed, 1 failed"),
        "npx jest chat.test.js -t 'fails after it asked$'",
    ),
    Runner(
        "node-test",
        ("node", "--import", "tapeway/node-test", "--test"),
        frozenset(
            {
                *("chat.test/spider", "chat.test/with-subtests"),
                *("concurrent/a", "concurrent/b", "concurrent/c"),
            }
        ),
        "chat.test/fails-after-it-asked",
        (ASTRAY, "two tests have this name"),
        "node --import tapeway/node-test --test "
        "--test-name-pattern='fails after it asked$' chat.test.mjs",
    ),
    Runner(
        "playwright",
        ("playwright", "test"),
        frozenset(
            {
                *("chat.spec/spider", "shared/one"),
                "chat.spec/an-application-behind-the-worker_s-slot-503884",
            }
        ),
        "chat.spec/fails-after-it-asked",
        ("tapeway: 2 replayed, 2 missed",),
        "npx playwright test chat.spec.ts -g 'fails after it asked'",
    ),
]


@pytest.fixture
def upstream() -> Iterator[str]:
    with ThreadedStandIn() as found:
        yield found.url


def environment(deck: Deck) -> dict[str, str]:
    return {
        **{"TAPEWAY_URL": deck.url(), "TAPEWAY_ADMIN_URL": deck.admin_url},
        **{"OPENAI_BASE_URL": deck.url("openai"), "ANTHROPIC_BASE_URL": deck.url("anthropic")},
        **dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "none"),
        "TAPEWAY_ADMIN_TOKEN": "a-token-of-its-own",
    }


def names(deck: Deck) -> set[str]:
    """The cassettes there are: those that tests share are written in full when the server ends."""
    found = deck.admin.call("GET", "cassettes")["cassettes"]
    return {cassette["name"] for cassette in found if cassette["interactions"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "runner",
    [runner for runner in RUNNERS if runs_everything() or runner.program == "node-test"],
    ids=str,
)
def test_each_test_records_and_replays_and_one_that_missed_fails(
    runner: Runner, project: Projects, upstream: str
) -> None:
    folder = project(runner.program)
    routes = [f"{name}={upstream}" for name in ("openai", "anthropic")]
    with serve(
        mode="replay",
        store=str(folder / "cassettes"),
        route=routes,
        admin_token="a-token-of-its-own",
    ) as deck:
        given = environment(deck)
        recording = run(
            folder, runner.command, **given, TAPEWAY_MODE="record", EXPECTED="no such word"
        )
        recorded = names(deck)
        changed = run(folder, runner.command, **given, CHANGED="Name a big spider.", ASTRAY="1")

        kept = names(deck)

    assert recording.returncode != 0
    assert recorded == kept == runner.kept, recording.stdout
    assert cassettes(folder / ".tapeway/failed") == {runner.failed}
    said = changed.stdout + changed.stderr
    assert changed.returncode != 0
    for text in (DIFFERENCE, f"there is no cassette '{runner.failed}'", *runner.said):
        assert text in said
    assert f"record it with TAPEWAY_MODE=record {runner.record}" in said
