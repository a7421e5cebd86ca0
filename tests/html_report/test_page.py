"""A run as one HTML file: what is in it, how much of it, and that nothing recorded becomes markup."""

import hashlib
import json
import re
from base64 import b64decode, b64encode
from typing import Any

from tapeway.core.json_text import Json
from tapeway.errors import TapewayError
from tapeway.html_report.collection import CollectedRun, ReportLimits, collect, cut
from tapeway.html_report.page import html_report
from tapeway.web.files import page_files

EVIL = "</script><script>alert(1)</script><!--"


class Api:
    """An admin API with misses and hits; it counts what is asked."""

    def __init__(self, misses: int, hits: int, size: int = 1000) -> None:
        self.size = size
        self.more: int | None = None
        """The index after which its cassette has more recordings."""
        self.asked: list[str] = []
        self.entries: list[dict[str, Any]] = [
            *[
                {"id": f"h{at}", "outcome": "replayed", "cassette": "a/b", "interaction": at}
                for at in range(hits)
            ],
            *[
                {"id": f"m{at}", "outcome": "miss", "cassette": "a/b", "interaction": None}
                for at in range(misses)
            ],
        ]

    def __call__(self, path: str, query: dict[str, object]) -> Any:
        self.asked.append(path)
        if path == "journal":
            start = int(str(query["after"] or 0))
            page = self.entries[start : start + 3]
            end = start + 3
            return {"entries": page, "next": str(end) if end < len(self.entries) else None}
        if path.startswith("journal/"):
            nearest = {"index": 900} if path.startswith("journal/m") else None
            return {"entry": path, "nearest": nearest, "request": "x" * self.size}
        if path.endswith("/view"):
            body = {"text": "y" * 5000, "cut": False, "kind": "json"}
            return {"response": {"body": body}, "chunks": [[1, 2]] * 80, "chunks_left_out": 1}
        if path.endswith("/titles"):
            titles = [{"index": at, "latency_ms": 1000.0 * at} for at in range(4)]
            return {"titles": titles, "next": self.more}
        if path.endswith("/turns"):
            return {
                "turns": [{"number": at} for at in range(60)],
                "sessions": [3],
                "sums": {"turns": 60},
            }
        if path.endswith("/messages"):
            return {"messages": [{"content": "x" * 5000}] * 60, "next": None}
        return {"path": path}


def test_misses_are_whole_and_hits_are_cut_to_a_head() -> None:
    found = collect(Api(2, 2), ReportLimits(10**6))

    assert len(found.entries) == 4
    assert found.left_out == 0
    miss: Any = found.answers["journal/m0"]
    view: Any = found.answers["cassettes/a%2Fb/interactions/0/view"]
    assert len(miss["request"]) == 1000
    assert view["response"]["body"] == {"text": "y" * 2000, "cut": True, "kind": "text"}
    assert (len(view["chunks"]), view["chunks_left_out"]) == (50, 31)
    assert "cassettes/a%2Fb/interactions/900/view" in found.answers


def test_it_ends_at_its_size_and_says_how_many_are_left_out() -> None:
    api = Api(3, 30)

    found = collect(api, ReportLimits(20_000))

    assert found.size <= 20_000
    assert {"journal/m0", "journal/m1", "journal/m2"} <= {*found.answers}
    assert 0 < found.left_out < 30
    assert len(found.entries) == 33


def test_what_is_gone_meanwhile_is_left_out() -> None:
    api = Api(0, 2)

    def call(path: str, query: dict[str, object]) -> Json:
        if path == "journal/h0":
            raise TapewayError("gone")
        found: Json = api(path, query)
        return found

    found = collect(call, ReportLimits(10**6))

    assert found.left_out == 1
    assert "journal/h1" in found.answers


def test_the_list_and_the_conversation_of_a_cassette_are_in_it() -> None:
    found = collect(Api(0, 2), ReportLimits(10**6))

    turns: Any = found.answers["cassettes/a%2Fb/turns"]
    messages: Any = found.answers["cassettes/a%2Fb/messages"]
    summary: Any = found.answers["summary"]
    assert (len(turns["turns"]), len(messages["messages"])) == (60, 60)
    assert {len(message["content"]) for message in messages["messages"]} == {2000}
    assert "cassettes/a%2Fb/interactions/3/view" in found.answers
    assert [slow["took_ms"] for slow in summary["slowest"]] == [1000.0, 0.0]
    assert summary["runs"] == [{"name": "a/b", "sums": {"turns": 60}}]


def test_a_cassette_that_is_too_large_has_neither() -> None:
    api = Api(0, 2)
    api.more = 1000

    found = collect(api, ReportLimits(10**6))

    assert not [path for path in found.answers if path.endswith(("/titles", "/turns"))]
    assert not [path for path in api.asked if path.endswith("/turns")]


def test_a_sound_or_picture_is_kept_whole_or_left_out() -> None:
    found: Any = cut([{"data": "x" * 5000}, {"data": "x" * 10**6}])

    assert [len(part["data"]) for part in found] == [5000, 0]


def test_lists_and_texts_of_any_answer_are_cut() -> None:
    found: Any = cut({"a": ["x" * 3000] * 60, "b": 1})

    assert (len(found["a"]), len(found["a"][0]), found["b"]) == (50, 2000, 1)


def page(**more: Json) -> str:
    return html_report(CollectedRun({"status": {"evil": EVIL, **more}}, [{"id": EVIL}]))


def test_nothing_recorded_becomes_markup() -> None:
    text = page()

    assert EVIL not in text
    assert "<script>alert" not in text
    (data,) = re.findall(r'id="recorded">(.*?)</script>', text)
    assert json.loads(data)["answers"]["status"]["evil"] == EVIL


def test_scripts_and_styles_are_allowed_by_their_hashes_alone() -> None:
    text = page()

    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    inline = re.findall(r'<script type="importmap">(.*?)</script>', text, re.DOTALL)
    inline += re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    inline += re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    hashes = {b64encode(hashlib.sha256(word.encode()).digest()).decode() for word in inline}
    assert {*re.findall(r"'sha256-([^']+)'", policy)} == hashes
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")


def test_every_module_of_the_page_is_in_it_and_finds_those_it_imports() -> None:
    (text,) = re.findall(r'<script type="importmap">(.*?)</script>', page())
    imports = json.loads(text)["imports"]

    assert {*imports} == {f"tapeway/{file}" for file in page_files() if file.endswith(".js")}
    for name, address in imports.items():
        module = b64decode(address.partition(",")[2]).decode()
        wanted = re.findall(r'(?:from |import\(|import )"([^"]+)"', module)
        assert {*wanted} - {*imports} <= {"node:fs/promises"}, name
        assert "import.meta.url" not in module
