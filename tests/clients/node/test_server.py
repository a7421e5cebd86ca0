"""A tapeway that a program in Node.js starts: it serves, says why it cannot, and ends with it."""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tapeway.embedded.deck import serve
from tapeway.testing import ThreadedStandIn
from tests.clients.node.npm_project import (
    PACKAGE,
    PROGRAMS,
    Projects,
    environment,
    processes_in,
    remaining_in,
    run,
)

SERVE = f"require({json.dumps(str(PACKAGE / 'src' / 'index.cjs'))}).serve(%s)"
FAILED = (
    ".then(() => console.log('served'), (error) => console.log(`${error.code}: ${error.message}`))"
)


@pytest.fixture
def node() -> str:
    found = shutil.which("node")
    if found is None:
        pytest.skip("Node.js is not installed")
    return found


def test_a_program_records_and_replays(project: Projects) -> None:
    folder = project("plain")
    command = [str(Path(sys.executable)), "-m", "tapeway"]
    with ThreadedStandIn() as upstream:
        given = {"TAPEWAY_ROUTE": f"openai={upstream.url}", "OPENAI_API_KEY": "none"}
        live = run(folder, ["node", "plain.mjs", "auto"], **given)
    replayed = run(folder, ["node", "plain.mjs", "replay"], TAPEWAY_BIN=" ".join(command))

    reports = [json.loads(finished.stdout) for finished in (live, replayed)]
    assert [(report["recorded"], report["replayed"]) for report in reports] == [(1, 0), (0, 1)]
    assert remaining_in(folder) == []


