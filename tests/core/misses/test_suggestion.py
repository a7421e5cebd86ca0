"""A suggested rule makes the keys equal and no more."""

import itertools
import tomllib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching.normalisers import NORMALISERS
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules, parse_rules
from tapeway.core.misses.suggestion import (
    confused_recordings,
    matches,
    rules_text,
    suggestion,
    with_free_names,
)
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request
from tests.core.requests import asked, chat, recordings_of

UUID = "3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e8"
TEMPORARY = "/tmp/tmp"  # noqa: S108 - compared, not opened
PYTEST = "/tmp/pytest-of-ci/pytest"  # noqa: S108 - compared, not opened


def suggested(recorded: Request, requested: Request, rules: Rules = NO_RULES) -> str | None:
    found = suggestion(recorded, requested, rules).rules
    return None if found is None else rules_text(found)


def turns(*messages: dict[str, Json]) -> dict[str, Json]:
    return {"messages": list(messages)}


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        (chat("a", temperature=0.5), chat("a", temperature=0.7), ["body.temperature"]),
        (chat("a", seed=1), chat("a"), ["body.seed"]),
        (chat("a", **{"odd key": 1}), chat("a"), ['body["odd key"]']),
        ({"a": {}}, {"a": []}, ["body.a"]),
        (
            turns({"id": "m1", "content": "a"}, {"id": "m2", "content": "b"}),
            turns({"id": "m3", "content": "a"}, {"id": "m4", "content": "b"}),
            ["body.messages[*].id"],
        ),
        (
            turns({"id": "m1", "content": "a"}, {"content": "b"}),
            turns({"id": "m3", "content": "a"}, {"content": "b"}),
            ["body.messages[0].id"],
        ),
        (
            turns({"name": "a1"}, {"name": "b2"}),
            turns({"name": "c3"}, {"name": "d4"}),
            ["body.messages[0].name", "body.messages[1].name"],
        ),
        (
            turns({"note": "so long"}, {"note": "farewell then"}),
            turns({"note": "good day"}, {"note": "hello again"}),
            ["body.messages[0].note", "body.messages[1].note"],
        ),
    ],
)
def test_a_difference_is_ignored_by_its_path(
    recorded: Json, requested: Json, expected: list[str]
) -> None:
    found = suggestion(asked(recorded), asked(requested), NO_RULES)

    assert found.rules == Rules(ignore=tuple(expected))


@pytest.mark.parametrize(
    ("recorded", "requested", "place"),
    [
        (chat("a"), chat("a", stream=True), "body.stream decides the answer"),
        (chat("a", n=1), chat("a"), "body.n decides the answer"),
        (
            chat("a", model="m-2026-05-06"),
            chat("a", model="m-2026-08-01"),
            "body.model decides the answer",
        ),
        ({"session": {"model": "a1"}}, {"session": {"model": "b2"}}, "body.session.model decides"),
        (
            chat("a", tools=[{"name": "x1"}]),
            chat("a", tools=[{"name": "y2"}]),
            "body.tools[0].name",
        ),
        ({"id": 1, "method": "sum"}, {"id": 2, "method": "sum"}, "body.id names one call"),
        ({"id": 1, "method": "get1"}, {"id": 1, "method": "get2"}, "body.method decides"),
    ],
)
def test_what_decides_the_answer_is_never_left_out_and_the_reason_is_given(
    recorded: Json, requested: Json, place: str
) -> None:
    found = suggestion(asked(recorded), asked(requested), NO_RULES)

    assert found.rules is None
    assert found.refusal is not None
    assert found.refusal.startswith(f"no rule is suggested: {place}")


def test_a_model_in_the_query_is_not_left_out() -> None:
    found = suggestion(
        asked({}, target="/v1/listen?model=nova-2"),
        asked({}, target="/v1/listen?model=nova-3"),
        NO_RULES,
    )

    assert found.refusal == "no rule is suggested: query.model decides the answer"


@pytest.mark.parametrize("name", ["t", "_"])
def test_a_parameter_with_the_time_of_the_request_is_left_out(name: str) -> None:
    recorded, requested = [
        asked({}, target=f"/v1/x?{name}={moment}") for moment in ("1732000000123", "1795312835456")
    ]

    assert suggested(recorded, requested) == f'ignore = ["query.{name}"]'


