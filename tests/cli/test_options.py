"""What all commands of `tapeway cassette` do about errors."""

import pytest

from tapeway.errors import StoreError
from tests.cli.invocation import run
from tests.support.fakes.shared_store import BitByBitStore


class Failing(BitByBitStore):
    """A store that opens, and then cannot list its cassettes."""

    async def names(self) -> list[str]:
        raise StoreError("one.db: page 7 is damaged")


@pytest.mark.parametrize("command", ["ls", "verify", "scan", "redact"])
def test_a_store_that_fails_is_not_taken_for_something_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for module in ("cassette_arguments", "cassette.ls", "cassette.verify"):
        monkeypatch.setattr(f"tapeway.cli.{module}.open_store", lambda url: Failing(url))

    result = run(capsys, command, "--store", "sqlite:one.db")

    assert result == (2, "", "tapeway: one.db: page 7 is damaged\n")
