"""Rules: read as they are written, merged, and refused with the place and what to do."""

import json
import tomllib
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.matching import json_paths, rules
from tapeway.core.matching.normalisers import NORMALISERS
from tapeway.core.matching.presets import PRESETS
from tapeway.core.matching.rules import NO_RULES, Rules, RulesFault

WRITTEN = """
presets = ["codex"]
ignore = ["body.messages[*].id", "query.ts"]
normalise = ["uuid", "iso8601"]
match = ["Anthropic-Beta"]
ignore_vary = ["Accept"]
audio = "exact"
patterns = { salt = "salt-[0-9a-f]{12}" }
rewrite = { "/v1beta/" = "/v1/" }
reuse = ["GET /v1/models/*"]
ignore_in = { "body.system" = ['(?m)^Today: .*$', "run [0-9]+"] }
"""
READ = Rules(
    presets=("codex",),
    ignore_in=(("body.system", ("(?m)^Today: .*$", "run [0-9]+")),),
    ignore=("body.messages[*].id", "query.ts"),
    normalise=("uuid", "iso8601"),
    patterns=(("salt", "salt-[0-9a-f]{12}"),),
    match=("anthropic-beta",),
    ignore_vary=("accept",),
    audio="exact",
    rewrite=(("/v1beta/", "/v1/"),),
    reuse=("GET /v1/models/*",),
)
ANY = st.builds(
    Rules,
    presets=st.lists(st.sampled_from(sorted(PRESETS)), unique=True).map(tuple),
    ignore_in=st.dictionaries(
        st.sampled_from(["body.system", "query.q"]),
        st.lists(st.sampled_from(["a+", "b"]), unique=True).map(tuple),
    ).map(lambda found: tuple(found.items())),
    ignore=st.lists(
        st.sampled_from(["body.a", "body.b[*].c", "query.page", 'body["odd key"]']), unique=True
    ).map(tuple),
    normalise=st.lists(st.sampled_from(sorted(NORMALISERS)), unique=True).map(tuple),
    patterns=st.dictionaries(
        st.sampled_from(["a", "salt", "x-1"]), st.sampled_from(["a+", "[0-9]{3}"])
    ).map(lambda found: tuple(found.items())),
    match=st.lists(st.sampled_from(["accept", "openai-beta"]), unique=True).map(tuple),
    audio=st.sampled_from(["", "exact", "length"]),
    ignore_vary=st.sampled_from([(), ("accept",), ("accept", "x-tenant"), ("*",)]),
    rewrite=st.dictionaries(st.sampled_from(["/v1beta/", "/a"]), st.sampled_from(["/v1/", ""])).map(
        lambda found: tuple(found.items())
    ),
    reuse=st.lists(st.sampled_from(["GET /a", "POST /b/**"]), unique=True).map(tuple),
    addresses=st.lists(
        st.sampled_from(["body.next", "body[*].href", 'body["odd.key"].x']), unique=True
    ).map(tuple),
    agenttape_ignore=st.none()
    | st.lists(st.sampled_from(["date", "x-id"]), unique=True).map(tuple),
)


def test_rules_are_read_as_people_write_them() -> None:
    assert rules.parse_rules(tomllib.loads(WRITTEN)) == READ


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('rewrite = ["body.next"]', Rules(addresses=("body.next",))),
        (
            'rewrite = ["body[*].href", { "/v1beta/" = "/v1/" }, "body.next", "body.next"]',
            Rules(rewrite=(("/v1beta/", "/v1/"),), addresses=("body[*].href", "body.next")),
        ),
    ],
)
def test_rewrite_as_a_list_names_addresses_in_bodies(written: str, read: Rules) -> None:
    assert rules.parse_rules(tomllib.loads(written)) == read


def test_addresses_in_bodies_are_steps_from_the_body_on() -> None:
    found = Rules(addresses=("body[*].href", "body.next"))

    assert found.address_paths == ((json_paths.ONE, "href"), ("next",))


@given(ANY)
def test_written_rules_are_read_back(any_rules: Rules) -> None:
    assert rules.parse_rules(rules.rules_document(any_rules)) == any_rules


@given(any_rules=ANY, others=ANY)
def test_rules_that_are_removed_are_those_of_the_others_and_no_more(
    any_rules: Rules, others: Rules
) -> None:
    left, gone = {*rules.single_rules(any_rules)}, {*rules.single_rules(others)}

    assert rules.removing(any_rules)(any_rules) == NO_RULES
    assert {*rules.single_rules(rules.removing(others)(any_rules))} == left - gone


@given(ANY)
def test_single_rules_are_together_the_rules(any_rules: Rules) -> None:
    assert reduce(rules.merged_rules, rules.single_rules(any_rules), NO_RULES) == any_rules