def upload(content: bytes) -> Request:
    head = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    kind = ((b"content-type", b"multipart/form-data; boundary=b"),)
    return Request("openai", "POST", "/v1/files", kind, head + content + b"\r\n--b--\r\n")


@pytest.mark.parametrize("contents", [(b"one", b"two"), (b"\xff1", b"\xff2")])
def test_the_content_of_a_file_is_never_left_out(contents: tuple[bytes, bytes]) -> None:
    found = suggestion(upload(contents[0]), upload(contents[1]), NO_RULES)

    assert found.rules is None
    assert found.refusal is not None
    assert "is the digest of other content" in found.refusal


@pytest.mark.parametrize(
    "content",
    [
        "It is November {}, 2026.",
        '{{"prompt": "Hello.\\nNovember {}, 2026"}}',
        '{{"id": "a", "prompt": "Hello.\\nNovember {}, 2026"}}\n{{"id": "b"}}\n',
    ],
)
def test_a_date_in_a_file_is_normalised(content: str) -> None:
    recorded, requested, other = [
        upload(content.format(day).replace("2026", year).encode())
        for day, year in ((24, "2026"), (25, "2026"), (25, "2026, changed"))
    ]

    assert suggested(recorded, requested) == 'normalise = ["date"]'
    assert suggested(recorded, other) is None
    assert matches(recorded, requested, Rules(normalise=("date",)))
    assert not matches(recorded, other, Rules(normalise=("date",)))


def test_what_the_latest_take_replaces_under_a_rule_keeps_no_rule_from_being_suggested() -> None:
    texts = [f"It is November {day}, 2026." for day in (24, 25)]
    recordings = recordings_of(*[asked(chat(text)) for text in texts])
    dates = Rules(normalise=("date",))

    assert confused_recordings(recordings, NO_RULES, dates) == (0, 1)
    assert confused_recordings(recordings, NO_RULES, dates, replacing={1}) is None
    assert confused_recordings(recordings, NO_RULES, dates, replacing={0, 1}) == (0, 1)


def recorded_on(days: dict[int, str]) -> list[Interaction]:
    """Recordings of prompts, each of a day in November by the `Date` of its answer."""
    calls = recordings_of(*[asked(chat(text)) for text in days.values()])
    return [
        replace(
            call,
            response=replace(
                call.response,
                head=replace(
                    call.response.head,
                    headers=((b"Date", b"Wed, %d Nov 2026 12:00:00 GMT" % (day % 100)),),
                ),
            ),
        )
        for day, call in zip(days, calls, strict=True)
    ]


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ({24: "It is November 24, 2026.", 25: "It is November 25, 2026."}, 'normalise = ["date"]'),
        # These dates are what is asked about.
        ({24: "About November 20, 2026.", 25: "About November 21, 2026."}, None),
        (
            {
                24: "It is November 24, 2026, about November 1, 2026.",
                124: "It is November 24, 2026, about November 2, 2026.",
            },
            None,
        ),
    ],
)
def test_a_prompt_that_was_recorded_on_two_days_gets_the_normaliser_of_its_date(
    days: dict[int, str], expected: str | None
) -> None:
    calls = recorded_on(days)
    text = next(iter(days.values())).replace("24", "26").replace("20,", "22,").replace(" 1,", " 3,")
    found = suggestion(calls[0].request, asked(chat(text)), NO_RULES, calls)

    assert (None if found.rules is None else rules_text(found.rules)) == expected


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        (
            f"in {PYTEST}-1/popen-gw0/test_a0",
            f"in {PYTEST}-2/popen-gw1/test_a0",
            'normalise = ["tmp_path"]',
        ),
        (f"in {PYTEST}-1/popen-gw0/a", f"in {PYTEST}-12/a", 'normalise = ["tmp_path"]'),
        (f"job {UUID}1", f"job {UUID}2", 'normalise = ["uuid"]'),
        ("at 2026-11-22T10:00:00Z", "at 2026-11-23T11:00:00Z", 'normalise = ["iso8601"]'),
        (1795312835, 1795312999, 'normalise = ["epoch"]'),
        (f"{TEMPORARY}a1b2c3/x", f"{TEMPORARY}d4e5f6/x", 'normalise = ["tmp_path"]'),
        (
            f"{UUID}1 on 2026-11-22T10:00:00Z",
            f"{UUID}2 on 2026-11-23T11:00:00Z",
            'normalise = ["uuid", "iso8601"]',
        ),
        (
            f"in {TEMPORARY}a1b2c3 on day 3",
            f"in {TEMPORARY}d4e5f6 on day 3",
            'normalise = ["tmp_path"]',
        ),
    ],
)
def test_a_value_of_a_known_form_is_normalised(
    recorded: Json, requested: Json, expected: str
) -> None:
    bodies = [turns({"content": content}) for content in (recorded, requested)]

    assert suggested(asked(bodies[0]), asked(bodies[1])) == expected


