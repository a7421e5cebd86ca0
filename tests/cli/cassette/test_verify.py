"""`tapeway cassette verify`: whether all is there, and whether a store's index says what the requests say."""

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.cli.cassette.verify import IndexCheck, Problem
from tapeway.cli.transfer.batches import mark_unfinished
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.matching.rules import NO_RULES
from tapeway.core.model.cassette import LogPage, LogRow, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import BodyFile
from tapeway.formats.native.document import load, save
from tapeway.stores.file.store import FileStore
from tests.cli.invocation import run, written
from tests.stores.recordings import HEAD, recording
from tests.support.exchanges import interaction
from tests.support.fakes.shared_store import BitByBitStore

BODY = b"x" * 2_000_000
DIGEST = hashlib.sha256(BODY).hexdigest()
ASSET = Path("cassettes/large.assets") / f"sha256-{DIGEST}"
FIRST = recording(0).exchange
SECOND = recording(1).exchange
AGAIN = replace(FIRST, index=2)
TOOL = ForeignInteraction(3, {"kind": "tool", "response": 1})


async def _with_a_large_body() -> None:
    store = FileStore(Path("cassettes"))
    await store.open()
    kept = await store.keep("large", [BODY])
    item = interaction()
    file = BodyFile(kept.path, kept.size, kept.digest)
    item = replace(item, response=replace(item.response, body=b"", file=file))
    again = replace(item, index=1, request=replace(item.request, target="/v1/again"), match_key="")
    await store.save("large", StoredCassette(HEAD, (item, again)))
    await store.close()


@pytest.fixture
def large() -> None:
    """A cassette with a large body that two recordings share."""
    asyncio.run(_with_a_large_body())


@pytest.mark.usefixtures("large")
def test_complete_cassettes_are_reported_as_whole(capsys: pytest.CaptureFixture[str]) -> None:
    written("suite/a", interaction())

    said = "large: 2 interactions, 1 large body, whole\nsuite/a: 1 interaction, whole\n"
    assert run(capsys, "verify") == (0, said, "")
    assert run(capsys, "verify", "suite/a") == (0, said.splitlines(keepends=True)[1], "")
    assert run(capsys, "verify", "cassettes/suite/a.json")[0] == 0


VARYING = ((b"Vary", b"Origin, Accept-Encoding, Accept, X-Tenant"),)


def test_a_recording_without_the_headers_its_answer_depends_on_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = interaction()
    one = replace(
        one, response=replace(one.response, head=replace(one.response.head, headers=VARYING))
    )
    kept = replace(one.request, target="/kept", varied=("accept", "x-tenant"))
    written("a", one, replace(one, index=1, request=kept, match_key=""))
    written("b", replace(one, request=replace(one.request, route="")))

    code, out, _ = run(capsys, "verify", "a")

    assert code == 1
    assert out.startswith("a: #0: its answer depends on accept, x-tenant (Vary)")
    assert out.count("\n") == 1
    assert run(capsys, "verify", "b")[0] == 0


def test_a_preflight_without_the_method_it_asked_for_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = interaction()
    permits = ((b"Access-Control-Allow-Methods", b"PUT"),)
    head = replace(one.response.head, headers=permits)
    request = replace(one.request, method="OPTIONS", body=b"")
    written("a", replace(one, request=request, response=replace(one.response, head=head)))

    code, out, _ = run(capsys, "verify", "a")

    assert (code, "it is a preflight without" in out) == (1, True)


@pytest.mark.usefixtures("large")
def test_a_changed_large_body_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    ASSET.write_bytes(b"y" + BODY[1:])

    code, out, _ = run(capsys, "verify", "large")

    assert code == 1
    assert out == f"large: #0: {ASSET} was changed since it was recorded: restore it\n"


@pytest.mark.usefixtures("large")
def test_a_missing_large_body_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    ASSET.unlink()

    code, _, err = run(capsys, "verify", "large")

    assert code == 2
    assert f"{ASSET} is missing" in err


def test_a_changed_asset_of_another_tools_cassette_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written("a", interaction())
    document = json.loads(file.read_text())
    document["interactions"][0]["response"] = {
        "status_code": 200,
        "text": {"__agenttape_asset__": f"sha256:{DIGEST}"},
    }
    file.write_text(json.dumps(document))
    assets = Path("cassettes/a.assets")
    assets.mkdir()

    (assets / f"sha256-{DIGEST}").write_bytes(BODY)
    assert run(capsys, "verify", "a")[0] == 0
    (assets / f"sha256-{DIGEST}").write_bytes(b"y")
    code, _, err = run(capsys, "verify", "a")
    assert code == 2
    assert "beside the cassette was changed" in err


def test_a_match_key_of_another_request_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("a", interaction())
    document = json.loads(file.read_text())
    document["interactions"][0]["request"]["json"]["model"] = "other"
    file.write_text(json.dumps(document))

    code, out, _ = run(capsys, "verify", "a", "--format", "json")

    assert code == 1
    (found,) = json.loads(out)
    assert (found["name"], found["interactions"], found["error"]) == ("a", 1, None)
    (problem,) = found["problems"]
    assert problem["index"] == 0
    assert problem["reason"].startswith("its match_key does not belong to its request")


