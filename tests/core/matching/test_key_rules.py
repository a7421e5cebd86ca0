"""What rules leave out of the match key, and what they do not."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json, dump
from tapeway.core.matching import json_paths
from tapeway.core.matching.key import request_key
from tapeway.core.matching.normalisers import NORMALISERS
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.misses.suggestion import suggestion
from tapeway.core.model.messages import LARGE_BODY, Headers, Request
from tests.core.keys import FORM, JSON, TEXT
from tests.core.matching.test_key_bodies import multipart

CHAT: dict[str, Json] = {
    "model": "gpt-4.1",
    "stream": False,
    "n": 1,
    "temperature": 1.0,
    "tools": [{"type": "function", "function": {"name": "weather"}}],
    "messages": [{"role": "user", "content": "Hello", "id": "m1"}],
}


def key(
    rules: Rules, body: "Json | bytes" = b"", headers: Headers = JSON, target: str = "/v1/x"
) -> bytes:
    sent = body if isinstance(body, bytes) else dump(body)
    return request_key(Request("openai", "POST", target, headers, sent), rules)


def equal(
    rules: Rules, left: "Json | bytes", right: "Json | bytes", headers: Headers = JSON
) -> bool:
    return key(rules, left, headers) == key(rules, right, headers)


@pytest.mark.parametrize(
    ("rule", "left", "right"),
    [
        ("body.seed", {"seed": 1}, {"seed": 2}),
        ("body.seed", {"seed": 1}, {}),
        ("body.messages[*].id", {"messages": [{"id": 1}]}, {"messages": [{"id": 2}]}),
        ("body.messages[1].id", {"messages": [{}, {"id": 1}]}, {"messages": [{}, {"id": 2}]}),
        ("body.**.id", {"a": [{"b": {"id": 1}}], "id": 1}, {"a": [{"b": {}}]}),
        ('body["odd key"]', {"odd key": 1}, {"odd key": 2}),
        ("body[0]", [1, 2], [3, 2]),
        ("body", {"a": 1}, b"no JSON at all"),
    ],
)
def test_an_ignored_part_does_not_count(rule: str, left: Json, right: "Json | bytes") -> None:
    assert not equal(NO_RULES, left, right)
    assert equal(Rules(ignore=(rule,)), left, right)


def test_fields_of_forms_can_be_ignored() -> None:
    assert equal(Rules(ignore=("body.nonce",)), b"a=1&nonce=2", b"nonce=3&a=1", FORM)
    assert not equal(Rules(ignore=("body.nonce",)), b"a=1&nonce=2", b"nonce=3&a=2", FORM)


def test_files_of_forms_can_be_ignored() -> None:
    model = (b'name="model"', b"", b"whisper-1")
    sent = [
        multipart((b'name="file"; filename="%b"' % name, b"audio/wav", data), model)
        for name, data in ((b"a.wav", b"1"), (b"b.wav", b"1"), (b"a.wav", b"2"))
    ]
    rules = Rules(ignore=("body.file.filename",))

    keys = [key(rules, body, headers) for body, headers in sent]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_parts_of_a_query_can_be_ignored_and_the_others_count() -> None:
    rules = Rules(ignore=("query.ts", "query.page[1]"))

    assert key(rules, target="/x?a=1&ts=1") == key(rules, target="/x?ts=2&a=1")
    assert key(rules, target="/x?a=1&ts=1") != key(rules, target="/x?ts=1&a=2")
    assert key(rules, target="/x?page=1&page=2") == key(rules, target="/x?page=1&page=3")


def test_a_header_counts_where_a_rule_names_it() -> None:
    rules = Rules(match=("anthropic-beta",))
    with_beta = (*JSON, (b"Anthropic-Beta", b"one"))
    with_other = (*JSON, (b"anthropic-beta", b"two"))

    assert key(NO_RULES, CHAT, with_beta) == key(NO_RULES, CHAT)
    assert key(rules, CHAT, with_beta) != key(rules, CHAT)
    assert key(rules, CHAT, with_beta) != key(rules, CHAT, with_other)
    assert key(rules, CHAT, (*with_beta, (b"accept", b"*/*"))) == key(rules, CHAT, with_beta)


def test_paths_are_rewritten_in_recordings_and_in_requests() -> None:
    rules = Rules(rewrite=(("/v1beta/", "/v1/"),))

    assert key(rules, target="/v1beta/models/m") == key(rules, target="/v1/models/m")
    assert key(rules, target="/v1%62eta/models/m") == key(rules, target="/v1/models/m")
    assert key(rules, target="/v2/models/m") != key(rules, target="/v1/models/m")
    assert key(NO_RULES, target="/v1beta/models/m") != key(NO_RULES, target="/v1/models/m")


@pytest.mark.parametrize(
    ("normalise", "left", "right"),
    [
        ("date", {"m": "today is 2026-11-22"}, {"m": "today is 2026-11-23"}),
        ("tmp_path", {"m": "in /tmp/tmpab1/x"}, {"m": "in /tmp/tmpcd2/x"}),
        ("epoch", {"at": 1795312835}, {"at": 1795312999.5}),
        ("float_tail", {"score": 0.1234567}, {"score": 0.123457}),
        ("float_tail", {"score": 0.9999999}, {"score": 1}),
        (
            "uuid",
            b"text 3f2b1c9e-8a57-4d3c-9e21-0b6f4c5d7e88",
            b"text 00000000-8a57-4d3c-9e21-0b6f4c5d7e88",
        ),
    ],
)
def test_a_normalised_value_does_not_count(
    normalise: str, left: "Json | bytes", right: "Json | bytes"
) -> None:
    headers = TEXT if isinstance(left, bytes) else JSON

    assert not equal(NO_RULES, left, right, headers)
    assert equal(Rules(normalise=(normalise,)), left, right, headers)


def test_normalisers_reach_paths_and_queries() -> None:
    rules = Rules(normalise=("hex32",))
    one, two = "0" * 32, "f" * 32

    assert key(rules, target=f"/f/{one}?x={one}") == key(rules, target=f"/f/{two}?x={two}")


def test_keys_of_objects_are_not_normalised() -> None:
    rules = Rules(normalise=("date",))

    assert not equal(rules, {"2026-11-22": 1}, {"2026-11-23": 1})


def test_an_own_pattern_does_not_count() -> None:
    rules = Rules(patterns=(("salt", "salt-[0-9a-f]{12}"),))

    assert equal(rules, {"m": "say salt-0123456789ab"}, {"m": "say salt-ba9876543210"})
    assert not equal(rules, {"m": "say salt-0123456789ab"}, {"m": "tell salt-ba9876543210"})


def test_a_pattern_that_hits_json_syntax_leaves_the_body_json() -> None:
    rules = Rules(patterns=(("quote", '[{"]+'),), ignore=("body.id",))

    assert equal(rules, {"id": 1, "m": 'say "hi"', "a": 1}, {"a": 1, "m": 'say "hi"', "id": 2})


def uploaded(content: bytes) -> Request:
    body, headers = multipart((b'name="f"; filename="a.png"', b"image/png", content))
    return Request("openai", "POST", "/v1/x", headers, body)


def raw(content: bytes, kind: bytes = b"image/png") -> Request:
    return Request("openai", "POST", "/v1/x", ((b"content-type", kind),), content)


@pytest.mark.parametrize(
    "request_of",
    [
        raw,
        uploaded,
        lambda content: raw(b"a=" + content, b"application/x-www-form-urlencoded"),
        lambda content: raw(content * (LARGE_BODY // 16 + 1)),
    ],
)
def test_no_normaliser_and_no_pattern_makes_two_images_equal(
    request_of: Callable[[bytes], Request],
) -> None:
    rules = Rules(normalise=tuple(NORMALISERS), patterns=(("hex", "[0-9a-f]+"),))
    one, other = [request_of(bytes([255, last]) * 8) for last in (0x80, 0x81)]

    assert request_key(one, rules) != request_key(other, rules)
    found = suggestion(one, other, NO_RULES).rules
    assert found is None or not found.normalise


@pytest.mark.parametrize("name", ["model", "stream", "n", "temperature", "tools", "messages"])
def test_only_an_explicit_rule_leaves_out_what_is_sent_to_a_model(name: str) -> None:
    changed: dict[str, Json] = {**CHAT, name: "changed"}
    unrelated = Rules(ignore=("body.user",), normalise=("uuid", "epoch"))

    assert not equal(unrelated, CHAT, changed)
    assert equal(Rules(ignore=(f"body.{name}",)), CHAT, changed)


leaves = st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2)
values: st.SearchStrategy[Json] = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=1), inner, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Json, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every leaf, the empty list and object being leaves too."""
    pairs: Any = value.items() if isinstance(value, dict) else None
    if isinstance(value, list):
        pairs = enumerate(value)
    if not pairs or not value:
        return [at]
    return [place for step, member in pairs for place in places(member, (*at, step))]


