"""The report as annotations: `::error file=F,line=N,title=T::MESSAGE`."""

import re

from tapeway.core.json_text import Json
from tapeway.core.misses.miss import NearestRecording
from tapeway.engine.journal import MissedCall
from tapeway.engine.report.forms import SourcePlace, annotations
from tapeway.engine.report.summary import CassetteReport, Isolation, RecordingSummary

NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def report(
    *misses: MissedCall, unused: tuple[RecordingSummary, ...] = (), name: str = "a"
) -> CassetteReport:
    return CassetteReport(name, 0, 0, 0, 0, misses, unused, (), NO_USAGE)


def test_a_miss_is_an_error_at_its_place_with_its_difference() -> None:
    differences: tuple[dict[str, Json], ...] = (
        {"path": "body.x", "recorded": "50%", "requested": "a\r\nb"},
    )
    miss = MissedCall(
        "GET", "/", "replay miss: GET /", (NearestRecording(0, differences),), times=2
    )

    assert annotations([report(miss)], lambda name: SourcePlace(f"c,d/{name}:1.json", 7)) == [
        "::error file=c%2Cd/a%3A1.json,line=7,title=tapeway%3A not recorded::GET / (2 times)%0A"
        'x: recorded "50%25", requested "a\\r\\nb"'
    ]


def test_what_else_needs_attention_is_a_warning_and_a_bypass_an_error() -> None:
    unused = tuple(RecordingSummary(at, "GET", f"/{at}") for at in range(12))
    isolation = Isolation(network_namespace=False, bypassed=("example.com:443",))

    assert annotations([report(unused=unused)], lambda name: None, isolation) == [
        "::error title=tapeway%3A bypassed::example.com:443 was asked for past the proxy",
        "::warning title=tapeway%3A not used::cassette a%0A"
        + "".join(f"#{at} GET /{at}%0A" for at in range(10))
        + "2 more",
    ]


def test_of_many_ten_are_shown_and_the_last_counts_the_rest() -> None:
    many = report(*[MissedCall("GET", f"/{at}", f"replay miss: GET /{at}") for at in range(25)])
    lines = annotations([many], lambda name: None)

    assert len(lines) == 10
    assert lines[8].endswith("::GET /8")
    assert lines[9] == "::error title=tapeway%3A more::16 more errors"
    assert all(re.fullmatch(r"::error [^\r\n]*", line) for line in lines)
