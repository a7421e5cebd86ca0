"""Where a PostgreSQL store lies, and that nobody sees its password."""

import sys

import pytest

from tapeway.errors import ConfigError
from tapeway.stores.opening import open_store
from tapeway.stores.postgres.address import read

SECRET = "synthetic-secret"


@pytest.mark.parametrize(
    ("url", "dsn", "shown"),
    [
        ("postgresql://h/db", "postgresql://h/db", "postgresql://h/db"),
        ("postgres://h/db", "postgresql://h/db", "postgresql://h/db"),
        (
            f"postgresql://u:{SECRET}@h:5433/db?sslmode=verify-full&sslrootcert=/ca.pem",
            f"postgresql://u:{SECRET}@h:5433/db?sslmode=verify-full&sslrootcert=%2Fca.pem",
            "postgresql://u:***@h:5433/db?sslmode=verify-full&sslrootcert=/ca.pem",
        ),
        (
            f"postgresql://u:a%40{SECRET}@h,i:6/db",
            f"postgresql://u:a%40{SECRET}@h,i:6/db",
            "postgresql://u:***@h,i:6/db",
        ),
        (
            f"postgresql://u@/db?host=/run&password={SECRET}&schema=one&connections=3",
            f"postgresql://u@/db?host=%2Frun&password={SECRET}",
            "postgresql://u@/db?host=/run&password=***&schema=one&connections=3",
        ),
    ],
)
def test_the_driver_gets_what_it_knows_and_people_see_no_password(
    url: str, dsn: str, shown: str
) -> None:
    address = read(url)

    assert (address.dsn, address.shown) == (dsn, shown)
    assert SECRET not in f"{address.shown} {address!r}"


def test_what_the_driver_does_not_know_is_read_here() -> None:
    address = read("postgresql://h/db?schema=team_a&connections=3&lease=2")
    other = read("postgresql://h/db")

    assert (address.schema, address.connections, address.lease_s) == ("team_a", 3, 2)
    assert address.dsn == other.dsn == "postgresql://h/db"
    assert (other.schema, other.connections, other.lease_s) == ("tapeway", 10, 15)


def test_every_form_of_the_password_is_masked() -> None:
    address = read(f"postgresql://u:{SECRET}%2F@h/db?sslpassword=another")

    for form in (f"{SECRET}/", f"{SECRET}%2F", "another"):
        assert address.hide(f"no way in with '{form}'") == "no way in with '***'"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}#x@h/db",
        f"postgresql://u:{SECRET}/x@h/db",
        f"postgresql://u:{SECRET}/x@h",
        f"postgresql://u:{SECRET}?x=y@h",
        f"postgresql://u:{SECRET}?x@h/db",
        f"postgresql://u:{SECRET}@[h/db",
        f"postgresql://u:{SECRET}@h/db?schema=Ünfit",
        f"postgresql://u:{SECRET}@h/db?schema=pg_own",
        f'postgresql://u:{SECRET}@h/db?schema=a"b',
        f"postgresql://u:{SECRET}@h/db?connections=0",
        f"postgresql://u:{SECRET}@h/db?connections=many",
        f"postgresql://u:{SECRET}@h/db?lease=0",
        f"postgresql://u:{SECRET}@h/db?lease=1.5",
    ],
)
def test_an_address_that_cannot_be_used_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://USER") as refused:
        open_store(url)

    told: BaseException | None = refused.value
    while told is not None:
        assert SECRET not in f"{told!s}{told!r}"
        told = told.__cause__ or (None if told.__suppress_context__ else told.__context__)


def test_without_the_driver_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("store", "pool", "errors"):
        monkeypatch.delitem(sys.modules, f"tapeway.stores.postgres.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(ConfigError, match=r"pip install 'tapeway\[postgres\]'"):
        open_store("postgresql://h/db")