def test_no_rules_are_written_as_an_empty_table_and_are_false() -> None:
    assert rules.rules_document(NO_RULES) == {}
    assert rules.parse_rules({}) == NO_RULES
    assert not NO_RULES
    assert READ


def test_agenttape_ignore_changes_no_key_of_tapeways_and_is_replaced_whole() -> None:
    first, second = Rules(agenttape_ignore=("date",)), Rules(agenttape_ignore=())

    assert not first
    assert rules.merged_rules(first, second) == second
    assert rules.merged_rules(first, NO_RULES) == first
    assert rules.parse_rules({"agenttape_ignore": ["Date"]}) == first
    with pytest.raises(RulesFault, match=r"rules.agenttape_ignore\[0\]"):
        rules.parse_rules({"agenttape_ignore": [""]})


def test_a_duplicate_rule_counts_once() -> None:
    assert rules.parse_rules({"match": ["Accept", "accept"]}).match == ("accept",)


def test_rules_that_a_cassette_has_keep_their_places_beside_new_ones() -> None:
    meta: dict[str, Json] = {
        "rules": {"normalise": ["uuid"], "match": ["accept"], "ignore": ["body.b"]},
        "note": "kept",
    }
    more = Rules(ignore=("body.a",), patterns=(("order", "order-[0-9]+"),))

    merged = rules.merged_rules(rules.rules_of_meta(meta), more)
    changed = rules.meta_with_rules(meta, merged)

    assert json.dumps(changed) == json.dumps(
        {
            "rules": {
                "normalise": ["uuid"],
                "match": ["accept"],
                "ignore": ["body.b", "body.a"],
                "patterns": {"order": "order-[0-9]+"},
            },
            "note": "kept",
        }
    )


@given(ANY)
def test_merging_with_nothing_or_itself_changes_nothing(any_rules: Rules) -> None:
    assert rules.merged_rules(any_rules, NO_RULES) == any_rules
    assert rules.merged_rules(NO_RULES, any_rules) == any_rules
    assert rules.merged_rules(any_rules, any_rules) == any_rules


def test_merged_rules_are_those_of_both_and_the_second_defines_a_shared_name() -> None:
    first = Rules(ignore=("body.a",), patterns=(("x", "a+"), ("y", "b+")))
    second = Rules(ignore=("body.b", "body.a"), patterns=(("x", "c+"),), match=("accept",))

    assert rules.merged_rules(first, second) == Rules(
        ignore=("body.a", "body.b"), patterns=(("x", "c+"), ("y", "b+")), match=("accept",)
    )


def test_patterns_for_one_path_are_those_of_both() -> None:
    first = Rules(presets=("codex",), ignore_in=(("body.a", ("x", "y")),))
    second = Rules(
        presets=("claude-code", "codex"), ignore_in=(("body.b", ("z",)), ("body.a", ("w", "x")))
    )

    assert rules.merged_rules(first, second) == Rules(
        presets=("codex", "claude-code"),
        ignore_in=(("body.a", ("x", "y", "w")), ("body.b", ("z",))),
    )


def test_presets_are_written_out_beside_the_rules_that_are_there() -> None:
    own = Rules(presets=("codex",), ignore=("body.user",), match=("accept",))

    written = rules.with_presets(own)

    assert not written.presets
    assert written.match == own.match
    assert {*PRESETS["codex"].ignore, "body.user"} == {*written.ignore}
    assert written.ignore_in == PRESETS["codex"].ignore_in


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_made_of_rules_that_people_could_write(name: str) -> None:
    written = rules.with_presets(Rules(presets=(name,)))

    assert rules.parse_rules(rules.rules_document(written)) == written


