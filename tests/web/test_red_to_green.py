"""From a red test to a green one: the printed address, the miss, the rule, the test again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tapeway.embedded.deck import Deck
from tests.web.opened_page import PageOpener

TEST = """
import json, os, urllib.request, uuid
from urllib.error import HTTPError

def test_greeting():
    body = {"model": "m", "user": str(uuid.uuid4()), "messages": [{"role": "user", "content": "Hi"}]}
    request = urllib.request.Request(
        os.environ["BASE_URL"] + "/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer sk-0123456789abcdef"},
    )
    try:
        answer = urllib.request.urlopen(request).read()
    except HTTPError as error:
        raise AssertionError(error.read().decode()) from None
    assert b"Hi" in answer
"""


def run(folder: Path, deck: Deck) -> "subprocess.CompletedProcess[str]":
    """Run the test as its author would."""
    command = [sys.executable, "-m", "pytest", "-q", "test_greeting.py"]
    environ = {
        "PATH": os.environ["PATH"],
        "BASE_URL": deck.proxy_url,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_a_red_test_is_made_green_in_the_page_that_its_output_names(
    deck: Deck, tmp_path: Path, open_page: PageOpener
) -> None:
    (tmp_path / "test_greeting.py").write_text(TEST)
    assert run(tmp_path, deck).returncode == 0
    deck.admin.call("PUT", "mode", {"mode": "replay"})
    red = run(tmp_path, deck)
    assert red.returncode == 1

    printed = re.search(r"http://[\w.:]+/#/journal/[\w-]+", red.stdout)
    assert printed is not None, red.stdout
    page = open_page(printed[0])
    page.see("nearest #0 differs at user")
    page.click("Accept")
    page.click("Add the rule")
    page.see("Run your test again.")

    assert run(tmp_path, deck).returncode == 0
    page.go("#/journal")
    newest = page.tab.locator("[role=option]").first
    newest.wait_for()
    assert "replayed" in newest.inner_text()
