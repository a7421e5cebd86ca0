"""Every block of every page is run: what a page shows is what happens.

The blocks of a section are run in their order, all by the same rules:

- A shell block runs in bash, against a stand-in for the upstream and on free ports. One that ends
  in `&` goes on in the background. One of nothing but `tapeway` commands runs in this process, where
  `tapeway serve` only starts.
- A Python block is a program.
- A TOML block is a configuration file.
- A text block right below one of these is what it prints, with `…` for what may be anything.

What a section needs besides is in `SETUPS`; what is not run, and why, in `NOT_RUN`, and what is not
by default in `REPEATED`.
"""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.formats.native import document
from tapeway.server import lifecycle
from tapeway.settings.options import Settings
from tapeway.stores.file.store import FileStore
from tests.cli.conftest import own_surroundings
from tests.cli.invocation import written
from tests.clients.node.npm_project import link_packages, skip_unless_installed
from tests.formats.other_tools.example_files import text
from tests.stores.recordings import record
from tests.support.exchanges import interaction
from tests.support.markdown import ROOT, Block, blocks
from tests.support.shell_blocks import UPSTREAM, Shell
from tests.support.thoroughness import runs_everything

__all__ = ["own_surroundings"]

pytestmark = pytest.mark.usefixtures("one_certificate")

PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md"))]
WHOLE = (
    "docs/admin-api.md",
    "docs/branches.md",
    "docs/by-hand.md",
    "docs/first-agent.md",
    "docs/hooks.md",
)
"""Pages that are read from top to bottom: a section needs what the sections before it made."""
NOT_RUN = {
    ("docs/integrations.md", "interposition"): "is run twice, see test_integrations_page.py",
    ("docs/integrations.md", "DSPy"): "has an environment of its own, see the same",
    ("docs/mcp.md", "Claude Code"): "is for another program, see test_mcp_page.py",
    ("docs/mcp.md", "Codex"): "is for another program, see the same",
}

Outputs = list[str]


@dataclass(frozen=True, slots=True)
class Setup:
    """What one section needs besides its blocks, and what is to be seen when they have run.

    `before` prepares the folder that they run in, `server` is started first, `instead` replaces
    words of commands, `environ` are more variables, `exit_codes` are those of commands that run in
    this process, with `by_line` each line of a shell block is a command with an output of its own,
    and with `one_shell` all shell blocks are pasted into one shell.
    """

    before: Callable[[], None] = lambda: None
    server: str = ""
    instead: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    exit_codes: Sequence[int] = ()
    by_line: bool = False
    one_shell: bool = False
    folder: Path | None = None
    after: Callable[[Outputs], None] = lambda outputs: None


def _sections() -> Iterator[tuple[str, str | None]]:
    """Each page and section with something to run."""
    for page in PAGES:
        runnable = [block for block in blocks(page) if block.language in ("sh", "python", "toml")]
        if page in WHOLE:
            yield page, None
        else:
            yield from dict.fromkeys((page, block.section) for block in runnable)


REPEATED = [
    ("docs/cassettes.md", "Comparing with git"),
    ("docs/cassettes.md", "Pruning"),
    ("docs/run.md", ""),
    ("docs/pytest.md", ""),
    ("docs/python.md", ""),
    ("docs/testing.md", "In Python"),
    ("docs/typescript.md", ""),
    ("docs/typescript.md", "node:test"),
    ("docs/upgrading.md", "Before a new version goes into production"),
]
"""Sections that are run under `--all`: README or other tests run the like by default."""
NODE = "docs/typescript.md"
"""Needs Node.js and what npm installs."""
SECTIONS = [
    section
    for section in _sections()
    if section not in NOT_RUN and (runs_everything() or section not in REPEATED)
]