@pytest.mark.parametrize(
    ("recorded", "requested", "name", "pattern"),
    [
        ("build ABC-0123456 of it", "build ABC-6543210 of it", "abc", r"(?m)^build ABC-[0-9]{7}\b"),
        ("in lot_a1b2c3d4.", "in lot_e5f6a7b8c9.", "lot", r"(?m)^in lot_[0-9a-f]{8,10}\b"),
        ("see x1y2z3w4", "see a9b8c7d6", "see", r"(?m)^see [0-9a-z]{8}\b"),
        (
            f"job {UUID}1 of lot-0a1b2c3",
            f"job {UUID}2 of lot-4d5e6f7",
            "lot",
            r" of lot-[0-9a-f]{7}\b",
        ),
        (
            "Be brief.\nSession: 20261125_160506_ab12cd",
            "Be brief.\nSession: 20261126_091526_ef34ab",
            "session",
            r"(?m)^Session: [0-9]{8}_[0-9]{6}_[0-9a-f]{6}\b",
        ),
        (
            "Session: 20261126_160506_ab12cd.",
            "Session: 20261126_091526_ef34ab.",
            "session",
            r"(?m)^Session: [0-9]{8}_[0-9]{6}_[0-9a-f]{6}\b",
        ),
        (
            "a1b2c3d4 is the run",
            "e5f6a7b8 is the run",
            "run",
            r"(?m)^[0-9a-f]{8} is the run\b",
        ),
        (
            "<run>a1b2c3d4</run>",
            "<run>e5f6a7b8</run>",
            "run",
            r"(?m)^<run>[0-9a-f]{8}\b",
        ),
        (
            'run (a1b2c3d4, "e5f6a7b8")',
            'run (b1c2d3e4, "f5a6b7c8")',
            "run",
            r"""(?m)^run \([0-9a-f]{8}, "[0-9a-f]{8}\b""",
        ),
        (
            "trace V1StGXR8_Z5jdHi6B-myT here",
            "trace p-Q7kd2x_Lm4Za9Wc1eF- here",
            "trace",
            "(?m)^trace [0-9A-Za-z_-]{21} ",
        ),
        (
            "in the bucket of that name, which is of the team: lot-4f5a6b",
            "in the bucket of that name, which is of the team: lot-9c8d7e",
            "lot",
            r"\bthat name, which is of the team: lot-[0-9a-f]{6}\b",
        ),
        ("セッション: a1b2c3d4", "セッション: e5f6a7b8", "id", r"(?m)^セッション: [0-9a-f]{8}\b"),
    ],
)
def test_an_opaque_value_in_a_prompt_gets_a_pattern_with_its_words_that_is_anchored(
    recorded: str, requested: str, name: str, pattern: str
) -> None:
    requests = asked(chat(recorded)), asked(chat(requested))
    text = suggested(*requests)

    assert text is not None
    pasted = parse_rules(tomllib.loads(text))
    assert pasted.patterns == ((name, pattern),)
    assert matches(*requests, pasted)
    assert not matches(asked(chat(f"{recorded} now")), requests[1], pasted)


@pytest.mark.parametrize("around", ["id: {}", "see ({}).", "run {} now", "a {}, b", "{}: start"])
@pytest.mark.parametrize("name", NORMALISERS)
def test_no_pattern_is_made_up_for_a_value_that_a_normaliser_replaces(
    name: str, around: str
) -> None:
    recorded = NORMALISERS[name].example
    requested = (
        f"0.12345{recorded[::-1][:4]}" if name == "float_tail" else _with_other_end(recorded)
    )
    found = suggestion(
        asked(chat(around.format(recorded))), asked(chat(around.format(requested))), NO_RULES
    )

    assert found.rules == Rules(normalise=(name,))


