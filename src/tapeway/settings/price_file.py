"""A user's own prices, from a TOML file:

    date = 2026-11-01

    [models]
    "openai/gpt-4o" = { input = 2.5, output = 10 }

They are in US dollars for a million tokens, and come before the list prices.
"""

import datetime
import tomllib
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from tapeway.errors import ConfigError
from tapeway.providers.prices import Price, PriceTable

_Name = Annotated[str, StringConstraints(pattern=r"^[^/]+/.+$")]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class _ModelPrice(BaseModel):
    model_config = ConfigDict(extra="forbid")

    input: _Amount
    output: _Amount = 0.0


class _PriceFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    date: datetime.date | None = None
    models: dict[_Name, _ModelPrice]


def load_prices(path: str | None) -> PriceTable:
    """The list prices; the prices of a file, where given, come first. Raises ConfigError."""
    if path is None:
        return PriceTable()
    try:
        file = _PriceFile.model_validate(tomllib.loads(Path(path).read_text(encoding="utf-8")))
    except OSError as exc:
        raise ConfigError(f"--prices {path} cannot be read: {exc.strerror}") from exc
    except ValidationError as exc:
        fault = exc.errors(include_url=False)[0]
        place = ".".join(map(str, fault["loc"]))
        raise ConfigError(f"--prices {path}: {place}: {fault['msg']}{_HINT}") from None
    except ValueError as exc:
        raise ConfigError(f"--prices {path} is not TOML: {exc}") from exc
    prices = {_split(name): Price(price.input, price.output) for name, price in file.models.items()}
    origin = f"prices of {file.date} in {path}" if file.date else f"prices in {path}"
    return PriceTable().overridden(prices, origin)


_HINT = '; a line of [models] is "openai/gpt-4o" = { input = 2.5, output = 10 }'


def _split(name: str) -> tuple[str, str]:
    provider, _, model = name.partition("/")
    return provider, model
