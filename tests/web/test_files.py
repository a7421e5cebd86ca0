"""The files of the page as a browser gets them, and what no file of it may contain."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.web.files import TYPES, page_files
from tests.admin.admin_and_proxy import World, world

FOLDER = Path(__file__).parents[2] / "src/tapeway/web"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
SCRIPTS = sorted(file for file in page_files() if file.endswith(".js"))


@pytest.fixture
async def open_world() -> AsyncIterator[World]:
    async with world() as found:
        yield found


@pytest.fixture
async def locked() -> AsyncIterator[World]:
    async with world(token="a-token-of-the-page-1234") as found:
        yield found


async def test_browsers_get_the_page_and_others_the_paths_of_the_api(open_world: World) -> None:
    page = await open_world.call("GET", "/", headers=BROWSER)
    other = await open_world.call("GET", "/", headers={"Accept": "application/json"})

    assert page.content_type == "text/html"
    assert (await page.text()).startswith("<!doctype html>")
    assert (await other.json())["openapi"] == "/openapi.json"


async def test_the_files_need_no_token_and_the_paths_of_the_api_do(locked: World) -> None:
    none = {"Authorization": ""}

    for path in ("/", *(f"/web/{file}" for file in page_files())):
        response = await locked.call("GET", path, headers=BROWSER | none)
        assert response.status == 200, path
        head = await locked.call("HEAD", path, headers=BROWSER | none)
        assert (head.status, head.content_type) == (200, response.content_type)
    for path in ("/", "/openapi.json", "/api/v1/status"):
        assert (await locked.call("GET", path, headers=none)).status == 401, path
    for method, path in [("POST", "/"), ("GET", "/web"), ("GET", "/api/v1/status")]:
        answer = await locked.call(method, path, headers=BROWSER | none)
        assert answer.status == 401, path


async def test_the_policy_lets_only_own_files_in(open_world: World) -> None:
    for path in ("/", "/web/page.js", "/web/page.css"):
        headers = (await open_world.call("GET", path, headers=BROWSER)).headers
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Server"] == "tapeway"


@pytest.mark.parametrize(
    "path",
    ["/web/nothing.js", "/web/", "/web/files.py", "/web/../api/v1/status", "/web/..%2Findex.html"],
)
async def test_nothing_but_the_files_is_there(open_world: World, path: str) -> None:
    answer = await open_world.raw(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )

    assert answer.startswith(b"HTTP/1.1 404 ")


async def test_a_link_on_another_site_opens_the_page_and_reaches_nothing_else(
    open_world: World,
) -> None:
    link = {
        "Sec-Fetch-Site": "cross-site",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-Dest": "document",
    }
    status = {
        (path, more): (
            await open_world.call("GET", path, headers={**BROWSER, **link, **dict(more)})
        ).status
        for path in ("/", "/api/v1/status", "/openapi.json")
        for more in (
            (),
            (("Sec-Fetch-Dest", "iframe"),),
            (("Sec-Fetch-Mode", "no-cors"),),
            (("Origin", "https://elsewhere.test"),),
        )
    }

    assert [call for call, code in status.items() if code != 403] == [("/", ())]
    script = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert (await open_world.call("GET", "/web/page.js", headers=script)).status == 403


def test_every_file_is_served_and_the_whole_is_small() -> None:
    there = {
        path.relative_to(FOLDER).as_posix()
        for path in FOLDER.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }

    assert set(page_files()) == there
    assert {name.rpartition(".")[2] for name in there} <= set(TYPES)
    assert sum(len(file.content) for file in page_files().values()) < 300_000


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_markup_of_a_text_or_code_of_it(name: str) -> None:
    source = (FOLDER / name).read_text()

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|parseFromString"
        r"|createContextualFragment|srcdoc|setHTML|\beval\(|new Function|javascript:",
        source,
    )
    assert len(source.splitlines()) <= 600


def test_nothing_comes_from_outside() -> None:
    for name, file in page_files().items():
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", file.content.decode()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, name


def test_a_style_or_handler_inline_would_be_stopped_so_there_is_none() -> None:
    page = page_files()["index.html"].content.decode()

    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", page)


def test_every_script_that_is_imported_is_there() -> None:
    for name in SCRIPTS:
        folder = (FOLDER / name).parent
        for wanted in re.findall(
            r"""(?:from|import\()\s*["'](\.[^"']+)["']""", (FOLDER / name).read_text()
        ):
            assert (folder / wanted).is_file(), f"{name} imports {wanted}"
