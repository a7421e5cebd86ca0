"""The words of statements that a database writes in its own dialect."""

import pytest

from tapeway.stores.postgres.operations import DIALECT as POSTGRES
from tapeway.stores.sql.statements import render


@pytest.mark.parametrize(
    ("sql", "postgres"),
    [
        ("SELECT :greatest($1, 2) :lock", "SELECT greatest($1, 2) FOR UPDATE"),
        ("n :any (SELECT 1):end", "n = ANY(ARRAY (SELECT 1))"),
        ("n :numbers($2)", "n = ANY($2::text[]::bigint[])"),
        ("a::text, $1::int", "a::text, $1::int"),
    ],
)
def test_a_word_is_written_as_the_database_does(sql: str, postgres: str) -> None:
    assert render(sql, POSTGRES) == postgres


def test_a_word_that_no_dialect_has_is_an_error() -> None:
    with pytest.raises(KeyError):
        render("SELECT :nothing", POSTGRES)