def changed_at(value: Json, place: tuple[str | int, ...], new: Json) -> Json:
    if not place:
        return new
    step, onward = place[0], place[1:]
    if isinstance(value, dict):
        return {k: changed_at(v, onward, new) if k == step else v for k, v in value.items()}
    assert isinstance(value, list)
    return [changed_at(v, onward, new) if k == step else v for k, v in enumerate(value)]


@given(values, st.data())
def test_any_leaf_that_changes_changes_the_key(value: Json, data: st.DataObject) -> None:
    place = data.draw(st.sampled_from(places(value)))

    assert not equal(NO_RULES, value, changed_at(value, place, "another"))
    assert not equal(Rules(normalise=("uuid",)), value, changed_at(value, place, "another"))


@given(values, st.data())
def test_an_ignored_leaf_never_counts_and_every_other_does(
    value: Json, data: st.DataObject
) -> None:
    found = places(value)
    ignored, other = data.draw(st.sampled_from(found)), data.draw(st.sampled_from(found))
    rules = Rules(ignore=(json_paths.path_text(("body", *ignored)),))

    assert equal(rules, value, changed_at(value, ignored, "another"))
    assert equal(rules, value, changed_at(value, other, "another")) is (ignored == other)


def test_what_is_ignored_in_texts_counts_everywhere_else() -> None:
    rules = Rules(ignore_in=(("body.system", (r"(?m)^Today is .*\n?",)),))
    one, other = "Be kind.\nToday is Monday\n", "Be kind.\nToday is Friday\n"

    assert not equal(NO_RULES, {"system": one}, {"system": other})
    assert equal(rules, {"system": one}, {"system": other})
    assert equal(rules, {"system": [{"text": one}]}, {"system": [{"text": other}]})
    assert equal(rules, {"system": one}, {"system": "Be kind.\n"})
    assert not equal(rules, {"system": one}, {"system": other.replace("kind", "rude")})
    assert not equal(rules, {"user": one}, {"user": other})
    assert not equal(rules, {"system": one}, {"system": [other]})


