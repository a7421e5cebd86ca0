from urllib.parse import urlsplit

import pytest

from tapeway.core.http.location import origin
from tapeway.providers.catalogue import PROVIDERS

CONTRACT = [
    "openai",
    "anthropic",
    "azure",
    "gemini",
    "vertex",
    "bedrock",
    "mistral",
    "groq",
    "cohere",
    "together",
    "fireworks",
    "cerebras",
    "perplexity",
    "openrouter",
    "deepseek",
    "xai",
    "ollama",
    "voyage",
    "huggingface",
]


def test_every_built_in_route_is_there_and_no_other() -> None:
    assert list(PROVIDERS) == CONTRACT


@pytest.mark.parametrize("name", CONTRACT)
def test_a_url_is_an_origin_so_that_targets_can_be_appended_as_they_are(name: str) -> None:
    url = PROVIDERS[name].url

    assert url is None or url == origin(url)


def test_only_urls_that_depend_on_an_account_or_region_are_missing() -> None:
    assert [p.name for p in PROVIDERS.values() if p.url is None] == ["azure", "bedrock"]


def test_no_two_routes_share_an_origin() -> None:
    urls = [p.url for p in PROVIDERS.values() if p.url is not None]

    assert len(set(urls)) == len(urls)


def test_only_a_service_on_this_machine_is_asked_without_tls() -> None:
    plain = [p.url for p in PROVIDERS.values() if urlsplit(p.url or "").scheme == "http"]

    assert plain == ["http://127.0.0.1:11434"]


def test_no_variable_is_claimed_by_two_providers() -> None:
    names = [variable for p in PROVIDERS.values() for variable, _ in p.variables]

    assert len(set(names)) == len(names)


def test_a_suffix_is_empty_or_a_path_without_a_slash_at_its_end() -> None:
    suffixes = {suffix for p in PROVIDERS.values() for _, suffix in p.variables}

    assert all(s == "" or (s.startswith("/") and not s.endswith("/")) for s in suffixes)
