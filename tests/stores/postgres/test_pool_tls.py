"""A database that is reached over TLS alone, by a certificate that has to be the right one."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trustme

from tapeway.errors import StoreError
from tapeway.stores.postgres.store import PostgresStore
from tests.stores.postgres_server import PostgresServer, run
from tests.stores.recordings import HEAD, recording


@pytest.fixture
async def authority(
    request: pytest.FixtureRequest, postgres_dsn: str, tmp_path: Path
) -> AsyncIterator[Path]:
    """The file of the authority that the server's certificate is of."""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    if server.dsn != postgres_dsn:
        pytest.skip("the server of TAPEWAY_TEST_POSTGRES_DSN is not ours to change")
    authority = trustme.CA()
    own = authority.issue_cert("127.0.0.1")
    certificate = server.place("own.pem", own.cert_chain_pems[0].bytes())
    key = server.place("own.key", own.private_key_pem.bytes())
    for setting in (
        f"ssl_cert_file = '{certificate}'",
        f"ssl_key_file = '{key}'",
        "ssl = on",
    ):
        await run(postgres_dsn, f"ALTER SYSTEM SET {setting}")
    await run(postgres_dsn, "SELECT pg_reload_conf()")
    # New connections find it so when the server has come to it.
    while await run(postgres_dsn, "SHOW ssl") != [["on"]]:
        pass
    trusted = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(trusted))
    yield trusted
    await run(postgres_dsn, "ALTER SYSTEM RESET ALL")
    await run(postgres_dsn, "SELECT pg_reload_conf()")


async def test_a_certificate_is_checked_where_the_address_says_so(
    authority: Path, postgres_url: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    store = PostgresStore(f"{postgres_url}&sslmode=verify-full&sslrootcert={authority}")
    await store.open()
    await store.append("x", HEAD, recording(0))
    await store.close()

    with pytest.raises(StoreError, match=r"unable to get local issuer certificate.*TLS"):
        await PostgresStore(f"{postgres_url}&sslmode=verify-full&sslrootcert={other}").open()


@pytest.mark.parametrize("query", ["sslmode=verify-full", "sslrootcert=system"])
async def test_the_authorities_of_the_system_are_asked_where_no_file_is_named(
    query: str, authority: Path, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    store = PostgresStore(f"{postgres_url}&{query}")
    await store.open()
    await store.close()

    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(str(other))
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    with pytest.raises(StoreError, match="unable to get local issuer certificate"):
        await PostgresStore(f"{postgres_url}&{query}").open()


@pytest.mark.parametrize("name", ["sslrootcert", "sslcert", "sslkey", "sslcrl"])
async def test_a_file_that_is_missing_is_named(name: str, postgres_url: str) -> None:
    with pytest.raises(StoreError, match=f"{name}=/no/such.pem cannot be read"):
        await PostgresStore(f"{postgres_url}&sslmode=require&{name}=/no/such.pem").open()