def _with_other_end(text: str) -> str:
    """A value of the same form: its last digit is another one."""
    at = max(text.rfind(digit) for digit in "0123456789")
    return text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :]


def test_a_pattern_leaves_values_of_the_same_form_elsewhere_alone() -> None:
    prompts = "Session: 20261125_160506_ab12cd", "Session: 20261126_091526_ef34ab"
    one, other = "37i9dQZF1DXcBWIGoYBM5M", "4uLU6hMCjMI75M1A2tKUQC"

    recorded, requested = [asked(chat(prompt, f"delete {one}")) for prompt in prompts]
    found = suggestion(recorded, requested, NO_RULES).rules

    assert found is not None
    asked_now = asked(chat("Session: 20261127_101112_aa11bb", f"delete {other}"))
    assert not matches(recorded, asked_now, found)
    assert matches(asked(chat(prompts[0], f"delete {other}")), asked_now, found)


def test_two_values_with_the_same_word_before_them_get_patterns_of_different_names() -> None:
    recorded = asked(chat("run a1b2c3d4 after\nrun 1234567"))
    requested = asked(chat("run e5f6a7b8 after\nrun 7654321"))

    found = suggestion(recorded, requested, NO_RULES).rules

    assert found is not None
    assert dict(found.patterns) == {
        "run": r"(?m)^run [0-9a-f]{8}\b",
        "run-2": r"(?m)^run [0-9]{7}\b",
    }


def test_a_pattern_in_force_keeps_its_name() -> None:
    rules = Rules(patterns=(("run", r"run-[0-9]{4}\b"),))
    recorded, requested = asked(chat("run a1b2c3d4")), asked(chat("run e5f6a7b8"))

    found = suggestion(recorded, requested, rules).rules

    assert found == Rules(patterns=(("run-2", r"(?m)^run [0-9a-f]{8}\b"),))
    assert with_free_names(Rules(patterns=(("run", "other"),)), rules).patterns == (
        ("run-2", "other"),
    )


@pytest.mark.parametrize(
    ("prompts", "others", "rule"),
    [
        (("job {0}1", "job {0}2"), ("job {0}3", "job {0}4"), 'normalise = ["uuid"]'),
        (
            ("run a1b2c3d4", "run b1b2c3d4"),
            ("run c1b2c3d4", "run d1b2c3d4"),
            r'patterns = { "run" = "(?m)^run [0-9a-f]{8}\\b" }',
        ),
    ],
)
def test_a_rule_that_would_make_recordings_equal_that_differ_is_not_suggested(
    prompts: tuple[str, str], others: tuple[str, str], rule: str
) -> None:
    recorded, requested, *more = [
        asked(chat(prompt.format(UUID))) for prompt in (*prompts, *others)
    ]

    found = suggestion(recorded, requested, NO_RULES, recordings_of(recorded, *more))

    assert found.rules is None
    assert found.refusal == (
        f"no rule is suggested: {rule} would also make recordings #0 and #1 equal"
    )
    assert suggestion(recorded, requested, NO_RULES, recordings_of(recorded)).rules is not None


def test_a_field_that_tells_recordings_apart_is_not_ignored() -> None:
    recordings = recordings_of(*[asked({"page": number}) for number in range(3)])

    found = suggestion(recordings[0].request, asked({"page": 9}), NO_RULES, recordings)

    assert found.rules is None
    assert 'ignore = ["body.page"]' in str(found.refusal)


def test_recordings_that_are_equal_already_keep_no_rule_from_being_suggested() -> None:
    recorded = asked(chat("a", user="u1"))
    recordings = recordings_of(recorded, recorded, asked(chat("a", user="u1")))

    found = suggestion(recorded, asked(chat("a", user="u2")), NO_RULES, recordings)

    assert found.rules == Rules(ignore=("body.user",))