def test_no_password_of_its_options_is_in_the_process_list(node: str, tmp_path: Path) -> None:
    given = "{ store: 'sqlite:' + process.cwd() + '/s3cret.db', mode: 'passthrough', route: ['a=http://u:s3cret@127.0.0.1:9'] }"
    program = f"{SERVE % given}.then((found) => found.mode().then(console.log)); setInterval(() => {{}}, 1e6)"
    environ = environment(tmp_path, TAPEWAY_BIN=f"{sys.executable} -m tapeway")
    parent = subprocess.Popen(
        [node, "-e", program.replace("s3cret", "s3c' + 'ret")],
        cwd=tmp_path,
        env=environ,
        stdout=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"passthrough\n"
        shown = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    finally:
        parent.kill()
        parent.communicate()

    assert any(b"--journal-size" in command_line for command_line in shown)
    assert not any(b"s3cret" in command_line for command_line in shown)


def test_it_ends_with_the_program_however_that_ends(node: str, tmp_path: Path) -> None:
    program = f"{SERVE % '{}'}.then(() => console.log('ready')); setInterval(() => {{}}, 1e6)"
    environ = environment(tmp_path, TAPEWAY_BIN=f"{sys.executable} -m tapeway")
    parent = subprocess.Popen(
        [node, "-e", program], cwd=tmp_path, env=environ, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    started = [os.pidfd_open(pid) for pid in processes_in(tmp_path) if pid != parent.pid]
    parent.send_signal(signal.SIGKILL)
    parent.communicate()

    try:
        # tapeway, and the process that holds it.
        assert len(started) == 2
        for descriptor in started:
            assert select.select([descriptor], [], [], 60)[0], "it still runs"
    finally:
        for descriptor in started:
            os.close(descriptor)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"command": "no-such-program"}, "not_started: no-such-program cannot be started: install"),
        ({"command": ["echo", "{"]}, "not_started: echo is not tapeway: it printed"),
        (
            {"route": ["nowhere"]},
            "not_started: tapeway did not start: tapeway: TAPEWAY_ROUTE: 'nowhere'",
        ),
    ],
)
def test_why_it_cannot_start_is_told(
    options: dict[str, object], said: str, node: str, tmp_path: Path
) -> None:
    program = SERVE % json.dumps(options) + FAILED
    done = subprocess.run(
        [node, "-e", program],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith(said), done.stdout


@pytest.mark.slow
def test_tests_without_a_set_up_are_told_of_it(project: Projects) -> None:
    folder = project("vitest")
    config = 'export default { test: { setupFiles: "tapeway/vitest" } };\n'
    (folder / "vitest.config.ts").write_text(config)
    test = 'import { useCassette } from "tapeway/vitest";\nuseCassette();\n'
    (folder / "alone.test.ts").write_text(test)

    done = run(folder, ["vitest", "run", "alone"])

    assert done.returncode == 1
    assert "no tapeway serves these tests: add tapeway/global-setup" in done.stderr


ONE_WORKER = f"""
const results = require("node:fs").mkdtempSync(require("node:path").join(require("node:os").tmpdir(), "tapeway-run-"));
process.env._TAPEWAY_NODE = JSON.stringify({{ root: ".", mode: "replay", runner: "node", results }});
const {{ connect, withCassette }} = require({json.dumps(str(PACKAGE / "src" / "session.cjs"))});
const session = connect("1");
const ask = (path) => fetch(`${{process.env.OPENAI_BASE_URL}}/${{path}}`);
const programs = {{
  stray: () => ask("models").then(() => session.checkStray()),
  silent: () => session.checkStray(),
  disturbed: () => withCassette("a", async () => {{
    await ask("models");
    await session.connection.tapeway.eject("a");
    await ask("files");
  }}),
  steered: async () => {{
    const place = {{ file: "a.test.ts", titles: ["steered"] }};
    const how = process.argv[2];
    await session.begin(place, {{ name: "steered", shared: false, options: {{ mode: "record" }} }});
    for (const step of ["rewind", "eject", "insert"]) {{
      await ask(`models?${{how}}=${{step}}`);
      await session.connection.tapeway.admin.call("POST", step, {{ body: {{ cassette: "steered" }} }});
    }}
    const sent = await session.current.requests();
    await session.end(place, how === "failed");
    return sent.map((each) => each.path).join();
  }},
}};
programs[process.argv[1]]().then((said) => said ?? "clean", (error) => error.message).then(console.log);
"""


def said_by_worker(node: str, folder: Path, *programs: str, upstream: str = "") -> list[str]:
    """What workers print that run one of the programs each, one after the other."""
    route = [f"openai={upstream}"] if upstream else []
    with serve(mode="replay", store=str(folder), route=route) as deck:
        given = environment(
            folder,
            **{"TAPEWAY_URL": deck.url(), "TAPEWAY_ADMIN_URL": deck.admin_url},
            OPENAI_BASE_URL=deck.url("openai"),
        )
        return [
            subprocess.run(
                [node, "-e", ONE_WORKER, *program.split()],
                cwd=folder,
                env=given,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for program in programs
        ]


@pytest.mark.slow
def test_a_worker_is_not_told_of_requests_of_the_one_before_it(node: str, tmp_path: Path) -> None:
    first, second = said_by_worker(node, tmp_path, "stray", "silent")

    assert first.startswith("GET /v1/models was sent while no test had a cassette for it")
    assert second == "clean\n"


@pytest.mark.slow
def test_a_miss_counts_also_where_somebody_began_another_take(node: str, tmp_path: Path) -> None:
    (said,) = said_by_worker(node, tmp_path, "disturbed")

    assert [line.partition(":")[0] for line in said.splitlines()] == ["replay miss"] * 2
    assert "GET /v1/models" in said
    assert "GET /v1/files" in said


@pytest.mark.slow
def test_what_a_test_sent_is_its_own_whatever_takes_it_began(node: str, tmp_path: Path) -> None:
    with ThreadedStandIn() as upstream:
        said, _ = said_by_worker(
            node, tmp_path, "steered kept", "steered failed", upstream=upstream.url
        )

    assert said == "/v1/models?kept=rewind,/v1/models?kept=eject,/v1/models?kept=insert\n"
    # In mode record nothing that it used is dropped, and nothing of a failed one is kept.
    files = [tmp_path / "steered.json", tmp_path / ".tapeway/failed/steered.json"]
    found = [json.loads(file.read_text())["interactions"] for file in files]
    urls = [
        [interaction["request"]["url"].rpartition("?")[2] for interaction in cassette]
        for cassette in found
    ]
    asked = [
        f"{how}={step}" for how in ("kept", "failed") for step in ("rewind", "eject", "insert")
    ]
    assert urls == [asked[:3], asked]


def test_attaching_needs_variables_that_lead_to_the_proxy(node: str, tmp_path: Path) -> None:
    program = f"require({json.dumps(str(PACKAGE / 'src' / 'global-setup.cjs'))})(){FAILED}"

    def said(**environ: str) -> str:
        return subprocess.run(
            [node, "-e", program],
            env=environment(tmp_path, TAPEWAY_ADMIN_URL="http://127.0.0.1:9", **environ),
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    proxy = "http://127.0.0.1:9/p"
    led = {"TAPEWAY_URL": proxy, "OPENAI_BASE_URL": f"{proxy}/openai/v1", "TAPEWAY_MODE": "replay"}

    assert said().startswith("no_url: TAPEWAY_ADMIN_URL is set, but TAPEWAY_URL is not")
    assert said(TAPEWAY_URL=proxy).startswith("no_url: no variable of an SDK leads to the tapeway")
    assert said(**led).startswith("unreachable: tapeway does not answer at http://127.0.0.1:9: ")
    assert said(**{**led, "TAPEWAY_MODE": "once"}).startswith("bad_mode: there is no mode 'once'")


def test_the_package_needs_no_other_and_has_no_addresses_in_its_lists() -> None:
    package = json.loads((PACKAGE / "package.json").read_text())
    pinned = json.loads((PROGRAMS / "package.json").read_text())["dependencies"]

    assert "dependencies" not in package
    assert [version for version in pinned.values() if not version.replace(".", "").isdigit()] == []
    assert [*PACKAGE.rglob("package-lock.json"), *PROGRAMS.rglob("package-lock.json")] == []
