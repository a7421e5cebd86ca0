"""`--prices FILE`: a user's own prices."""

from pathlib import Path

import pytest

from tapeway.errors import ConfigError
from tapeway.providers.prices import Price
from tapeway.settings.price_file import load_prices


def written(folder: Path, text: str) -> str:
    file = folder / "prices.toml"
    file.write_text(text)
    return str(file)


def test_a_file_gives_prices_to_models_with_and_without_one(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        date = 2026-11-01
        [models]
        "openai/gpt-4o" = { input = 1, output = 2.5 }
        "azure/team/eu" = { input = 3 }
        """,
    )
    table = load_prices(file)

    assert table.find("openai", "gpt-4o") == Price(1.0, 2.5)
    assert table.find("azure", "team/eu") == Price(3.0, 0.0)
    assert table.find("openai", "gpt-4o-mini") == load_prices(None).find("openai", "gpt-4o-mini")
    assert table.origin.startswith(f"prices of 2026-11-01 in {file}, otherwise list prices of ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[models", "is not TOML"),
        ("", "models: Field required"),
        ("[models]\n'gpt-4o' = { input = 1 }", "models.gpt-4o"),
        ("[models]\n'a/b' = { input = '1' }", "models.a/b.input"),
        ("[models]\n'a/b' = { input = -1 }", "models.a/b.input"),
        ("[models]\n'a/b' = { input = nan }", "models.a/b.input"),
        ("[models]\n'a/b' = { inputs = 1 }", "models.a/b.input"),
        ("[prices]\n", "models: Field required"),
    ],
)
def test_a_file_that_is_none_is_named_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)

    with pytest.raises(ConfigError) as raised:
        load_prices(file)
    assert raised.value.message.startswith(f"--prices {file}")
    assert said in raised.value.message


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_prices(str(tmp_path / "none.toml"))