def test_the_match_keys_of_edited_requests_are_written_anew(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written("a", interaction(), replace(interaction(target="/v1/b"), index=1))
    file.write_text(file.read_text().replace('"model": "m"', '"model": "other"', 1))
    other = written("b", interaction())
    before = other.read_bytes()

    code, out, _ = run(capsys, "verify")
    assert (code, "verify --rewrite-keys writes it" in out) == (1, True)
    assert run(capsys, "verify", "--rewrite-keys")[:2] == (
        0,
        "a: 2 interactions, whole\nb: 1 interaction, whole\n",
    )
    assert run(capsys, "verify", "a")[0] == 0
    assert '"model": "other"' in file.read_text()
    assert other.read_bytes() == before
    assert run(capsys, "verify", "--live", "--rewrite-keys")[0] == 2


def chat(index: int, answer: str, *history: tuple[str, str]) -> Interaction:
    """A call of OpenAI's with these messages before it."""
    sent = [{"role": role, "content": content} for role, content in history]
    message = {"role": "assistant", "content": answer}
    return replace(
        interaction(
            request_body=json.dumps({"model": "m", "messages": sent}).encode(),
            body=json.dumps({"choices": [{"index": 0, "message": message}]}).encode(),
        ),
        index=index,
    )


def test_a_request_that_repeats_an_edited_answer_otherwise_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked, told = ("user", "Hi"), ("assistant", "Hello.")
    first, second = chat(0, "Hello.", asked), chat(1, "Bye.", asked, told, ("user", "Go"))
    assert first.request.target == "/v1/chat/completions"
    file = written("a", first, second)
    assert run(capsys, "verify", "a") == (0, "a: 2 interactions, whole\n", "")

    file.write_text(file.read_text().replace('"content": "Hello."', '"content": "Good day."', 1))
    code, out, _ = run(capsys, "verify", "a")

    assert (code, out) == (
        0,
        "a: #1: its request repeats the answer of #0 as 'Hello.', and #0 answers 'Good day.': a client "
        "that gets this answer sends another request; edit both\na: 2 interactions, whole\n",
    )


def test_one_of_several_answers_to_a_question_may_be_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ("user", "Hi")
    written(
        "a",
        chat(0, "One.", asked),
        chat(1, "Two.", asked),
        chat(2, "x", asked, ("assistant", "One."), ("user", "b")),
        chat(3, "x", asked, ("assistant", ""), ("user", "c")),
    )

    assert run(capsys, "verify", "a") == (0, "a: 4 interactions, whole\n", "")


def test_an_interaction_that_does_not_survive_a_round_trip_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written("a", interaction())
    written("b", interaction())

    def forgetful(item: object) -> dict[str, object]:
        return {"kind": "tool", "request": {}, "response": {}}

    monkeypatch.setattr("tapeway.cli.cassette.verify.encode", forgetful)

    assert run(capsys, "verify", "a") == (
        1,
        "a: #0: written and read again, it is another one\n",
        "",
    )


def test_all_others_are_checked_if_one_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    written("a").write_text("{")
    written("b", interaction())

    code, out, err = run(capsys, "verify")

    assert (code, out) == (2, "b: 1 interaction, whole\n")
    assert "cassettes/a.json line 1" in err
    assert run(capsys, "verify", "nowhere")[0] == 2


def test_an_unfinished_conversion_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("a", interaction())
    found = load(file.read_bytes())
    file.write_bytes(save(replace(found, head=mark_unfinished(found.head))))

    code, out, err = run(capsys, "verify")

    assert (code, err) == (1, "")
    assert out == "a: an interrupted conversion left this behind: convert again, or remove it\n"
    assert run(capsys, "ls")[1].splitlines()[1].endswith("  unfinished")
    assert json.loads(run(capsys, "ls", "--format", "json")[1])[0]["unfinished"] is True


def test_problems_found_by_the_store_itself_are_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(BitByBitStore):
        async def check(self) -> list[str]:
            return ["row 3 is missing from index 1"]

    monkeypatch.setattr("tapeway.cli.cassette.verify.open_store", lambda url: Wrong("sqlite:x"))

    assert run(capsys, "verify") == (1, "sqlite:x: row 3 is missing from index 1\n", "")


class Index:
    """A log that says what it is told to; the rest of a store is not used."""

    def __init__(self, *under: tuple[Interaction, Interaction], tool: LogRow | None = None) -> None:
        self._rows = [
            LogRow(at, item.index, item.index, 0, recording_key(as_if, NO_RULES), 0, True)
            for at, (item, as_if) in enumerate(under, 1)
        ]
        self._rows += [row for row in [tool] if row is not None]

    async def since(self, name: str, seen: int) -> LogPage:
        return LogPage("t", len(self._rows), self._rows[seen : seen + 1])


async def gone_through(index: Index, *items: AnyInteraction) -> list[Problem]:
    keys = IndexCheck(index, "x", NO_RULES)  # type: ignore[arg-type]
    return [*[told for item in items for told in await keys.problems(item)], *keys.left_over()]


async def test_a_correct_index_has_no_problems() -> None:
    tool = LogRow(4, TOOL.index, TOOL.index, 0, None, 0, True)
    index = Index((FIRST, FIRST), (SECOND, SECOND), (AGAIN, FIRST), tool=tool)

    assert await gone_through(index, FIRST, SECOND, AGAIN, TOOL) == []


async def test_a_recording_missing_from_the_index_is_reported() -> None:
    told = await gone_through(Index((FIRST, FIRST)), FIRST, SECOND)

    assert [item.index for item in told] == [1]
    assert "does not find it" in told[0].reason


async def test_a_recording_under_another_requests_key_is_reported() -> None:
    told = await gone_through(Index((FIRST, FIRST), (SECOND, FIRST)), FIRST, SECOND)

    assert [item.index for item in told] == [1]
    assert "by a request it does not have" in told[0].reason
