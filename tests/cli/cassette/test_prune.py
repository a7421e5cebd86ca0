"""`tapeway cassette prune`: what a run did not use goes, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.cli.cassette import prune
from tapeway.core.agenttape.key import ORDERED_KEY
from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    fingerprint,
)
from tapeway.engine.journal import Tally
from tapeway.formats.native.document import load
from tests.cli.invocation import run, written
from tests.stores.recordings import HEAD
from tests.support.exchanges import interaction
from tests.support.reports import report_of_index

TOOL = ForeignInteraction(0, {"kind": "tool", "request": {"name": "f"}, "response": 1})


def item(target: str, answer: bytes) -> Interaction:
    return interaction(target=target, body=answer, at_ms=1.0)


A1, A2, A3, B = (
    *[item("/v1/a", b'{"n": %d}' % number) for number in (1, 2, 3)],
    item("/v1/b", b'{"n": 1}'),
)


def report(*items: AnyInteraction, used: int, name: str = "smoke") -> str:
    """A report of a run that asked for `/v1/a` so many times, in a file."""
    numbered = [replace(element, index=index) for index, element in enumerate(items)]
    cassette = CassetteIndex(name, StoredCassette(HEAD, tuple(numbered)), take=1)
    cassette.take.touch(range(used))
    unused = report_of_index(cassette, Tally()).unused
    listed = [
        {
            "index": recording.index,
            "method": recording.method,
            "path": recording.path,
            "mark": recording.fingerprint,
        }
        for recording in unused
    ]
    document = {"cassettes": [{"name": name, "unused": listed, "replayed": used}]}
    Path("run.json").write_text(json.dumps(document))
    return "run.json"


def held(name: str = "smoke") -> list[str]:
    found = load(Path(f"cassettes/{name}.json").read_bytes()).interactions
    return [
        f"{recorded.request.target} {recorded.response.body.decode()}"
        if isinstance(recorded, Interaction)
        else "tool"
        for recorded in found
    ]


def test_recordings_that_a_run_did_not_use_are_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("smoke", A1, A2, TOOL, B, A3)
    before = file.read_bytes()
    given = report(A1, A2, TOOL, B, A3, used=2)

    code, out, err = run(capsys, "prune", "--report", given, "--dry-run")
    assert (code, err) == (0, "")
    assert [line[:25] for line in out.splitlines()] == [
        "smoke: would go: #3 POST ",
        "smoke: would go: #4 POST ",
        "smoke: 2 of 5 interaction",
    ]
    assert out.endswith("smoke: 2 of 5 interactions would go, 3 left\n")
    assert file.read_bytes() == before

    code, out, err = run(capsys, "prune", "smoke", "--report", given)
    assert (code, err) == (0, "")
    assert out.endswith("smoke: 2 of 5 interactions dropped, 3 left\n")
    assert held() == ['/v1/a {"n": 1}', '/v1/a {"n": 2}', "tool"]


def test_what_stays_in_a_file_is_spelled_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("smoke", A1, A2, B)
    cassette = json.loads(file.read_text())
    by_hand = cassette["interactions"][2]
    by_hand["response"] = {"status_code": 200, "text": '{"n":1}'}
    del by_hand["latency_ms"]
    file.write_text(json.dumps(cassette))

    assert run(capsys, "prune", "smoke", "--keep-last=1")[0] == 0
    assert json.loads(file.read_text())["interactions"][1] == {**by_hand, "index": 1}


def test_unused_recordings_are_found_under_other_indexes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # What was recorded in between took the place of what went, and all were numbered anew.
    written("smoke", B, A3, A1, item("/v1/c", b"{}"), A2)

    assert run(capsys, "prune", "--report", report(A1, A2, A3, used=2))[0] == 0
    assert held() == ['/v1/b {"n": 1}', '/v1/a {"n": 1}', "/v1/c {}", '/v1/a {"n": 2}']


def test_of_equal_recordings_the_right_number_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written("smoke", A1, A1, A1, B)

    assert run(capsys, "prune", "--report", report(A1, A1, A1, used=2))[0] == 0
    assert held() == ['/v1/a {"n": 1}', '/v1/a {"n": 1}', '/v1/b {"n": 1}']


def test_of_recordings_with_equal_answers_the_one_at_the_reported_index_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tagged = [replace(A1, tags=(character,)) for character in "abc"]
    file = written("smoke", *tagged)
    Path("run.json").write_text(
        json.dumps(
            {
                "cassettes": [
                    {
                        "name": "smoke",
                        "unused": [
                            {"index": 1, "method": "", "path": "", "mark": fingerprint(A1)},
                            {"index": 9, "method": "", "path": "", "mark": fingerprint(A1)},
                        ],
                    }
                ]
            }
        )
    )

    assert run(capsys, "prune", "--report", "run.json")[0] == 0
    (left,) = load(file.read_bytes()).interactions
    assert isinstance(left, Interaction)
    assert left.tags == ("a",)


def test_recordings_that_answer_in_order_are_no_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    file = written("smoke", *[replace(A1, stored_keys=(ORDERED_KEY,))] * 3)

    assert run(capsys, "prune", "smoke", "--keep-last=1")[1].startswith("smoke: 0 of 3")
    assert len(load(file.read_bytes()).interactions) == 3


@pytest.mark.parametrize("now", [(A1, A2), (A1, A2, item("/v1/a", b'{"n": 4}')), ()])
def test_a_cassette_that_changed_since_the_report_is_left_alone(
    capsys: pytest.CaptureFixture[str], now: tuple[Interaction, ...]
) -> None:
    before = written("smoke", *now).read_bytes()

    code, out, err = run(capsys, "prune", "--report", report(A1, A2, A3, used=1))

    assert (code, out) == (2, "")
    assert err.startswith("tapeway: smoke has changed since the report, where #")
    assert Path("cassettes/smoke.json").read_bytes() == before


def test_a_report_without_marks_is_refused_for_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    written("smoke", A1)
    unused = [{"index": 0, "method": "POST", "path": "/v1/a"}]
    Path("run.json").write_text(json.dumps({"cassettes": [{"name": "smoke", "unused": unused}]}))

    code, _, err = run(capsys, "prune", "--report", "run.json")

    assert code == 2
    assert "the report does not say which recordings of smoke" in err


def test_the_last_answers_stay(capsys: pytest.CaptureFixture[str]) -> None:
    written("smoke", A1, B, A2, TOOL, A3)

    code, out, _ = run(capsys, "prune", "smoke", "--keep-last", "2", "--format", "json")
    (said,) = json.loads(out)
    assert (code, said["interactions"], said["left"], said["dry_run"]) == (0, 5, 4, False)
    assert [dropped["index"] for dropped in said["dropped"]] == [0]
    assert run(capsys, "prune", "cassettes/smoke.json", "--keep-last", "1")[0] == 0
    assert held() == ['/v1/b {"n": 1}', "tool", '/v1/a {"n": 3}']


def test_rules_decide_which_requests_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    written("smoke", item("/v1/a?at=1", b"1"), item("/v1/a?at=2", b"2"))
    assert run(capsys, "prune", "smoke", "--keep-last", "1")[1].startswith("smoke: 0 of 2")
    Path("tapeway.toml").write_text('[rules]\nignore = ["query.at"]\n')

    assert run(capsys, "prune", "smoke", "--keep-last", "1")[0] == 0
    assert held() == ["/v1/a?at=2 2"]


def test_permanent_indexes_need_no_marks() -> None:
    named = [
        prune.ReportedRecording(index=4, method="POST", path="/v1/a"),
        prune.ReportedRecording(index=9, method="POST", path="/v1/gone"),
    ]
    unused = prune.UnusedRecordings(named, "x", permanent_indexes=True)
    unused.add(replace(A1, index=3))
    unused.add(replace(A2, index=4))
    assert [recording.index for recording in unused.found()] == [4]

    other = prune.UnusedRecordings(named, "x", permanent_indexes=True)
    with pytest.raises(Exception, match="x has changed since the report"):
        other.add(replace(B, index=4))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("smoke",), "say what to drop: --report FILE or --keep-last N."),
        (("--keep-last", "1"), "name the cassettes, or give a --report that does."),
        (("--report", "nix.json"), "nix.json: cannot be read"),
        (("--report", "odd.json"), "odd.json is no report: give the JSON that tapeway run"),
        (("other", "--report", "run.json"), "the report does not list other"),
        (("nix", "--keep-last", "1"), "there is no cassette nix in file:cassettes"),
        (("x", "--keep-last", "1", "--store", "memory:"), "memory: begins and ends with"),
    ],
)
def test_a_request_that_cannot_be_done_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    written("smoke", A1)
    written("other", A1)
    report(A1, used=0)
    Path("odd.json").write_text("[]")
    before = Path("cassettes/smoke.json").read_bytes()

    code, out, err = run(capsys, "prune", *arguments)

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"tapeway: {said}")
    assert Path("cassettes/smoke.json").read_bytes() == before
