"""The recording of the first screen, and the report that opens from it.

A project is tested in a folder of its own, with the stand-in as the service. What the tests print
and the report that they leave is what Chromium shows.
"""

import base64
import html
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page

from tapeway.testing import ThreadedStandIn
from tests.web.animation import Frame, animated

HOME = "/home/ada/weather"
"""What the folder of the project is called where somebody sees it."""

WEATHER = """
from openai import OpenAI

def ask(question):
    messages = [{"role": "user", "content": question}]
    answer = OpenAI().chat.completions.create(model="gpt-4.1-mini", messages=messages, temperature=0)
    return answer.choices[0].message.content

def test_greets():
    assert "Ada" in ask("Say hello to Ada.")

def test_forecast():
    assert "Oslo" in ask("Will it rain in Oslo on Friday?")

def test_clothes():
    assert "coat" in ask("Do I need a coat?")
"""
AGENT = """
from openai import OpenAI

SYSTEM = "You plan trips. Today is 2026-11-27. Look at the weather first."
CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": CITY}}
    for name in ("weather", "trains")
]
RESULTS = {"weather": "Rain until noon, 6 °C.", "trains": "08:03, 10:03 and 12:03 from Oslo S."}

def plan(task):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    while True:
        message = OpenAI().chat.completions.create(
            model="gpt-4.1-mini", messages=messages, tools=TOOLS, temperature=0
        ).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = {"role": "tool", "tool_call_id": call.id, "content": RESULTS[call.function.name]}
            messages.append(result)

def test_plans_a_trip():
    assert plan("Plan a day in Bergen.")

def test_plans_a_weekend():
    assert plan("Plan a weekend in Bergen.")

def test_streams():
    chunks = OpenAI().chat.completions.create(
        model="gpt-4.1-mini", stream=True, temperature=0,
        messages=[{"role": "user", "content": "Tell me about Bergen, at length."}],
    )
    assert [*chunks]
"""
SIZE = (860, 420)
BAR = 38
SHARPNESS = 1.5
"""Pixels of the picture for each of the page: a reader's screen may have more than one."""

_STAGE = """<!doctype html><meta charset="utf-8"><style>
* { box-sizing: border-box; margin: 0 }
body { height: 100vh; display: grid; grid-template-rows: 38px 1fr; background: #16211e; color: #e8e6df;
  font: 14px/1.5 "DejaVu Sans", sans-serif; overflow: hidden }
header { padding: 0 14px; background: #2f6f5e; color: #fff; line-height: 38px; white-space: nowrap }
header b { margin-right: 10px }
header span { float: right; font: 12px/38px "DejaVu Sans Mono", monospace; opacity: .9 }
pre { padding: 14px; font: 15px/1.55 "DejaVu Sans Mono", monospace; white-space: pre-wrap }
img { display: block; width: 100% }
.s1 { font-weight: bold } .s31 { color: #ff8d7d } .s32 { color: #7fd6a4 } .s33 { color: #f0cd76 } .s36 { color: #7cc7d9 }
u { background: #f4c95d; color: #16211e; text-decoration: none; padding: 0 3px }
</style>"""


@dataclass
class Project:
    """A folder with tests, and what running them prints."""

    folder: Path
    service: str

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, "utf-8")

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text("utf-8")
        assert old in text
        self.write(name, text.replace(old, new))

    def run(self, *arguments: str) -> str:
        """What pytest prints, in colours; the name of the folder is made up."""
        environ = {name: value for name, value in os.environ.items() if "TAPEWAY" not in name}
        environ |= {
            "COLUMNS": "90",
            "OPENAI_API_KEY": "sk-of-the-stand-in",
            "PY_COLORS": "1",
            "TAPEWAY_ROUTE": f"openai={self.service}",
        }
        command = [sys.executable, "-W", "ignore", "-m", "pytest", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-p", "no:asyncio", "-p", "no:schemathesis", *arguments],
            cwd=self.folder,
            env=environ,
            check=False,
            stdout=subprocess.PIPE,
            text=True,
        )
        return done.stdout.replace(str(self.folder), HOME)

    @property
    def report(self) -> Path:
        """What the last run left to look at."""
        return self.folder / ".tapeway" / "last.html"


