"""Faults on the page: laid by a form, seen in the answers, and taken away."""

import urllib.request
from urllib.error import HTTPError

import pytest

from tapeway.embedded.deck import Deck
from tests.web.opened_page import PageOpener
from tests.web.recorded import exchange, stored


def test_a_fault_of_the_form_happens_as_often_as_it_says(
    shared_deck: Deck, open_page: PageOpener
) -> None:
    stored(shared_deck, "broken", [exchange({"n": 1}, {"json": {}})])
    shared_deck.admin.call("PUT", "mode", {"mode": "replay", "cassette": "broken"})
    url = f"{shared_deck.proxy_url}/@broken/v1/items"
    page = open_page(f"{shared_deck.admin.url}/#/deck")
    page.click("Lay a fault…")
    assert page.faults_of_access() == []
    page.tab.get_by_label("Name").fill("busy one")
    page.tab.get_by_label("Seconds").fill("2")
    page.tab.get_by_label("Path").fill("/**")
    page.click("Lay it")
    page.see("give each fault a name")
    page.tab.get_by_label("Name").fill("busy")
    page.click("Lay it")
    page.see("Fault busy is in force.")
    page.see("429 at /**, once in a take")
    assert page.faults_of_access() == []

    sent = urllib.request.Request(url, b'{"n": 1}', {"Content-Type": "application/json"})  # noqa: S310 - our own
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(sent)  # noqa: S310 - our own
    refused.value.close()
    headers = refused.value.headers
    assert (refused.value.code, headers["Tapeway-Fault"], headers["Retry-After"]) == (
        *(429, "busy", "2"),
    )
    page.click("Take away busy")
    page.see("None.")
    assert shared_deck.admin.call("GET", "faults") == {"faults": []}