@pytest.mark.parametrize(
    "prompts",
    [
        ("one word", "two words"),
        ("one spider", "one beetle"),
        ("1", "2"),
        ("order 1234 please", "order 4321 please"),
        ("ask gpt-4o", "ask gpt-4.1"),
        ("in 2025", "in 2026"),
        (f"job {UUID}1", f"task {UUID}2"),
        ("in /home/ann/shop", "in /home/bob/shop"),
        ("", "hello"),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        lambda text: {"prompt": text},
        lambda text: {"input": text},
        lambda text: {"instructions": text, "input": [{"id": "a"}]},
        lambda text: {"system": [{"type": "text", "text": text}]},
        lambda text: {"contents": [{"parts": [{"text": text}]}]},
        lambda text: chat(text),
        lambda text: {"tools": [{"function": {"description": text}}]},
        lambda text: {"messages": [{"tool_calls": [{"function": {"arguments": text}}]}]},
    ],
)
def test_to_ignore_a_prompt_is_never_suggested(
    prompts: tuple[str, str], body: Callable[[str], Json]
) -> None:
    recorded, requested = map(body, prompts)

    assert suggested(asked(recorded), asked(requested)) is None


def test_the_preset_that_explains_all_of_a_difference_is_suggested() -> None:
    system = "Be brief.\n - Primary working directory: {}\n - Platform: linux\n"
    here, there, other = [
        asked({**chat(prompt), "system": system.format(folder)})
        for folder, prompt in (("/home/ann", "hi"), ("/home/bob", "hi"), ("/home/bob", "ho"))
    ]

    assert suggested(here, there) == 'presets = ["claude-code"]'
    assert suggested(here, other) is None


def test_normalise_and_ignore_are_suggested_together() -> None:
    recorded = asked({"run": f"{UUID}1", "temperature": 1})
    requested = asked({"run": f"{UUID}2", "temperature": 2})

    assert suggested(recorded, requested) == 'ignore = ["body.temperature"]\nnormalise = ["uuid"]'


@pytest.mark.parametrize(
    ("recorded", "requested", "expected"),
    [
        ("/v1/models/m", "/v1beta/models/m", 'rewrite = { "/v1beta/" = "/v1/" }'),
        ("/a/v2/b", "/a/v1/b", 'rewrite = { "/v1/" = "/v2/" }'),
        ("/v1/b", "/b", 'rewrite = { "/v1/" = "/" }'),
        ("/b", "/v1/b", 'rewrite = { "/v1/" = "/" }'),
        (
            "/2024-05-01/b",
            "/2024-09-01-preview/b",
            'rewrite = { "/2024-09-01-preview/" = "/2024-05-01/" }',
        ),
        ("/v1/models/one", "/v1/models/two", None),
        ("/v1/a", "/v2/b", None),
        ("/b/v1", "/b/v2", None),
        ("/v1/b?page=1", "/v2/b?page=2", 'ignore = ["query.page"]\nrewrite = { "/v2/" = "/v1/" }'),
    ],
)
def test_another_version_in_the_path_is_rewritten(
    recorded: str, requested: str, expected: str | None
) -> None:
    requests = [asked(chat("a"), target=target) for target in (recorded, requested)]

    assert suggested(requests[0], requests[1]) == expected


def test_nothing_is_suggested_where_no_rule_could_help() -> None:
    here = asked(chat("a"))

    assert suggested(here, here) is None
    assert suggested(here, asked(chat("a"), route="groq")) is None
    assert suggested(here, asked(chat("a"), method="PUT")) is None
    assert suggested(here, asked(chat("a", "b"))) is None
    assert suggested(asked(chat("b", "c")), asked(chat("a", "b", "c"))) is None


def test_nothing_is_suggested_for_requests_that_differ_in_many_places() -> None:
    recorded = asked({f"field-{number}": "one thing" for number in range(13)})
    requested = asked({f"field-{number}": "another" for number in range(13)})

    assert suggested(recorded, requested) is None


def test_ignoring_a_whole_body_is_never_suggested() -> None:
    one, other = [
        Request("openai", "POST", "/v1/x", ((b"content-type", b"text/plain"),), body)
        for body in (b"good morning", b"good evening")
    ]

    assert suggested(one, other) is None
    assert suggested(asked(chat("a")), asked(1)) is None


def test_rules_in_force_are_not_suggested_again() -> None:
    rules = Rules(ignore=("body.user",), normalise=("uuid",))
    recorded = asked(chat(f"{UUID}1", user="a", seed=1))
    requested = asked(chat(f"{UUID}2", user="b", seed=2))

    assert suggested(recorded, requested, rules) == 'ignore = ["body.seed"]'


