"""Prices of tokens: list prices of models, overridden by the user's prices.

A model is looked up by provider and whole name. An unlisted model has no price: tapeway guesses no
price from a similar name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

PRICES_OF = "2026-11-22"
"""The day of the list prices below."""

_PER_TOKENS = 1_000_000

# US dollars for a million tokens of input and of output: the providers' list prices without batches,
# cached input and long contexts, as LiteLLM 1.109.1 (model_prices_and_context_window) has them.
_LISTED = {
    "openai": (
        (0.02, 0.0, "text-embedding-3-small"),
        (0.05, 0.4, "gpt-5-nano gpt-5-nano-2025-08-07"),
        (0.1, 0.0, "text-embedding-ada-002"),
        (0.1, 0.4, "gpt-4.1-nano gpt-4.1-nano-2025-04-14"),
        (0.1, 0.5, "gpt-6-luna"),
        (0.13, 0.0, "text-embedding-3-large"),
        (0.15, 0.6, "gpt-4o-mini gpt-4o-mini-2024-07-18"),
        (0.2, 1.2, "gpt-5.6-luna"),
        (0.2, 1.25, "gpt-5.4-nano gpt-5.4-nano-2026-03-17"),
        (0.25, 2.0, "gpt-5-mini gpt-5-mini-2025-08-07 gpt-5.1-codex-mini"),
        (0.4, 1.6, "gpt-4.1-mini gpt-4.1-mini-2025-04-14"),
        (0.5, 1.5, "gpt-3.5-turbo gpt-3.5-turbo-0125"),
        (0.75, 4.5, "gpt-5.4-mini gpt-5.4-mini-2026-03-17"),
        (1.0, 5.0, "gpt-6.1-terra"),
        (1.1, 4.4, "o3-mini o3-mini-2025-01-31 o4-mini o4-mini-2025-04-16"),
        (
            1.25,
            10.0,
            "gpt-5 gpt-5-2025-08-07 gpt-5-chat gpt-5-chat-latest gpt-5-codex gpt-5.1 "
            "gpt-5.1-2025-11-13 gpt-5.1-chat-latest gpt-5.1-codex",
        ),
        (
            1.75,
            14.0,
            "gpt-5.2 gpt-5.2-2025-12-11 gpt-5.2-chat-latest gpt-5.2-codex gpt-5.3-chat-latest "
            "gpt-5.3-codex",
        ),
        (2.0, 8.0, "gpt-4.1 gpt-4.1-2025-04-14 o3 o3-2025-04-16"),
        (2.0, 10.0, "gpt-6-sol gpt-6.1-sol"),
        (2.0, 12.0, "gpt-5.6-terra"),
        (2.5, 10.0, "gpt-4o gpt-4o-2024-08-06 gpt-4o-2024-11-20"),
        (2.5, 15.0, "gpt-5.4 gpt-5.4-2026-03-05"),
        (4.0, 20.0, "gpt-5.6 gpt-5.6-sol"),
        (5.0, 15.0, "gpt-4o-2024-05-13"),
        (5.0, 30.0, "gpt-5.5 gpt-5.5-2026-04-23"),
        (10.0, 30.0, "gpt-4-turbo gpt-4-turbo-2024-04-09"),
        (10.0, 50.0, "gpt-6-astra"),
        (15.0, 60.0, "o1 o1-2024-12-17"),
        (15.0, 120.0, "gpt-5-pro gpt-5-pro-2025-10-06"),
        (20.0, 80.0, "o3-pro o3-pro-2025-06-10"),
        (21.0, 168.0, "gpt-5.2-pro gpt-5.2-pro-2025-12-11"),
        (30.0, 60.0, "gpt-4 gpt-4-0613"),
        (30.0, 180.0, "gpt-5.4-pro gpt-5.4-pro-2026-03-05 gpt-5.5-pro gpt-5.5-pro-2026-04-23"),
        (150.0, 600.0, "o1-pro o1-pro-2025-03-19"),
    ),
    "anthropic": (
        (0.1, 0.5, "claude-haiku-5-5"),
        (1.0, 5.0, "claude-haiku-4-5 claude-haiku-4-5-20251001"),
        (2.0, 10.0, "claude-sonnet-5 claude-sonnet-5-5"),
        (3.0, 15.0, "claude-sonnet-4-5 claude-sonnet-4-5-20250929 claude-sonnet-4-6"),
        (4.0, 20.0, "claude-opus-5-5"),
        (
            5.0,
            25.0,
            "claude-opus-4-5 claude-opus-4-5-20251101 claude-opus-4-6 "
            "claude-opus-4-6-20260205 claude-opus-4-7 claude-opus-4-7-20260416 claude-opus-4-8 "
            "claude-opus-5",
        ),
        (
            10.0,
            50.0,
            "claude-fable-5 claude-fable-5-1 claude-mythos-5 claude-mythos-5-1 "
            "claude-mythos-preview",
        ),
    ),
    "gemini": (
        (0.1, 0.4, "gemini-2.5-flash-lite"),
        (0.15, 0.0, "gemini-embedding-001"),
        (0.2, 0.0, "gemini-embedding-2 gemini-embedding-2-preview"),
        (0.25, 1.5, "gemini-3.1-flash-lite gemini-3.1-flash-lite-preview"),
        (0.3, 2.5, "gemini-2.5-flash gemini-3.5-flash-lite gemini-flash-lite-latest"),
        (0.5, 3.0, "gemini-3-flash-preview"),
        (0.75, 3.75, "gemini-3.6-flash gemini-3.7-flash gemini-3.8-flash gemini-flash-latest"),
        (1.25, 10.0, "gemini-2.5-pro"),
        (1.5, 9.0, "gemini-3.5-flash"),
        (2.0, 12.0, "gemini-3.1-pro-preview gemini-pro-latest"),
    ),
}


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens of input and of output."""

    input: float
    output: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What these tokens cost, in US dollars."""
        return (prompt_tokens * self.input + completion_tokens * self.output) / _PER_TOKENS


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by provider and model; `origin` names the source and the day."""

    prices: Mapping[tuple[str, str], Price] = field(default_factory=lambda: LIST_PRICES)
    origin: str = f"list prices of {PRICES_OF}"

    def find(self, provider: str, model: str) -> Price | None:
        """The price of a model, None for an unlisted model."""
        return self.prices.get((provider, model))

    def overridden(self, prices: Mapping[tuple[str, str], Price], origin: str) -> "PriceTable":
        """The table, overridden by further prices."""
        return PriceTable({**self.prices, **prices}, f"{origin}, otherwise {self.origin}")


LIST_PRICES: Mapping[tuple[str, str], Price] = MappingProxyType(
    {
        (provider, model): Price(given, got)
        for provider, rows in _LISTED.items()
        for given, got, models in rows
        for model in models.split()
    }
)
