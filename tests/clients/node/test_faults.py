"""Faults that `useCassette` lays over what a test replays; Node.js alone is needed."""

import shutil
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.node.npm_project import PACKAGE, run

TEST = """
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { useCassette, withCassette } from "tapeway/node-test";

const busy = { name: "busy", do: "503", retry_after: 1 };
const replays = process.env.TAPEWAY_MODE === "replay";

async function ask() {
  const messages = [{ role: "user", content: "hello" }];
  const answer = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ model: "m", messages }),
  });
  await answer.arrayBuffer();
  return [answer.status, answer.headers.get("Tapeway-Fault")];
}

const whole = [200, null];

describe("with a fault", () => {
  useCassette("shared/busy", { faults: [busy] });
  test("it happens once", async () => {
    assert.deepEqual([await ask(), await ask()], [replays ? [503, "busy"] : whole, whole]);
  });
  test("inside withCassette too", async () => {
    const seen = await withCassette("shared/inner", ask, { faults: [busy] });
    assert.deepEqual(seen, replays ? [503, "busy"] : whole);
  });
});
"""


@pytest.mark.slow
def test_a_test_gets_its_faults_in_replay_alone(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed")
    modules = tmp_path / "node_modules"
    modules.mkdir()
    (modules / "tapeway").symlink_to(PACKAGE)
    (tmp_path / "busy.test.mjs").write_text(TEST)
    command = ("node", "--preserve-symlinks", "--import", "tapeway/node-test", "--test")
    with ThreadedStandIn() as upstream:
        environ = {"TAPEWAY_MODE": "record", "TAPEWAY_ROUTE": f"openai={upstream.url}"}
        recorded = run(tmp_path, command, **environ)
    replayed = run(tmp_path, command, TAPEWAY_MODE="replay")

    assert recorded.returncode == 0, recorded.stdout + recorded.stderr
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
