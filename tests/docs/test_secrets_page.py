"""What docs/secrets.md says of names, patterns and messages is what is done."""

import re

import yaml

from tapeway.core.redaction.credentials import MIN_COOKIE, MIN_VALUE, Secret
from tapeway.core.redaction.key_patterns import KEY_PATTERNS
from tapeway.core.redaction.leak_guard import leak_error
from tapeway.core.redaction.opaque import is_opaque
from tapeway.core.redaction.redactor import Redactor
from tapeway.core.redaction.secret_names import AMBIGUOUS_NAMES, Kind, is_secret_field, names_of
from tests.core.redaction.example_messages import make_request
from tests.support.markdown import ROOT, blocks

TEXT = (ROOT / "docs/secrets.md").read_text("utf-8")


def rows(section: str) -> list[list[str]]:
    """The cells of a section's table, but for its head."""
    _, _, after = TEXT.partition(f"## {section}\n")
    lines = [line for line in after.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_example_is_redacted_as_it_says() -> None:
    sent, stored, *_ = [block.text.strip() for block in blocks("docs/secrets.md")]

    assert Redactor("run-1").request(make_request(body=sent.encode())).body.decode() == stored


def test_the_names_it_lists_hide_what_it_says() -> None:
    keys, passwords, words, logins, _, both, ambiguous, generic = [
        [name for name in re.findall("`([^`]+)`", cells[1]) if name.replace("_", "").isalpha()]
        for cells in rows("Names")
    ]
    for name in (*keys, *passwords):
        assert is_secret_field(name, b"two words", is_field=True), name
    for name in words:
        assert is_secret_field(name, b"one", is_field=True), name
        assert not is_secret_field(name, b"two words", is_field=True), name
    for name in logins:
        for login in (
            b"x",
            b"Bearer two",
            b"SSWS 0123456789",
            b'Digest username="a b", response="c"',
        ):
            assert is_secret_field(name, login, is_field=True), login
        assert not is_secret_field(name, b"Approved for visits", is_field=True), name
    for name in (*keys, *passwords, *words, *logins, *ambiguous):
        assert is_secret_field(name, b"0123456789abcdef", is_field=False), name
        assert not is_secret_field(name, b"0123456789", is_field=False), name
        assert not is_secret_field(name, b"is_required", is_field=False), name
    for name in ambiguous:
        assert not is_secret_field(name, b"two words", is_field=True), name
    assert set(both) == AMBIGUOUS_NAMES
    for name in generic:
        assert is_secret_field(name, b"0123456789abcdef", is_field=False, beside=True), name
        assert not is_secret_field(name, b"0123456789abcdef", is_field=True), name


def test_the_names_it_lists_are_all_there_are() -> None:
    listed = {name for cells in rows("Names") for name in re.findall("`([^`]+)`", cells[1])}

    kinds: tuple[Kind, ...] = ("credential", "password", "word", "ambiguous", "generic", "login")
    assert set(names_of(*kinds)) <= listed


def test_the_labels_of_its_shapes_are_all_there_are() -> None:
    listed = [label for cells in rows("Patterns") for label in re.findall("`([^`]+)`", cells[1])]

    assert sorted(listed) == sorted({pattern.label for pattern in KEY_PATTERNS})


def test_the_lengths_it_names_are_those_in_force() -> None:
    assert f"from {MIN_VALUE} characters on" in TEXT
    assert f"of {MIN_COOKIE} characters or more" in TEXT


def test_a_recording_is_refused_in_these_words() -> None:
    (shown,) = blocks("docs/secrets.md", "Fail closed")

    assert shown.text.strip() == leak_error(Secret("x-api-key", b""), "response.headers.…").message


def test_the_hook_that_is_shown_is_the_one_that_is_offered() -> None:
    (shown,) = [
        block for block in blocks("docs/secrets.md", "Scanning") if block.language == "yaml"
    ]
    (offered,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))

    (repository,) = yaml.safe_load(shown.text)["repos"]
    (hook,) = repository["hooks"]

    assert {**hook, "language": "python", "description": offered["description"]} == offered


def test_the_examples_of_opaque_values_are_what_the_table_says() -> None:
    examples = [
        (value, said)
        for values, said, _ in rows("What is opaque")
        for value in re.findall("`([^`]+)`", values)
    ]

    assert {said for _, said in examples} == {"yes", "no"}
    for value, said in examples:
        assert is_opaque(value.encode()) is (said == "yes"), value