LEAVES: st.SearchStrategy[Json] = st.sampled_from(
    [None, True, 1, 2, 0.5, "a b", "c1", "d2", f"{UUID}1", f"{UUID}2", "2026-11-22", "\x7f", "ü"]
)
BODIES: st.SearchStrategy[Json] = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "content", "odd key", "\x7f", "*"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(BODIES, BODIES, st.sampled_from(["/v1/x", "/v2/x", "/x"]))
def test_a_suggestion_can_be_pasted_and_makes_the_keys_equal(
    recorded: Json, requested: Json, target: str
) -> None:
    requests = asked({"a": recorded}), asked({"a": requested}, target=target)
    text = suggested(*requests)

    if text is not None:
        pasted = parse_rules(tomllib.loads(text))
        assert not matches(*requests, NO_RULES)
        assert matches(*requests, merged_rules(NO_RULES, pasted))


STAMPS = st.sampled_from(["a1b2c3d4", "e5f6a7b8", "20261125_ab12", "20261126_cd34", f"{UUID}1"])
PROMPTS = st.builds("{} {} {}".format, st.sampled_from(["Session:", "delete", "-"]), STAMPS, STAMPS)
CALLS = st.builds(
    lambda prompt, user, page: asked({**chat(prompt), "user": user}, target=f"/v1/x?page={page}"),
    PROMPTS,
    STAMPS,
    st.integers(0, 1),
)


@given(st.lists(CALLS, min_size=1, max_size=5), CALLS)
def test_a_suggestion_keeps_all_recordings_apart_that_differ(
    recorded: list[Request], requested: Request
) -> None:
    recordings = recordings_of(*recorded)
    found = suggestion(recorded[0], requested, NO_RULES, recordings)

    if found.rules is not None:
        assert matches(recorded[0], requested, found.rules)
        for one, other in itertools.combinations(recorded, 2):
            assert matches(one, other, NO_RULES) or not matches(one, other, found.rules)
    elif found.refusal is None:
        assert confused_recordings(recordings, NO_RULES, NO_RULES) is None


OBJECTS: st.SearchStrategy[Json] = st.dictionaries(
    st.sampled_from(["id", "name", "odd key", "*"]), LEAVES, max_size=3
)


@given(OBJECTS, OBJECTS)
def test_fields_that_differ_can_always_be_ignored(recorded: Json, requested: Json) -> None:
    requests = asked({"a": recorded}), asked({"a": requested})

    assert (suggested(*requests) is None) == matches(*requests, NO_RULES)


def versioned(version: str | None, target: str = "/v1/x") -> Request:
    """A request whose answer depends on the version of the API that it names."""
    headers = () if version is None else ((b"X-Api-Version", version.encode()),)
    return Request("openai", "GET", target, headers, varied=("x-api-version",))


def test_a_header_that_decides_may_be_ignored() -> None:
    recorded = versioned("2026-01-01")

    assert suggested(recorded, versioned("2026-02-01")) == 'ignore_vary = ["x-api-version"]'
    assert suggested(recorded, versioned(None)) == 'ignore_vary = ["x-api-version"]'


def test_a_header_that_tells_recordings_apart_is_not_ignored() -> None:
    recorded = [versioned("2026-01-01"), versioned("2026-02-01"), versioned("1", "/v1/y")]

    found = suggestion(recorded[0], versioned("2026-03-01"), NO_RULES, recordings_of(*recorded))

    assert found.rules is None
    assert found.refusal == (
        'no rule is suggested: ignore_vary = ["x-api-version"] would also make recordings #0 and #1 '
        "equal"
    )
    alone = recordings_of(recorded[0], recorded[2])
    assert suggestion(recorded[0], versioned("2026-03-01"), NO_RULES, alone).rules is not None


def test_a_header_that_may_have_been_sent_is_not_ignored() -> None:
    missed = Request("openai", "GET", "/v1/x?page=2")

    found = suggestion(versioned("1"), missed, NO_RULES).rules

    assert found is not None
    assert (found.ignore, found.ignore_vary) == (("query.page",), ())


def test_a_header_that_decides_and_a_parameter_are_ignored_together() -> None:
    missed = versioned("2", "/v1/x?trace=1")

    found = suggestion(versioned("1"), missed, NO_RULES).rules

    assert found is not None
    assert (found.ignore, found.ignore_vary) == (("query.trace",), ("x-api-version",))
    assert matches(versioned("1"), missed, merged_rules(NO_RULES, found))
