"""Two cassettes of one run laid beside each other on the command line."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import Rules, rules_of_meta
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.native import document
from tests.cli.invocation import run_tapeway
from tests.core.requests import asked, chat

UUID = "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e8"


def write(name: str, *requests: Request, meta: dict[str, Json] | None = None) -> Path:
    """A cassette of these requests in the folder where cassettes are looked for."""
    response = Response(ResponseHead(200), dump("ok"))
    found = [Interaction(at, request, response) for at, request in enumerate(requests)]
    head = CassetteHead("2026-01-01T00:00:00+00:00", f"run-{name}", meta or {})
    path = Path("cassettes", f"{name}.json")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(document.save(StoredCassette(head, tuple(found))))
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run_tapeway(capsys, "doctor", *arguments)


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out, _ = run(capsys, "--format", "json", *arguments)
    return code, json.loads(out)


def rules_of(path: Path) -> Rules:
    return rules_of_meta(document.load(path.read_bytes()).head.meta)


def test_two_takes_that_match_need_no_rule(capsys: pytest.CaptureFixture[str]) -> None:
    write("one", asked(chat("a")), asked(chat("b")))
    write("two", asked(chat("b")), asked(chat("a")))

    assert run(capsys, "one", "two") == (
        0,
        "one and two: 2 calls equal\n\nNo rule is needed.\n",
        "",
    )


def test_differences_are_shown_with_the_rules_to_paste(capsys: pytest.CaptureFixture[str]) -> None:
    write(
        "one", asked(chat("a", user=f"{UUID}1", seed=1)), asked(chat("b", user=f"{UUID}2", seed=1))
    )
    write(
        "two", asked(chat("a", user=f"{UUID}3", seed=2)), asked(chat("b", user=f"{UUID}4", seed=1))
    )
    code, out, err = run(capsys, "one", "two")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "one and two: 0 calls equal",
        "  body.user differs in 2 calls",
        f'    first: "{UUID}1"',
        f'    second: "{UUID}3"',
        "  body.seed differs in 1 call",
        "    first: 1",
        "    second: 2",
        "",
        "Add under [rules] in tapeway.toml, in place of lines of the same name:",
        "",
        'ignore = ["body.seed"]',
        'normalise = ["uuid"]',
        "",
        "What is ignored matches whatever it says: keep what a test is about.",
    ]


def test_no_rule_leaves_out_what_decides_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    write("one", asked(chat("a", user=f"{UUID}1", stream=True)))
    write("two", asked(chat("a", user=f"{UUID}3")))
    code, out, _ = run(capsys, "one", "two")

    assert code == 1
    assert "No rule is suggested: body.stream decides the answer." in out
    assert "Add under [rules]" not in out


def test_the_lines_to_paste_include_the_rules_of_the_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("tapeway.toml").write_text('[rules]\nignore = ["body.seed"]\nnormalise = ["hex32"]\n')
    write("one", asked(chat("a", user="me", seed=1)))
    write("two", asked(chat("a", user="you", seed=2)))
    code, found = diagnosed(capsys, "one", "two")

    assert code == 0
    assert found["rules"] == {"ignore": ["body.user"]}
    assert tomllib.loads(found["toml"]) == {"ignore": ["body.seed", "body.user"]}


def test_two_cassettes_have_no_clock_to_move(capsys: pytest.CaptureFixture[str]) -> None:
    write("one", asked(chat("a")))
    code, _, err = run(capsys, "--days", "3", "one", "one")

    assert code == 2
    assert "--days needs a command" in err


def test_a_header_that_told_equal_requests_apart_is_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    requests = [
        replace(
            asked(chat("a")), headers=((b"content-type", b"application/json"), (b"accept", kind))
        )
        for kind in (b"a/a", b"b/b")
    ]
    head = CassetteHead("2026-01-01T00:00:00+00:00", "run", {})
    found = [
        Interaction(at, request, Response(ResponseHead(200), b"%d" % at))
        for at, request in enumerate(requests)
    ]
    path = write("one", asked(chat("a")))
    path.write_bytes(document.save(StoredCassette(head, tuple(found))))
    code, out, _ = run(capsys, "one", "one")

    assert code == 0
    assert 'match = ["accept"] below [rules] has it count' in out
    assert "No rule is needed" not in out


def test_another_conversation_stays_unexplained(capsys: pytest.CaptureFixture[str]) -> None:
    write("one", asked(chat("a", user=f"{UUID}1")))
    write("two", asked(chat("a", "b", user=f"{UUID}2")), asked(chat("z"), target="/v1/other"))
    code, out, _ = run(capsys, "one", "two")

    assert code == 1
    assert "No rule explains 1 call:\n  #0 POST /v1/chat/completions and #0 POST" in out
    assert '    body.messages[1]\n      first: nothing\n      second: {"' in out
    assert "1 call only in two:\n  #1 POST /v1/other\n" in out
    assert "No rule is needed" not in out


def test_a_rule_that_would_mix_up_calls_of_one_run_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("one", "two"):
        calls = [asked(chat("a", user=f"{name}-{number}")) for number in range(2)]
        write(name, *calls)
    code, out, _ = run(capsys, "one", "two")

    assert code == 1
    assert "No rule explains 2 calls:" in out
    assert (
        'No rule is suggested: ignore = ["body.user"] would also make recordings #0 and #1 equal.'
    ) in out


def test_a_script_gets_all_of_it_as_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    write("one", asked(chat("a", user="me")), asked(chat("gone")))
    write("two", asked(chat("a", user="you")))
    code, found = diagnosed(capsys, "one", "two")

    assert code == 0
    assert found == {
        "explained": True,
        "rules": {"ignore": ["body.user"]},
        "toml": 'ignore = ["body.user"]',
        "cassettes": [
            {
                "first": "one",
                "second": "two",
                "equal": 0,
                "explained": True,
                "differences": [
                    {
                        "path": "body.user",
                        "recorded": "me",
                        "requested": "you",
                        "calls": 1,
                        "echoed": False,
                    }
                ],
                "rules": {"ignore": ["body.user"]},
                "unexplained": [],
                "told_apart": [],
                "refusals": [],
                "only_first": [{"index": 1, "method": "POST", "path": "/v1/chat/completions"}],
                "only_second": [],
            }
        ],
    }


def test_write_puts_the_rules_into_the_first_and_then_they_match(
    capsys: pytest.CaptureFixture[str],
) -> None:
    meta: dict[str, Json] = {"rules": {"ignore": ["body.seed"]}, "mine": "kept"}
    path = write("one", asked(chat("a", user="me", seed=1)), meta=meta)
    other = write("two", asked(chat("a", user="you", seed=2)))
    before = other.read_bytes()

    assert run(capsys, "--write", "one", "two")[::2] == (0, "Added to the rules of one.\n")
    assert rules_of(path) == Rules(ignore=("body.seed", "body.user"))
    assert document.load(path.read_bytes()).head.meta["mine"] == "kept"
    assert other.read_bytes() == before
    assert run(capsys, "one", "two")[:2] == (0, "one and two: 1 call equal\n\nNo rule is needed.\n")


def test_nothing_is_written_where_no_rule_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    path = write("one", asked(chat("a")))
    write("two", asked(chat("a")))
    before = path.read_bytes()

    assert run(capsys, "--write", "one", "two")[::2] == (0, "")
    assert path.read_bytes() == before


def test_cassettes_may_be_named_by_file_by_name_or_in_another_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write("one", asked(chat("a")))
    write("two", asked(chat("a")))
    Path("cassettes").rename("kept")

    assert run(capsys, "kept/one.json", "kept/two.json")[0] == 0
    assert run(capsys, "--store", "kept", "one", "kept/two.json")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give two cassettes, or a command behind --."),
        (("one",), "give two cassettes, or a command behind --."),
        (("one", "one", "one"), "give two cassettes, or a command behind --."),
        (("--",), "there is no command behind --."),
        (("one", "--", "true"), "give two cassettes or a command, not both."),
        (("--write", "--", "true"), "leave out --write."),
        (("--store", "x", "--", "true"), "leave out --store."),
        (("--mode", "auto", "--", "true"), "No such option"),
        (("one", "nowhere"), "there is no cassette nowhere in file:cassettes"),
        (("one", "kept/nowhere.json"), "there is no cassette kept/nowhere.json in file:kept"),
        (("one", "no name"), "neither the name of a cassette"),
        (("--format", "xml", "one", "one"), "'xml' is not one of"),
    ],
)
def test_wrong_arguments_are_named_with_code_2(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write("one", asked(chat("a")))
    code, out, err = run(capsys, *arguments)

    assert (code, out) == (2, "")
    assert said in err
