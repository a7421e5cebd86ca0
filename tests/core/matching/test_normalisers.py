"""Normalisers find what they are named for; people's own patterns are refused with a reason and never slow."""

import pytest

from tapeway.core.json_text import Json
from tapeway.core.matching.normalisers import (
    NORMALISERS,
    NormaliserSet,
    PatternFault,
    compile_pattern,
)


@pytest.mark.parametrize("name", [name for name in NORMALISERS if name != "float_tail"])
def test_the_example_is_found_inside_a_text(name: str) -> None:
    example = NORMALISERS[name].example

    assert NormaliserSet([name]).text(f"before {example} after") == f"before <{name}> after"


@pytest.mark.parametrize(
    ("name", "text", "becomes"),
    [
        ("uuid", "id=3F2B1C9E-8A57-4D3C-9E21-0B6F4C5D7E88;", "id=<uuid>;"),
        ("iso8601", "2026-11-22 10:00", "<iso8601>"),
        ("iso8601", "at 2026-11-22T10:00:00+01:00.", "at <iso8601>."),
        ("date", "Today's date: 2026-11-22", "Today's date: <date>"),
        ("epoch", "1795312835.25 1795312835123 1795312835123456", "<epoch> <epoch> <epoch>"),
        ("tmp_path", "open /tmp/tmpab12/notes.txt now", "open <tmp_path>/notes.txt now"),
        (
            "tmp_path",
            "/private/var/folders/zz/abc123/T/tmpx9/a /tmp/pytest-of-me/pytest-31/test_a0/f",
            "<tmp_path>/a <tmp_path>/test_a0/f",
        ),
        ("tmp_path", "C:\\Users\\me\\AppData\\Local\\Temp\\tmpq1\\a.txt", "<tmp_path>\\a.txt"),
        ("tool_call_id", "toolu_01AbC srvtoolu_9xYz fc_1234", " ".join(["<tool_call_id>"] * 3)),
        ("response_id", "resp_0123456789 msg_abc123", "<response_id> <response_id>"),
        ("tool_call_id", "call_VvvOdyqhPsYuWqRtPlabKdLm", "<tool_call_id>"),
        ("tool_call_id", "tooluse_k-ZJMlvQmRJ", "<tool_call_id>"),
        ("hex32", "pyd_ai_9e107d9d372bb6826bd81d3542a419d6", "pyd_ai_<hex32>"),
        ("uuid", "id_3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88", "id_<uuid>"),
        ("tmp_path", "(/tmp/a, file:///tmp/b)", "(<tmp_path>, file://<tmp_path>)"),
        ("date", "2026-11-22 2026-11-23", "<date> <date>"),
        ("hex32", "9E107D9D372BB6826BD81D3542A419D6", "<hex32>"),
        ("port", "http://localhost:8080/v1", "http://<port>/v1"),
        ("duration", "took 12ms (0.5 seconds)", "took <duration> (<duration>)"),
        ("float_tail", "score 0.1234567 and 1.5", "score 0.12345 and 1.5"),
    ],
)
def test_a_varying_value_is_replaced(name: str, text: str, becomes: str) -> None:
    assert NormaliserSet([name]).text(text) == becomes


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uuid", "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e8"),
        ("epoch", "phone 2795312835, 17953128351, a1795312835"),
        ("hex32", "9e107d9d372bb6826bd81d3542a419d6a"),
        ("sha1", "d7a8fbb307d7809469ca9abcb0082e4f8d5651e46d3cdb762d02d0bf37c9e592"),
        ("tool_call_id", "please call me, call_x, recall_abcdef"),
        ("tmp_path", "/home/me/tmp.txt"),
        ("tmp_path", "/home/me/tmp/notes"),
        ("tmp_path", "https://x.test/tmp/notes"),
        ("date", "gpt-4o-2024-08-06"),
        ("date", "1234-56-78"),
        ("duration", "songs of the 1990s"),
        ("duration", "an iPhone 5s for 10 us dollars"),
        ("tool_call_id", "ask the call_center for a call-to-action"),
        ("response_id", "run_python_code is thread-safe"),
        ("date", "12026-11-223"),
    ],
)
def test_a_value_that_only_looks_similar_is_left(name: str, text: str) -> None:
    assert NormaliserSet([name]).text(text) == text


def test_texts_and_numbers_at_any_depth_are_replaced_but_no_key() -> None:
    value: Json = {
        "1795312835": [{"at": 1795312835, "ms": 1795312835123.5}, "1795312835"],
        "n": [1, 2.5, True, None, 10**400],
    }

    assert NormaliserSet(["epoch"]).value(value) == {
        "1795312835": [{"at": "<epoch>", "ms": "<epoch>"}, "<epoch>"],
        "n": [1, 2.5, True, None, 10**400],
    }


def test_a_number_is_rounded_and_a_whole_one_is_the_integer() -> None:
    rounded = NormaliserSet(["float_tail"]).value([0.123456789, 3.5, 2, 1.9999999])

    assert repr(rounded) == "[0.12346, 3.5, 2, 2]"


def test_an_own_pattern_comes_before_the_built_in_ones() -> None:
    normalising = NormaliserSet(["uuid"], [("job", "job-[0-9a-f-]{36}")])

    text = "job-3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88"

    assert normalising.text(text) == "<job>"


def test_without_normalisers_nothing_changes() -> None:
    assert NormaliserSet([]).value({"a": ["1795312835", 1795312835]}) == {
        "a": ["1795312835", 1795312835]
    }


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(", "[", "a{9999}", "\ud800"])
def test_a_pattern_that_re2_rejects_is_refused(pattern: str) -> None:
    with pytest.raises(PatternFault):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["", "a*", "^", "x?"])
def test_a_pattern_that_matches_everywhere_is_refused(pattern: str) -> None:
    with pytest.raises(PatternFault, match="everywhere"):
        compile_pattern(pattern)


def test_a_refusal_writes_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternFault):
        compile_pattern("(?!quiet)")

    assert capfd.readouterr() == ("", "")


def test_a_pattern_that_would_hang_a_backtracking_matcher_ends() -> None:
    assert compile_pattern("(a+)+$").sub("x", "a" * 50_000 + "!") == "a" * 50_000 + "!"


def test_letters_of_any_script_are_matched_and_kept() -> None:
    assert compile_pattern("ü+").sub("<u>", "süüß 日本") == "s<u>ß 日本"
