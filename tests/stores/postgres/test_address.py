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


def test_the_parameters_of_libpq_are_taken_translated_or_named_as_without_effect() -> None:
    address = read(
        "postgresql://u@h/db?sslmode=require&channel_binding=require&gssencmode=prefer"
        "&keepalives=1&keepalives_idle=30&load_balance_hosts=random&sslnegotiation=direct"
        "&connect_timeout=10&fallback_application_name=ci&options=endpoint%3Done"
    )

    assert address.dsn == (
        "postgresql://u@h/db?sslmode=require&sslnegotiation=direct&options=endpoint%3Done"
    )
    assert address.ignored == (
        *("keepalives", "keepalives_idle", "gssencmode", "channel_binding", "load_balance_hosts"),
    )
    assert (address.connect_s, address.application) == (10, "ci")
    assert (
        read("postgresql://h/db?fallback_application_name=a&application_name=b").application == "b"
    )
    assert read("postgresql://h/db?ssl=true").dsn == "postgresql://h/db?sslmode=require"


def test_a_connection_may_take_ten_minutes_where_the_address_sets_no_limit() -> None:
    assert {read(f"postgresql://h/db?connect_timeout={n}").connect_s for n in ("0", "-1")} == {600}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("channel_bindin=require", r"\?channel_bindin= is not known; known are .*channel_binding"),
        ("pgbouncer=true", r"\?pgbouncer= is not known"),
        ("gssencmode=require", "gssencmode=require needs an encryption"),
        ("sslrootcert=system&sslmode=require", "sslrootcert=system needs sslmode=verify-full"),
        ("connect_timeout=soon", "connect_timeout= must be a number"),
    ],
)
def test_a_parameter_that_cannot_be_followed_is_refused_by_its_name(query: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        read(f"postgresql://h/db?{query}")


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
        f"postgresql://u:{SECRET}@x@h/db",
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
    for name in ("store", "pool", "errors", "operations", "instance"):
        monkeypatch.delitem(sys.modules, f"tapeway.stores.postgres.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "asyncpg", None)

    with pytest.raises(ConfigError, match=r"pip install 'tapeway\[postgres\]'"):
        open_store("postgresql://h/db")
