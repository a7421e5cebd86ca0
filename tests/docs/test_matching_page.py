"""The page on matching: its tables of equal bodies and of normalisers, and its rules, are true."""

import json
import re
import tomllib

import pytest

from tapeway.core.matching.key import request_key
from tapeway.core.matching.normalisers import NORMALISERS, NormaliserSet
from tapeway.core.matching.rules import parse_rules, rules_document
from tapeway.core.model.messages import Request
from tapeway.settings.options import Settings
from tests.core.keys import key
from tests.support.markdown import ROOT, blocks

PAGE = (ROOT / "docs/matching.md").read_text("utf-8")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | "))
    for line in PAGE.splitlines()
    if line.startswith("| ")
]
BODIES = [row for row in ROWS if row[-1].strip() in ("yes", "no")]
NAMED = {row[0].strip("`"): row[1].strip("`") for row in ROWS if row[0].strip("`") in NORMALISERS}


@pytest.mark.parametrize(("one", "other", "equal"), BODIES)
def test_bodies_are_equal_as_the_page_says(one: str, other: str, equal: str) -> None:
    left, right = (key(cell.strip("`").encode()) for cell in (one, other))

    assert (left == right) is (equal == "yes")


def test_the_page_names_every_normaliser_with_what_it_finds() -> None:
    assert list(NAMED) == list(NORMALISERS)
    for name, example in NAMED.items():
        assert NormaliserSet([name]).text(example) != example


def test_the_rules_on_the_page_can_be_pasted() -> None:
    blocks = re.findall(r"```toml\n(\[rules\].*?)```", PAGE, re.DOTALL)
    assert blocks
    for block in blocks:
        settings = Settings.parse(tomllib.loads(block))
        assert settings.rules


def test_the_rules_on_the_page_do_what_it_says() -> None:
    (block,) = re.findall(r"```toml\n(\[rules\]\nignore.*?)```", PAGE, re.DOTALL)
    rules = parse_rules(tomllib.loads(block)["rules"])

    def keyed(user: str, *, target: str = "/v1/x?ts=1", text: str = "salt-0123456789ab") -> bytes:
        body = b'{"metadata":{"user_id":"%b"},"text":"%b"}' % (user.encode(), text.encode())
        headers = ((b"content-type", b"application/json"),)
        return request_key(Request("r", "POST", target, headers, body), rules)

    assert keyed("a") == keyed("b", target="/v1beta/x?ts=2", text="salt-ba9876543210")
    assert keyed("a") != keyed("b", text="pepper")


def test_a_cassette_states_its_rules_as_shown() -> None:
    (shown,) = [block for block in blocks("docs/matching.md") if block.language == "json"]
    meta = json.loads(shown.text)

    assert rules_document(parse_rules(meta["rules"])) == meta["rules"]