@pytest.mark.parametrize(
    ("document", "where", "says"),
    [
        ([], "rules", "must be a table"),
        ({"ingore": []}, "rules.ingore", "did you mean 'ignore'?"),
        ({"ignore": "body.a"}, "rules.ignore", "must be a list"),
        ({"ignore": ["body.a", 3]}, "rules.ignore[1]", "must be a string"),
        ({"ignore": ["body..a"]}, "rules.ignore[0]", "cannot be parsed from '..a'"),
        ({"ignore": ["messages"]}, "rules.ignore[0]", "does not begin with body, query, headers"),
        ({"ignore": ["**.id"]}, "rules.ignore[0]", "does not begin with body, query, headers"),
        ({"ignore": ["body.a.**"]}, "rules.ignore[0]", "write 'body.a'"),
        ({"normalise": ["uid"]}, "rules.normalise[0]", "did you mean 'uuid'?"),
        ({"normalise": ["what"]}, "rules.normalise[0]", "known are uuid, "),
        ({"patterns": ["a"]}, "rules.patterns", "must be a table"),
        ({"patterns": {"x": "(?<=a)b"}}, "rules.patterns.x", "no look-around"),
        ({"patterns": {"x": "a*"}}, "rules.patterns.x", "match everywhere"),
        ({"patterns": {"no name": "a"}}, 'rules.patterns["no name"]', "<name>"),
        ({"patterns": {"x": 1}}, "rules.patterns.x", "must be a string"),
        ({"presets": ["claude-cod"]}, "rules.presets[0]", "did you mean 'claude-code'?"),
        ({"presets": "codex"}, "rules.presets", "must be a list"),
        ({"ignore_in": ["a"]}, "rules.ignore_in", "must be a table"),
        ({"ignore_in": {"system": ["a"]}}, "rules.ignore_in.system", "does not begin with body"),
        ({"ignore_in": {"body.a": "x"}}, 'rules.ignore_in["body.a"]', "must be a list"),
        ({"ignore_in": {"body.a": [1]}}, 'rules.ignore_in["body.a"][0]', "must be a string"),
        ({"ignore_in": {"body.a": ["x", "a*"]}}, 'rules.ignore_in["body.a"][1]', "everywhere"),
        ({"match": ["bad header"]}, "rules.match[0]", "is not a header name"),
        ({"match": ["Authorization"]}, "rules.match[0]", "no cassette holds"),
        ({"match": ["cookie"]}, "rules.match[0]", "no cassette holds"),
        ({"reuse": ["/v1/models"]}, "rules.reuse[0]", "GET /v1/models/*"),
        ({"reuse": ["get /v1/models"]}, "rules.reuse[0]", "GET /v1/models/*"),
        ({"reuse": ["GET v1/models"]}, "rules.reuse[0]", "GET /v1/models/*"),
        ({"reuse": ["GET /v1/models?limit=1"]}, "rules.reuse[0]", "GET /v1/models/*"),
        *[
            ({"match": [name]}, "rules.match[0]", "says how a request is sent")
            for name in ("Content-Length", "connection", "TE", "Transfer-Encoding", "expect")
        ],
        ({"match": ["Tapeway-Cassette"]}, "rules.match[0]", "names the cassette"),
        ({"match": ["Tapeway-Fault"]}, "rules.match[0]", "or a fault"),
        ({"audio": "loud"}, "rules.audio", "'loud' is no way to compare audio"),
        ({"audio": ["exact"]}, "rules.audio", "must be text"),
        ({"ignore_vary": "accept"}, "rules.ignore_vary", "a list of header names, or true"),
        ({"ignore_vary": ["bad header"]}, "rules.ignore_vary[0]", "is not a header name"),
        ({"rewrite": {"": "/v1"}}, 'rules.rewrite[""]', "name the part"),
        ({"rewrite": ["body.a", "query.b"]}, "rules.rewrite[1]", "write it like body.next"),
        ({"rewrite": ["body.a[b=c].d"]}, "rules.rewrite[0]", "write [*]"),
        ({"rewrite": ["body.."]}, "rules.rewrite[0]", "write it like"),
        ({"rewrite": [3]}, "rules.rewrite", "write rewrite"),
        ({"rewrite": {"/a?b": "/v1"}}, "rules.rewrite./a?b", "query.NAME"),
    ],
)
def test_a_wrong_rule_is_named_with_its_place_and_what_to_do(
    document: Json, where: str, says: str
) -> None:
    with pytest.raises(RulesFault) as caught:
        rules.parse_rules(document)

    assert caught.value.where == where
    assert says in str(caught.value)


@pytest.mark.parametrize("first", [(), ("accept",), ("*",)])
def test_all_names_of_vary_are_ignored_where_one_of_both_says_so(first: tuple[str, ...]) -> None:
    merged = rules.merged_rules(Rules(ignore_vary=first), rules.parse_rules({"ignore_vary": True}))

    assert merged.ignore_vary == ("*",)
    assert rules.rules_document(merged) == {"ignore_vary": True}
    assert rules.parse_rules({"ignore_vary": False}) == NO_RULES


def test_the_second_way_to_compare_audio_counts() -> None:
    exact, length = Rules(audio="exact"), Rules(audio="length")
    assert rules.merged_rules(exact, length).audio == "length"
    assert rules.merged_rules(exact, NO_RULES).audio == "exact"


@pytest.mark.parametrize("name", ["Sec-WebSocket-Protocol", "sec-websocket-key"])
def test_a_field_of_a_handshake_does_not_count(name: str) -> None:
    with pytest.raises(RulesFault, match="says how a request is sent"):
        rules.parse_rules({"match": [name]})


def test_a_cassette_may_still_have_a_rule_that_decides_nothing_any_more() -> None:
    meta: dict[str, Json] = {"rules": {"pending": ["body.status=WAITING"], "ignore": ["query.t"]}}

    assert rules.rules_of_meta(meta) == Rules(ignore=("query.t",))
    assert rules.rules_of_meta({"rules": {"pending": []}}) == NO_RULES