@pytest.mark.parametrize(
    ("page", "section"),
    [
        pytest.param(*section, marks=pytest.mark.elsewhere if section[0] == NODE else ())
        for section in SECTIONS
    ],
)
def test_what_a_page_shows_is_what_happens(
    page: str,
    section: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    setup = SETUPS.get((page, section), Setup())
    setup.before()
    with ExitStack() as stack:
        shell = Shell(stack, tmp_path / "cassettes", folder=setup.folder or tmp_path)
        run = Runner(shell, setup, monkeypatch, capsys)
        if setup.server:
            shell.run(setup.server)
        for block in _pasted(blocks(page, section), setup):
            run.block(block)
    setup.after(run.outputs)


def _pasted(shown: list[Block], setup: Setup) -> list[Block]:
    if not setup.one_shell:
        return shown
    return [Block("sh", "\n".join(block.text for block in shown if block.language == "sh"))]


def test_every_setup_is_of_a_section_that_is_run() -> None:
    assert set(SETUPS) <= {*SECTIONS, *REPEATED}
    assert {*REPEATED, *NOT_RUN} <= set(_sections())


class Runner:
    """Runs blocks one after the other and keeps what each command printed."""

    def __init__(
        self,
        shell: Shell,
        setup: Setup,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self._shell = shell
        self._setup = setup
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.outputs: Outputs = []

    def block(self, block: Block) -> None:
        if block.language == "sh":
            command = block.text.strip()
            for word, other in self._setup.instead.items():
                command = command.replace(word, other)
            self._shell_block(command)
        elif block.language == "python":
            self.outputs.append(run_python(block.text))
        elif block.language == "toml":
            options = tomllib.loads(block.text)
            settings = Settings.parse(options)
            assert settings.given == {*options}
            assert settings.rules or "rules" not in options
        elif block.language == "text" and block.follows:
            assert re.fullmatch(_pattern(block.text), self.outputs[-1].strip(), re.DOTALL), (
                self.outputs[-1]
            )

    def _shell_block(self, command: str) -> None:
        lines = command.splitlines()
        if all(_is_plain(line) for line in lines):
            codes = [self._in_process(line) for line in lines]
            assert codes == [*(self._setup.exit_codes or [0] * len(lines))]
            self.outputs.append(self._capsys.readouterr().out)
        else:
            pasted = lines if self._setup.by_line else [command]
            self.outputs += [self._shell.run(block, self._setup.environ) for block in pasted]

    def _in_process(self, line: str) -> object:
        """The exit code of one command; a server that would be started is only noted."""
        environ, _, arguments = line.partition("tapeway ")
        started: list[Settings] = []
        with self._monkeypatch.context() as patch:
            patch.setattr(lifecycle, "serve", started.append)
            for name, _, value in (part.partition("=") for part in shlex.split(environ)):
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                main(shlex.split(arguments))
        assert len(started) == arguments.startswith("serve"), line
        return ended.value.code or 0


def run_python(
    program: str,
    python: Sequence[str] = (sys.executable,),
    warnings: str = "error",
    **environ: str,
) -> str:
    """What a program prints, run in the working directory."""
    done = subprocess.run(
        [*python, "-W", warnings, "-c", program],
        env={"PATH": os.environ["PATH"], "HOME": os.getcwd(), **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_plain(line: str) -> bool:
    """Whether a line is one `tapeway` command that needs no shell."""
    command = re.fullmatch(r"(\w+=\S+ )*tapeway (serve|cassette)( .*)?", line)
    return command is not None and not re.search(r"[|&><$;]", re.sub(r"'.*?'", "", line))


def _pattern(shown: str) -> str:
    return ".*".join(map(re.escape, re.split(r" ?… ?", shown.strip())))


def _recorded_and_replayed(outputs: Outputs) -> None:
    [printed] = outputs
    recorded, replayed = printed.split("HTTP/1.1 200 OK")[1:]
    assert "Tapeway-Outcome: recorded" in recorded
    assert "Tapeway-Outcome: replayed" in replayed
    bodies = [
        response.replace("\r\n", "\n").partition("\n\n")[2] for response in (recorded, replayed)
    ]
    assert bodies[0] == bodies[1] != ""


def _printed_twice(outputs: Outputs) -> None:
    recorded, replayed, *_ = outputs
    assert recorded == replayed
    assert "hello" in recorded


def _admin_api(outputs: Outputs) -> None:
    assert len(outputs) > 5
    assert all(output.startswith("{") for output in outputs)


def _recorded_twice() -> None:
    for name in ("smoke", "smoke-new"):
        written(name, *[interaction(index=index) for index in range(4)])


_CALL = """curl --fail --silent -H 'content-type: application/json' \\
    --data '{"model":"m"}' "$OPENAI_BASE_URL/chat/completions"
"""


def _run_uses_two_of_five() -> None:
    unused = [interaction(target=f"/v1/{character}") for character in "xyz"]
    written("smoke", *unused[:2], interaction(), interaction(), unused[2])
    Path("calls.sh").write_text(_CALL * 2)


def _one_call() -> None:
    written("default", interaction())
    Path("calls.sh").write_text(_CALL)


def _one_call_committed() -> None:
    _one_call()
    _git("init", "add -A", "commit -m x")


def _one_is_left(outputs: Outputs) -> None:
    last_lines = [output.splitlines()[-1] for output in outputs[1:]]
    assert last_lines == [
        "smoke: 3 of 5 interactions would go, 2 left",
        "smoke: 3 of 5 interactions dropped, 2 left",
        "smoke: 1 of 2 interactions dropped, 1 left",
    ]
    (left,) = document.load(Path("cassettes/smoke.json").read_bytes()).interactions
    assert left == interaction()


def _archive() -> None:
    Path("session.har").write_bytes(text("browser.har"))


def _archive_lost_three(outputs: Outputs) -> None:
    assert "3 of 6 interactions" in outputs[0]


def _one_cassette() -> None:
    written("smoke", interaction())


def _two_answers() -> None:
    _one_cassette()
    _answer_no("smoke-new")


def _git(*commands: str, check: bool = True) -> None:
    author = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    for command in commands:
        subprocess.run(["git", *author, *command.split()], check=check, capture_output=True)


def _changed_since() -> None:
    _one_cassette()
    _git("init", "add -A", "commit -m x")
    _answer_no("smoke")


def _conflict() -> None:
    first = interaction()
    written("smoke", first)
    _git("init", "add -A", "commit -m x", "branch side")
    written("smoke", first, interaction(target="/v1/ours"))
    _git("commit -am x", "checkout side")
    written("smoke", first, interaction(target="/v1/theirs"))
    _git("commit -am x", "checkout -")
    _git("merge side", check=False)
    assert b"<<<<<<<" in Path("cassettes/smoke.json").read_bytes()


def _both_are_there(_: Sequence[str]) -> None:
    stored = document.load(Path("cassettes/smoke.json").read_bytes())
    assert [item.index for item in stored.interactions] == [0, 1, 2]
    _git("commit -m merged")


def _answered_otherwise() -> None:
    body = b'{"ok": true, "usage": "none", "model": "m"}'
    item = interaction(body=body)
    written(
        "smoke",
        replace(
            item,
            request=replace(
                item.request,
                body=b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}',
            ),
        ),
    )


def _answer_no(name: str) -> None:
    file = Path("cassettes/smoke.json")
    file.with_stem(name).write_text(file.read_text().replace('"ok": true', '"ok": false'))


def _copies_are_the_same(outputs: Outputs) -> None:
    copy = Path("elsewhere/suite/smoke.json").read_bytes()
    assert copy == Path("cassettes/smoke.json").read_bytes()
    assert len({line.partition("sha256:")[2] for line in outputs[0].splitlines()}) == 1


def _two_cassettes() -> None:
    async def recorded() -> None:
        store = FileStore(Path("cassettes"))
        await record(store, 0, 1, name="smoke")
        await record(store, 2, name="suite/login")
        await store.close()

    asyncio.run(recorded())


def _cassettes_came_back(outputs: Outputs) -> None:
    for name in ("smoke.json", "suite/login.json"):
        assert Path("elsewhere", name).read_bytes() == Path("cassettes", name).read_bytes()
    assert re.search(r"^suite/login +1 ", outputs[0], re.MULTILINE)


def _change_was_seen(outputs: Outputs) -> None:
    assert re.fullmatch(r"\d+ bytes\n", outputs[0])


def _weather_is_recorded(outputs: Outputs) -> None:
    assert "city: London" in Path("cassettes/agent.yaml").read_text()


def _checkout() -> None:
    folder = Path.cwd()
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    (folder / "package.json").write_text("{}")
    shutil.copytree(ROOT / "packages" / "node", folder / "tapeway" / "packages" / "node")


def _tarball_is_installed(outputs: Outputs) -> None:
    folder = Path.cwd()
    module = folder / "node_modules" / "tapeway"
    assert not module.is_symlink()
    program = "console.log(typeof require('tapeway').serve)"
    done = subprocess.run(
        ["node", "-e", program], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == "function\n"


def _npm_packages() -> None:
    skip_unless_installed()
    link_packages(Path.cwd())


def _fly_is_recorded(outputs: Outputs) -> None:
    (recorded,) = Path("cassettes/fly.test").glob("*.json")
    assert "Name a fly." in recorded.read_text()


def _miss_was_accepted(outputs: Outputs) -> None:
    assert "replay miss" in outputs[1]
    assert "Tapeway-Outcome: replayed" in outputs[2]


INSTALLED = {"pip install": ": is here:"}
LISTEN = {"TAPEWAY_LISTEN": "127.0.0.1:8080", "TAPEWAY_ADMIN_LISTEN": "127.0.0.1:8081"}
PROVIDER = {"TAPEWAY_ROUTE": f"openai={UPSTREAM}"}

SETUPS: Mapping[tuple[str, str | None], Setup] = {
    ("README.md", ""): Setup(
        instead=INSTALLED, environ=LISTEN, one_shell=True, after=_recorded_and_replayed
    ),
    ("README.md", "Around a command"): Setup(
        instead=INSTALLED, environ=PROVIDER | LISTEN, after=_printed_twice
    ),
    ("README.md", "In a test"): Setup(instead=INSTALLED, environ=PROVIDER),
    ("docs/faults.md", "Where faults are set"): Setup(
        server="tapeway serve --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8081 &"
    ),
    ("docs/admin-api.md", None): Setup(
        server="tapeway serve --upstream https://api.openai.com"
        " --listen 127.0.0.1:8080 --admin-listen 127.0.0.1:8081 &",
        by_line=True,
        after=_admin_api,
    ),
    ("docs/architecture.md", ""): Setup(folder=ROOT),
    ("docs/cassettes.md", ""): Setup(before=_recorded_twice),
    ("docs/cassettes.md", "Comparing"): Setup(before=_two_answers, exit_codes=[1]),
    ("docs/cassettes.md", "Comparing with git"): Setup(before=_changed_since),
    ("docs/cassettes.md", "Merging with git"): Setup(before=_conflict, after=_both_are_there),
    ("docs/cassettes.md", "Asking the services"): Setup(before=_answered_otherwise),
    ("docs/cassettes.md", "Renaming"): Setup(before=_one_cassette),
    ("docs/cassettes.md", "Pruning"): Setup(
        before=_run_uses_two_of_five,
        instead={"pytest -q": "sh calls.sh"},
        by_line=True,
        after=_one_is_left,
    ),
    # The archive has calls without an answer.
    ("docs/first-agent.md", None): Setup(instead=INSTALLED, environ=PROVIDER),
    ("docs/formats.md", "Converting"): Setup(
        before=_archive, exit_codes=[1, 0, 0, 0], after=_archive_lost_three
    ),
    ("docs/formats.md", "Between stores"): Setup(before=_one_cassette, after=_copies_are_the_same),
    ("docs/library.md", ""): Setup(after=_weather_is_recorded),
    ("docs/fix-a-miss.md", "A rule for what changes"): Setup(after=_miss_was_accepted),
    ("docs/migrate-from-vcr.md", ""): Setup(environ=PROVIDER),
    ("docs/re-record.md", ""): Setup(
        before=_one_call_committed,
        environ=PROVIDER,
        instead={"pytest -q": "sh calls.sh"},
        exit_codes=[1],
    ),
    ("docs/stores.md", "Moving"): Setup(before=_two_cassettes, after=_cassettes_came_back),
    ("docs/stores.md", "Detecting changes"): Setup(after=_change_was_seen),
    ("docs/upgrading.md", "Before a new version goes into production"): Setup(
        before=_one_call, instead={"pytest -q": "sh calls.sh"}
    ),
    ("docs/typescript.md", ""): Setup(
        before=_npm_packages, instead={"npx vitest": "NO_COLOR=1 node_modules/.bin/vitest"}
    ),
    ("docs/typescript.md", "Installing"): Setup(before=_checkout, after=_tarball_is_installed),
    ("docs/typescript.md", "node:test"): Setup(before=_npm_packages, after=_fly_is_recorded),
}
