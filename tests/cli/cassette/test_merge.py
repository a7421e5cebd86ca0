"""`tapeway cassette merge`: three versions of a cassette made into one, also by git itself."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.model.messages import MESSAGES_TYPE, WEBSOCKET, Request, Response, ResponseHead
from tapeway.core.websocket.messages import WebSocketMessage
from tapeway.core.websocket.session_lines import session_line
from tapeway.formats.cassette_file import JSON, SERIALIZER_BY_SUFFIX
from tapeway.library import Cassette
from tapeway.stores.file.store import FileStore
from tests.cli.comparison.test_revisions import git
from tests.cli.full_cassette import everything
from tests.cli.invocation import run
from tests.conversations.recorded_calls import CHAT, call, chat, user
from tests.stores.contract.conftest import opened
from tests.stores.recordings import HEAD
from tests.support import fork_server
from tests.support.markdown import blocks

DRIVER = "cassette merge %O %A %B %P"
FILE = Path("cassettes/smoke.json")
SOUND = Random(1).randbytes(50_000)


def asked(question: str, answer: str = "") -> Interaction:
    return chat(0, [user(question)], answer or f"to {question}")


def save(path: Path | str, *items: AnyInteraction, meta: Mapping[str, Json] | None = None) -> str:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = HEAD if meta is None else CassetteHead(HEAD.created_at, HEAD.run_id, meta)
    path.write_bytes(SERIALIZER_BY_SUFFIX[path.suffix].save(StoredCassette(head, items)))
    return str(path)


def said(path: Path | str) -> list[str]:
    """Question and answer of each recording, which are numbered from 0."""
    found = SERIALIZER_BY_SUFFIX[Path(path).suffix].load(Path(path).read_bytes())
    assert [interaction.index for interaction in found.interactions] == list(
        range(len(found.interactions))
    )
    texts = []
    for interaction in found.interactions:
        assert isinstance(interaction, Interaction)
        question = json.loads(interaction.request.body)["messages"][0]["content"]
        answer = json.loads(interaction.response.body)["choices"][0]["message"]["content"]
        texts.append(f"{question}: {answer}")
    return texts


def merged(
    capsys: pytest.CaptureFixture[str],
    base: list[Interaction],
    ours: list[Interaction],
    theirs: list[Interaction],
) -> tuple[int, list[str], str]:
    """The exit code, what the result says, and standard error."""
    files = [
        save(f"{name}.json", *items)
        for name, items in (("base", base), ("ours", ours), ("theirs", theirs))
    ]
    code, out, err = run(capsys, "merge", *files)
    assert out == ""
    return code, said("ours.json"), err


A, B, C, D = map(asked, "abcd")


def test_what_both_sides_appended_is_kept_ours_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert merged(capsys, [A], [A, B], [A, C]) == (0, ["a: to a", "b: to b", "c: to c"], "")


def test_an_addition_keeps_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert merged(capsys, [A, B], [A, B, D], [C, A, asked("e"), B])[:2] == (
        0,
        ["c: to c", "a: to a", "e: to e", "b: to b", "d: to d"],
    )


def test_what_both_added_alike_is_kept_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert merged(capsys, [A], [A, B], [A, B, C])[1] == ["a: to a", "b: to b", "c: to c"]
    assert merged(capsys, [], [A, A], [A])[1] == ["a: to a", "a: to a"]


def test_two_answers_to_one_added_request_are_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    one, two = asked("b", "1"), asked("b", "2")
    assert merged(capsys, [A], [A, one], [A, two]) == (0, ["a: to a", "b: 1", "b: 2"], "")


def retaken(recording: Interaction, at: int) -> Interaction:
    """The same call, recorded once more: its answer has another number and time."""
    body = json.loads(recording.response.body) | {"id": f"chatcmpl-{at:032x}", "created": at}
    response = replace(recording.response, body=json.dumps(body).encode())
    return replace(recording, response=response)


def test_new_recordings_that_differ_in_ids_and_times_are_no_conflict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second = (1_795_729_434, 1_795_729_999)
    base, ours, theirs = [B, A], [retaken(B, first), retaken(A, first)], [B, retaken(A, second)]

    assert merged(capsys, base, ours, theirs) == (0, ["b: to b", "a: to a"], "")
    assert merged(capsys, [], ours, [*theirs, C]) == (0, ["b: to b", "a: to a", "c: to c"], "")
    kept = json.loads(Path("ours.json").read_text())["interactions"][1]["response"]["json"]
    assert kept["created"] == first


def test_what_one_side_removed_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    assert merged(capsys, [A, B, C], [B, C], [A, B, D])[1] == ["b: to b", "d: to d"]


@pytest.mark.parametrize("mine", [True, False])
def test_what_one_side_recorded_anew_is_taken_from_it(
    capsys: pytest.CaptureFixture[str], *, mine: bool
) -> None:
    new = [A, asked("b", "new")]
    sides = (new, [A, B, C]) if mine else ([A, B, C], new)
    assert merged(capsys, [A, B], *sides) == (0, ["a: to a", "b: new", "c: to c"], "")


def test_a_repeat_that_was_recorded_anew_keeps_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, second, third = asked("a", "1"), asked("a", "2"), asked("a", "3")
    new = asked("a", "new")
    assert merged(capsys, [first, second], [first, second, third], [first, new])[:2] == (
        0,
        ["a: 1", "a: new", "a: 3"],
    )


def in_language(language: str, answer: str) -> Interaction:
    """A recording whose answer depends on the language that was asked for."""
    made = asked("a", answer)
    headers = (*made.request.headers, (b"Accept-Language", language.encode()))
    request = replace(made.request, headers=headers, varied=("accept-language",))
    return replace(made, request=request)


def test_recordings_that_a_header_tells_apart_are_merged_each_by_itself(
    capsys: pytest.CaptureFixture[str],
) -> None:
    german, english = in_language("de", "Hallo"), in_language("en", "hello")
    ours = [replace(in_language("en", "hello there"), index=0)]
    theirs = [german, replace(in_language("en", "hello"), index=1)]

    assert merged(capsys, [english], ours, theirs) == (0, ["a: Hallo", "a: hello there"], "")


def test_a_recording_that_both_changed_is_a_conflict(capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = merged(capsys, [B, A], [B, asked("a", "x")], [B, asked("a", "y"), C])

    assert (code, found) == (1, ["b: to b", "a: x", "c: to c"])
    assert err.startswith("tapeway: ours.json: conflict: #1 POST ")
    assert "/v1/chat/completions" in err
    assert err.endswith("both sides changed it; ours is kept\n")


def test_no_changed_recording_is_lost_because_the_other_side_removed_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    new = asked("a", "new")
    code, found, err = merged(capsys, [B, A], [B], [B, new])
    assert (code, found) == (1, ["b: to b", "a: new"])
    assert "ours removed it; theirs is kept" in err
    code, found, err = merged(capsys, [B, A], [B, new], [B])
    assert (code, found) == (1, ["b: to b", "a: new"])
    assert "theirs removed it; ours is kept" in err


def said_by_model(text: str) -> Json:
    return {"choices": [{"message": {"role": "assistant", "content": text}}]}


def test_rules_of_both_are_united_and_say_what_is_equal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def with_user(name: str, answer: str) -> Interaction:
        return call(0, CHAT, {"messages": [user("hi")], "user": name}, said_by_model(answer))

    meta: dict[str, Json] = {"rules": {"ignore": ["body.seed", "body.n"]}}
    ours: dict[str, Json] = {"rules": {"ignore": ["body.seed", "body.user"]}}
    theirs: dict[str, Json] = {"rules": {"ignore": ["body.seed", "body.n"], "match": ["X-A"]}}
    code, _, err = run(
        capsys,
        "merge",
        save("base.json", with_user("1", "old"), meta=meta),
        save("ours.json", with_user("1", "old"), meta=ours),
        save("theirs.json", with_user("2", "new"), meta=theirs),
    )

    assert (code, err) == (0, "")
    assert said("ours.json") == ["hi: new"]
    assert json.loads(Path("ours.json").read_text())["meta"] == {
        "rules": {"ignore": ["body.seed", "body.user"], "match": ["X-A"]}
    }


def test_metadata_that_both_changed_is_a_conflict_and_a_day_is_the_earlier(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def versions(*values: dict[str, Json]) -> list[str]:
        return [
            save(f"{name}.json", A, meta=value)
            for name, value in zip(("base", "ours", "theirs"), values, strict=True)
        ]

    files = versions(
        {"checked_at": "2026-01-01", "repeats": "miss", "tapeway_version": "0"},
        {"checked_at": "2026-01-03", "repeats": "last", "tapeway_version": "1"},
        {"checked_at": "2026-01-02", "repeats": "cycle", "tapeway_version": "2"},
    )
    code, _, err = run(capsys, "merge", *files)

    assert (code, err) == (
        1,
        "tapeway: ours.json: conflict: meta.repeats: both sides changed it; ours is kept\n",
    )
    assert json.loads(Path("ours.json").read_text())["meta"] == {
        "checked_at": "2026-01-02",
        "repeats": "last",
        "tapeway_version": "1",
    }


def test_what_cannot_be_read_is_named_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    base, ours = save("base.json", A), save("ours.json", A, B)
    before = Path(ours).read_bytes()
    Path("theirs.json").write_text('{"log": {"entries": []}}')

    code, _, err = run(capsys, "merge", base, ours, "theirs.json")

    assert code == 2
    assert err.startswith("tapeway: theirs.json line 1: this is no cassette")
    assert Path(ours).read_bytes() == before
    assert run(capsys, "merge", base, ours)[0] == 2
    assert run(capsys, "merge", ours)[2] == (
        "tapeway: ours.json has no conflict markers: give BASE, OURS and THEIRS\n"
    )


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    git("init", "-q")


def branches(file: Path, base: list[Interaction] | None, *sides: list[Interaction]) -> None:
    """The branches `side` and the current one, each of which recorded."""
    Path("README").write_text("x")
    if base is not None:
        save(file, *base)
    git("add", "-A")
    git("commit", "-qm", "base")
    git("branch", "-q", "side")
    for side, branch in zip(sides, ("", "side"), strict=True):
        if branch:
            git("checkout", "-q", branch)
        save(file, *side)
        git("add", "-A")
        git("commit", "-qm", "more")
    git("checkout", "-q", "-")


def driven() -> None:
    git("config", "merge.tapeway.driver", f"{fork_server.program()} {DRIVER}")
    Path(".gitattributes").write_text("cassettes/** merge=tapeway\n")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
@pytest.mark.parametrize("base", [None, [A]])
def test_git_merges_two_branches_that_both_recorded(
    suffix: str, base: list[Interaction] | None
) -> None:
    file = FILE.with_suffix(suffix)
    driven()
    branches(file, base, [A, B], [A, C])

    git("merge", "-q", "side", "-m", "merged")

    assert said(file) == ["a: to a", "b: to b", "c: to c"]
    assert git("status", "--porcelain") == ""


@pytest.mark.usefixtures("repository")
def test_git_reports_what_both_branches_changed() -> None:
    driven()
    branches(FILE, [A], [asked("a", "x"), B], [asked("a", "y"), C])

    with pytest.raises(AssertionError):
        git("merge", "-q", "side", "-m", "merged")

    assert said(FILE) == ["a: x", "b: to b", "c: to c"]
    assert git("status", "--porcelain") == f"UU {FILE}\n"


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("style", ["merge", "diff3"])
@pytest.mark.parametrize("in_index", [True, False])
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_file_with_conflict_markers_is_named_by_every_command_and_merged(
    capsys: pytest.CaptureFixture[str], style: str, suffix: str, *, in_index: bool
) -> None:
    file = FILE.with_suffix(suffix)
    git("config", "merge.conflictStyle", style)
    branches(file, [A], [A, B], [A, C])
    with pytest.raises(AssertionError):
        git("merge", "-q", "side")
    if not in_index:
        git("add", "-A")
    lines = file.read_text().splitlines()
    line = lines.index("<<<<<<< HEAD") + 1
    reason = (
        f"{file} line {line}: git left conflict markers here: "
        f"merge both sides with `tapeway cassette merge FILE`"
    )

    for command in (["show", "smoke"], ["verify", "smoke"], ["convert", str(file), "x.jsonl"]):
        code, out, err = run(capsys, *command)
        assert code
        assert reason in out + err
    told = f"{file}: merged, 3 interactions; tell git by `git add`\n"
    assert run(capsys, "merge", str(file)) == (0, told, "")

    assert said(file) == ["a: to a", "b: to b", "c: to c"]


def test_markers_that_git_did_not_write_so_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    FILE.parent.mkdir()
    FILE.write_bytes(b"<<<<<<< a\n" + JSON.save(StoredCassette(HEAD, (A,))))
    code, _, err = run(capsys, "merge", str(FILE))
    assert (code, err) == (2, f"tapeway: {FILE}: the last conflict marker is missing\n")
    FILE.write_text("<<<<<<< a\n>>>>>>> b\n")
    code, _, err = run(capsys, "merge", str(FILE))
    assert (code, err) == (
        2,
        f"tapeway: {FILE} line 2: this conflict marker is not where git puts one\n",
    )


@pytest.mark.usefixtures("repository")
def test_the_calls_that_two_branches_recorded_are_replayed() -> None:
    def weather(
        place: Path, *cities: str, mode: Literal["replay", "auto"] = "auto"
    ) -> list[object]:
        with Cassette(str(place), mode=mode) as cassette:
            return [
                cassette.call(
                    "tool", "weather", {"city": city}, partial(f"warm in {{}} {mode}".format, city)
                )
                for city in cities
            ]

    driven()
    Path(".gitignore").write_text("*.lock\n")
    weather(FILE, "Rome")
    git("add", "-A")
    git("commit", "-qm", "base")
    git("branch", "-q", "side")
    weather(FILE, "Rome", "Oslo")
    git("commit", "-qam", "more")
    git("checkout", "-q", "side")
    weather(FILE, "Rome", "Lima")
    git("commit", "-qam", "more")

    git("merge", "-q", "-", "-m", "merged")

    assert weather(FILE, "Rome", "Oslo", "Lima", mode="replay") == [
        "warm in Rome auto",
        "warm in Oslo auto",
        "warm in Lima auto",
    ]


@pytest.mark.usefixtures("repository")
def test_git_merges_recordings_whose_large_binaries_are_not_checked_out_yet() -> None:
    """Git puts the files that only their side has into the working tree after the merge driver."""

    def record(*items: AnyInteraction) -> StoredCassette | None:
        return asyncio.run(stored(*items))

    async def stored(*items: AnyInteraction) -> StoredCassette | None:
        async with opened(FileStore(FILE.parent)) as store:
            if items:
                await store.save(FILE.stem, StoredCassette(HEAD, items))
            return await store.load(FILE.stem, writable=False)

    driven()
    Path(".gitignore").write_text("*.lock\n")
    record(A)
    git("add", "-A")
    git("commit", "-qm", "base")
    git("branch", "-q", "side")
    record(A, B)
    git("commit", "-qam", "more")
    git("checkout", "-q", "side")
    record(A, spoken_call(), spoken_session())
    git("add", "-A")
    git("commit", "-qm", "audio")
    assert len([*FILE.with_suffix(".assets").iterdir()]) == 2
    git("checkout", "-q", "-")

    git("merge", "-q", "side", "-m", "merged")

    found = record()
    assert found is not None
    bodies = [
        interaction.response.body
        for interaction in found.interactions
        if isinstance(interaction, Interaction)
    ]
    assert bodies[2:] == [spoken_call().response.body, spoken_session().response.body]


def spoken_call() -> Interaction:
    """A call that was answered with audio."""
    head = ResponseHead(200, "OK", ((b"Content-Type", b"audio/wav"),))
    request = Request("default", "POST", "/v1/audio/speech", body=b"{}")
    return Interaction(0, request, Response(head, SOUND))


def spoken_session() -> Interaction:
    """A WebSocket session with audio in a message."""
    head = ResponseHead(200, "OK", ((b"Content-Type", MESSAGES_TYPE),), framing="chunked")
    lines = [
        session_line(WebSocketMessage(b'{"type":"speak"}'), by_client=True),
        session_line(WebSocketMessage(SOUND, binary=True), by_client=False),
    ]
    return Interaction(
        1,
        Request("default", WEBSOCKET, "/v1/listen", body=b'{"type":"speak"}'),
        Response.of_chunks(head, [(line, float(at)) for at, line in enumerate(lines)]),
        metadata={"websocket": {"session": "voice"}},
    )


@pytest.mark.usefixtures("repository")
def test_the_documented_attributes_are_those_of_both_drivers() -> None:
    (attributes,) = [
        block.text for block in blocks("docs/cassettes.md") if "linguist-generated" in block.text
    ]
    Path(".gitattributes").write_text(attributes)

    for file in ("cassettes/smoke.json", "cassettes/suite/deep/smoke.yaml"):
        found = git("check-attr", "diff", "merge", "linguist-generated", "--", file)
        assert [line.rpartition(": ")[2] for line in found.splitlines()] == [
            "tapeway",
            "tapeway",
            "set",
        ]


@pytest.mark.slow
def test_a_merge_with_an_unchanged_side_is_the_other_side(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = Random(7)
    for _ in range(40):
        base = [asked(chosen.choice("abc"), chosen.choice("123")) for _ in range(4)]
        other = [recorded for recorded in base if chosen.random() < 0.7]
        for _ in range(chosen.randrange(4)):
            new = asked(chosen.choice("abcd"), chosen.choice("123"))
            other.insert(chosen.randrange(len(other) + 1), new)
        wanted = said(save("wanted.json", *other))

        assert merged(capsys, base, other, base) == (0, wanted, "")
        assert merged(capsys, base, other, other) == (0, wanted, "")
        code, found, err = merged(capsys, base, base, other)
        assert (code, sorted(found), err) == (0, sorted(wanted), "")


def test_every_kind_of_recording_is_merged_as_it_is_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = asyncio.run(everything())
    whole = file.read_bytes()
    stored = json.loads(whole)
    base, theirs = file.with_name("base.json"), file.with_name("theirs.json")
    base.write_text(json.dumps(stored | {"interactions": stored["interactions"][:2]}))
    theirs.write_bytes(JSON.save(JSON.load(base.read_bytes())))

    assert run(capsys, "merge", str(base), str(theirs), str(file), str(file)) == (0, "", "")
    assert json.loads(theirs.read_bytes())["interactions"] == stored["interactions"]
    assert run(capsys, "merge", str(base), str(file), str(theirs)) == (0, "", "")
    assert file.read_bytes() == whole
