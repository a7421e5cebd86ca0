"""People's own patterns: refused with a reason, and never slow."""

import pytest

from tapeway.core.matching.normalisers import PatternFault, compiled


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "(", "[", "a{9999}", "\ud800"])
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(PatternFault):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["", "a*", "^", "x?"])
def test_what_would_match_everywhere_is_refused(pattern: str) -> None:
    with pytest.raises(PatternFault, match="everywhere"):
        compiled(pattern)


def test_a_refusal_writes_nothing_by_itself(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PatternFault):
        compiled("(?!quiet)")

    assert capfd.readouterr() == ("", "")


def test_a_pattern_that_would_hang_a_backtracking_matcher_ends() -> None:
    assert compiled("(a+)+$").sub("x", "a" * 50_000 + "!") == "a" * 50_000 + "!"


def test_letters_of_any_script_are_matched_and_kept() -> None:
    assert compiled("ü+").sub("<u>", "süüß 日本") == "s<u>ß 日本"
