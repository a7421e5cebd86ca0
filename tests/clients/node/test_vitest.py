"""Whole runs of vitest with the SDKs: what one records, the next replays, each test from its own."""

import json
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.node.npm_project import PACKAGE, Output, Projects, cassettes, remaining_in, run

OWN = {
    *("openai", "openai_-streamed-956919", "anthropic", "ai", "langchain"),
    *("a-miss-that-the-code-handles", "passes-at-the-second-try"),
    *(
        "rules.another-user",
        "names.Alike-688614",
        "names.alike-813666",
        "names.twice",
        "names.twice-2",
    ),
}
CONCURRENT = {"same", *map(str, range(8))}
FAILS = "fails after it asked"


def vitest(folder: Path, **environ: str) -> tuple[Output, dict[str, str]]:
    """Run all tests; the messages of those that failed, by their titles."""
    done = run(folder, ["vitest", "run", "--reporter=json", "--outputFile=found.json"], **environ)
    results = [
        result
        for file in json.loads((folder / "found.json").read_text())["testResults"]
        for result in file["assertionResults"]
    ]
    assert len(results) == 27
    failed = [result for result in results if result["status"] == "failed"]
    return done, {result["title"]: "\n".join(result["failureMessages"]) for result in failed}


@pytest.mark.slow
def test_each_test_records_to_a_cassette_of_its_own_and_replays_from_it(project: Projects) -> None:
    folder = project("vitest")
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY"), "none")
    with ThreadedStandIn() as upstream:
        routes = f"openai={upstream.url},anthropic={upstream.url}"
        recording, unlike = vitest(
            folder,
            **{**keys, "TAPEWAY_MODE": "record", "TAPEWAY_ROUTE": routes},
            **{"EXPECTED": "no such word", "RETRIED": "1"},
        )
    kept = {path: path.read_bytes() for path in (folder / "cassettes").rglob("*.json")}

    assert set(unlike) == {FAILS}, recording.stdout + recording.stderr
    assert cassettes(folder / "cassettes") == {
        *("shared/by-two", "shared/set-up"),
        *(f"sdks.test/{name}" for name in OWN),
        *(f"concurrent/{name}" for name in CONCURRENT),
    }
    # What a failed test recorded, and the first try of one that then passed.
    assert cassettes(folder / ".tapeway/failed") == {
        "sdks.test/fails-after-it-asked",
        "sdks.test/passes-at-the-second-try",
    }

    failed = ".tapeway/failed/sdks.test/fails-after-it-asked.json"
    assert f"set aside: what sdks.test.ts::{FAILS} recorded is in {failed}" in recording.stderr
    # As installed from a folder, of which vitest loads parts in a way of its own.
    (folder / "node_modules").mkdir(exist_ok=True)
    (folder / "node_modules" / "tapeway").symlink_to(PACKAGE)
    # Without keys and without a service; what is missing is not asked for.
    replaying, missed = vitest(
        folder, CI="true", TAPEWAY_MODE="auto", CHANGED="Name a bug.", ASTRAY="1"
    )

    assert "tapeway: 1 miss: there is no cassette 'sdks.test/" in replaying.stderr
    causes = "misses, one cause: messages[0].content: Name a spider. → Name a bug."
    assert causes in replaying.stderr
    assert "to record what was missed: TAPEWAY_MODE=record npx vitest run" in replaying.stderr
    assert "look at it in a browser: .tapeway/last.html" in replaying.stderr
    assert "Name a bug." in (folder / ".tapeway/last.html").read_text()

    difference = "messages[0].content: Name a spider. → Name a bug."
    # Of tests that run at the same time, one is told of the requests past the cassettes of both.
    astray = [missed.pop(title) for title in ("with fetch", "past fetch") if title in missed]
    assert set(missed) == {"openai", "a miss that the code handles", FAILS}
    for title in ("openai", "a miss that the code handles"):
        assert difference in missed[title]
        command = f"TAPEWAY_MODE=record npx vitest run sdks.test.ts -t '{title}$'"
        assert f"record with: {command}" in missed[title]
    assert "there is no cassette 'sdks.test/fails-after-it-asked" in missed[FAILS]
    assert "POST /v1/chat/completions" in "".join(astray)
    assert "GET /v1/models" in "".join(astray)
    assert all("was sent while no test had a cassette for it" in text for text in astray)
    assert {path: path.read_bytes() for path in kept} == kept
    assert cassettes(folder / "cassettes") == {
        path.relative_to(folder / "cassettes").with_suffix("").as_posix() for path in kept
    }
    assert remaining_in(folder) == []