def test_a_text_block_of_which_nothing_is_left_is_left_out() -> None:
    rules = Rules(ignore_in=(("body.m[role=user]", ("^note.*$",)),))
    block: Json = {"type": "text", "text": "hi"}
    note: Json = {"type": "text", "text": "note 1"}
    empty: Json = {"type": "text", "text": ""}

    def messages(role: str, *content: Json) -> Json:
        return {"m": [{"role": role, "content": [*content]}]}

    assert equal(rules, messages("user", note, block), messages("user", block))
    assert not equal(rules, messages("user", {"text": "note 1"}, block), messages("user", block))
    assert not equal(rules, messages("user", empty, block), messages("user", block))
    assert not equal(rules, messages("system", note, block), messages("system", block))


def test_what_is_ignored_in_texts_goes_before_normalisers_see_it() -> None:
    rules = Rules(ignore_in=(("query.q", ("-[a-z]+",)),), normalise=("date",))

    assert key(rules, target="/?q=2026-11-22-x") == key(rules, target="/?q=2026-11-23-y")


def test_each_of_several_patterns_keeps_its_own_flags_and_alternatives() -> None:
    rules = Rules(ignore_in=(("body.s", ("(?m)^a.*$", "b|c", "(?i)D")),))

    assert equal(rules, {"s": "x\nany\nbcdD-"}, {"s": "x\n\n-"})
    assert not equal(rules, {"s": "xa"}, {"s": "x"})
    assert not equal(rules, {"s": "B"}, {"s": ""})
