"""What the summary says of a renamed test, and of recordings that no test names any more."""

import shutil
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.node.npm_project import Projects, run

COMMANDS = {"vitest": ("vitest", "run"), "jest": ("jest",)}
TEST = """
{imports}
useCassette();
test("{title}", async () => {{
  const body = JSON.stringify({{ model: "m", messages: [{{ role: "user", content: "Say hello" }}] }});
  const answer = await fetch(`${{process.env.OPENAI_BASE_URL}}/chat/completions`, {{
    method: "POST", headers: {{ "Content-Type": "application/json" }}, body,
  }});
  expect(answer.status).toBe(200);
}});
"""
IMPORTS = {
    "vitest": 'import { expect, test } from "vitest"; import { useCassette } from "tapeway/vitest";',
    "jest": 'const { useCassette } = require("tapeway/jest");',
}


@pytest.mark.parametrize("runner", COMMANDS)
def test_a_renamed_test_and_an_orphan_are_named_with_the_command_that_settles_them(
    project: Projects, runner: str
) -> None:
    folder = project(runner)
    for path in folder.glob("*.test.*"):
        path.unlink()
    # A file of its own: tests of other files are not known to be gone.
    _write(folder, runner, "greets")
    with ThreadedStandIn() as upstream:
        environ = {"TAPEWAY_MODE": "record", "TAPEWAY_ROUTE": f"openai={upstream.url}"}
        recording = run(folder, COMMANDS[runner], **environ)
    kept = folder / "cassettes/chat.test/greets.json"
    assert kept.exists(), recording.stdout + recording.stderr
    orphan = folder / "cassettes/chat.test/gone.json"
    orphan.write_text(kept.read_text().replace("Say hello", "Say goodbye"))
    shutil.copytree(kept.parent, folder / "cassettes/other.test")

    _write(folder, runner, "says hello")
    replaying = run(folder, COMMANDS[runner], TAPEWAY_MODE="replay")

    said = replaying.stdout + replaying.stderr
    assert (
        "chat.test/says-hello: its recordings are in chat.test/greets, which no test names: "
        "tapeway cassette mv chat.test/greets chat.test/says-hello"
    ) in said
    assert "no test names chat.test/gone: tapeway cassette rm chat.test/gone" in said
    assert "other.test" not in said


def _write(folder: Path, runner: str, title: str) -> None:
    suffix = "ts" if runner == "vitest" else "js"
    text = TEST.format(imports=IMPORTS[runner], title=title)
    (folder / f"chat.test.{suffix}").write_text(text)