class Film:
    """Collects the frames: a terminal, and the page."""

    def __init__(self, stage: Page) -> None:
        self._stage = stage
        self._lines = ""
        self.frames: list[Frame] = []

    def type(self, step: str, command: str) -> None:
        """The command at the prompt, in a few pieces."""
        for at in (0, len(command) // 3, 2 * len(command) // 3):
            self._terminal(step, f"$ {command[:at]}▌", 160)
        self._terminal(step, f"$ {command}", 500)
        self._lines += f"$ {command}\n"

    def printed(self, step: str, text: str, milliseconds: int, *, marked: str = "") -> None:
        """What the command prints, of which a part may be marked."""
        shown = _coloured(text)
        if marked:
            assert marked in shown, (marked, shown)
            shown = shown.replace(marked, f"<u>{marked}</u>")
        self._terminal(step, shown, milliseconds)

    def clear(self) -> None:
        self._lines = ""

    def page(self, step: str, address: str, png: bytes, milliseconds: int) -> None:
        """The page, below its address."""
        picture = f"<img src='data:image/png;base64,{base64.b64encode(png).decode()}'>"
        self._show(step, address, picture, milliseconds)

    def _terminal(self, step: str, text: str, milliseconds: int) -> None:
        self._show(step, "~/weather", f"<pre>{self._lines}{text}</pre>", milliseconds)

    def _show(self, step: str, address: str, content: str, milliseconds: int) -> None:
        title = f"<header><b>{step}</b><span>{address}</span></header>"
        self._stage.set_content(_STAGE + title + content)
        self.frames.append(Frame(self._stage.screenshot(), milliseconds))


def made(browser: Browser, folder: Path) -> tuple[bytes, str]:
    """The recording as an animated PNG, and the report of a run with misses and replays."""
    with ThreadedStandIn() as service:
        project = Project(folder, service.url)
        project.write("pytest.ini", "[pytest]\naddopts = -q --tb=no\n")
        project.write("test_weather.py", WEATHER)
        project.run("--tapeway=record")
        return animated(_filmed(browser, project)), _report(project)


def _filmed(browser: Browser, project: Project) -> list[Frame]:
    project.change("test_weather.py", "Friday", "Saturday")
    command = "pytest --tapeway=auto test_weather.py::test_forecast"
    with browser.new_context(
        viewport={"width": SIZE[0], "height": SIZE[1]}, device_scale_factor=SHARPNESS
    ) as context:
        film = Film(context.new_page())
        red, green = "1  A prompt has changed: the test is red", "4  Green, without the service"
        printed = f"$ pytest\n{project.run()}"
        film.printed(red, printed, 2500)
        film.printed(red, printed, 2000, marked=".tapeway/last.html")
        (missed,) = set(re.findall(r"#/journal/[\w-]+", project.report.read_text("utf-8")))
        _look(film, project, missed, context.new_page())
        film.clear()
        film.type("3  Record this call again", command)
        film.printed("3  Record this call again", project.run(*command.split()[1:]), 2500)
        film.clear()
        film.type(green, "pytest")
        film.printed(green, project.run(), 4000)
    return film.frames


def _look(film: Film, project: Project, missed: str, tab: Page) -> None:
    """The summary of the run, the miss behind its link, and the words that differ."""
    step = "2  Its link shows the word that differs"
    tab.set_viewport_size({"width": SIZE[0], "height": SIZE[1] - BAR})
    tab.goto(project.report.as_uri())
    tab.locator("main h1").first.wait_for()
    film.page(step, ".tapeway/last.html", tab.screenshot(), 1500)
    tab.goto(f"{project.report.as_uri()}{missed}")
    tab.locator("main mark").first.wait_for()
    film.page(step, f".tapeway/last.html{missed}", tab.screenshot(), 2000)
    tab.locator("main mark").first.evaluate("each => each.scrollIntoView({ block: 'center' })")
    film.page(step, f".tapeway/last.html{missed}", tab.screenshot(), 3500)


def _report(project: Project) -> str:
    """The page of a later run, in which a day and a date have changed."""
    project.write("test_agent.py", AGENT)
    project.run("--tapeway=record", "test_agent.py")
    project.change("test_weather.py", "Saturday", "Sunday")
    project.change("test_agent.py", "11-27", "11-28")
    project.run()
    return project.report.read_text("utf-8").replace(str(project.folder), HOME)


def _coloured(text: str) -> str:
    """What a terminal was sent, as HTML: each change of colour is an element until all end."""
    parts = re.split(r"\x1b\[(\d+)m", html.escape(text, quote=False))
    shown, opened = parts[0], 0
    for code, following in zip(parts[1::2], parts[2::2], strict=True):
        if code == "0":
            shown += "</span>" * opened
            opened = 0
        else:
            shown += f"<span class=s{code}>"
            opened += 1
        shown += following
    return shown + "</span>" * opened
