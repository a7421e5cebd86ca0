"""List prices of models, and prices that come before them."""

import datetime

from tapeway.providers.catalogue import PROVIDERS
from tapeway.providers.prices import LIST_PRICES, PRICES_OF, Price, PriceTable


def test_a_price_is_for_a_million_tokens() -> None:
    assert Price(2.0, 8.0).of(1_000_000, 500_000) == 6.0


def test_the_list_has_a_day_and_names_providers_that_there_are() -> None:
    assert datetime.date.fromisoformat(PRICES_OF) >= datetime.date(2026, 11, 22)
    assert {provider for provider, _ in LIST_PRICES} <= set(PROVIDERS)
    assert all(price.input > 0 and price.output >= 0 for price in LIST_PRICES.values())


def test_only_a_whole_name_has_a_price() -> None:
    table = PriceTable()

    assert table.find("openai", "gpt-4o") == Price(2.5, 10.0)
    assert table.find("openai", "gpt-4o-2024-05-13") == Price(5.0, 15.0)
    assert table.find("openai", "gpt-4o-2099-01-01") is None
    assert table.find("azure", "gpt-4o") is None


def test_other_prices_come_before_those_of_the_list() -> None:
    table = PriceTable().overridden({("openai", "gpt-4o"): Price(1.0, 1.0)}, "mine")

    assert table.find("openai", "gpt-4o") == Price(1.0, 1.0)
    assert table.find("openai", "o3") == LIST_PRICES["openai", "o3"]
    assert table.origin == f"mine, otherwise list prices of {PRICES_OF}"


def test_every_listed_name_is_a_whole_one() -> None:
    begins: dict[str, tuple[str, ...]] = {
        "anthropic": ("claude-",),
        "gemini": ("gemini-",),
        "openai": ("gpt-", "o1", "o3", "o4", "text-embedding-"),
    }

    broken = [
        name
        for provider, name in LIST_PRICES
        if not name.startswith(begins[provider]) or name.endswith("-")
    ]
    assert broken == []
    assert ("anthropic", "claude-opus-4-6-20260205") in LIST_PRICES
    assert ("anthropic", "claude-mythos-preview") in LIST_PRICES
