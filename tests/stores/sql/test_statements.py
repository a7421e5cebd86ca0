"""The words of statements that each database writes in its own dialect."""

import pytest

from tapeway.stores.postgres.operations import DIALECT as POSTGRES
from tapeway.stores.sql.statements import render
from tapeway.stores.sqlite.operations import DIALECT as SQLITE


def test_both_databases_know_the_same_words() -> None:
    assert set(POSTGRES) == set(SQLITE)


@pytest.mark.parametrize(
    ("sql", "sqlite", "postgres"),
    [
        (
            "SELECT :greatest($1, 2) :lock",
            "SELECT max($1, 2) ",
            "SELECT greatest($1, 2) FOR UPDATE",
        ),
        ("n :any (SELECT 1):end", "n IN (SELECT 1)", "n = ANY(ARRAY (SELECT 1))"),
        ("n :numbers($2)", None, "n = ANY($2::text[]::bigint[])"),
        ("a::text, $1::int", "a::text, $1::int", "a::text, $1::int"),
    ],
)
def test_a_word_is_written_as_each_of_them_does(
    sql: str, sqlite: str | None, postgres: str
) -> None:
    assert render(sql, POSTGRES) == postgres
    if sqlite is not None:
        assert render(sql, SQLITE) == sqlite


def test_a_word_that_no_dialect_has_is_an_error() -> None:
    with pytest.raises(KeyError):
        render("SELECT :nothing", SQLITE)
