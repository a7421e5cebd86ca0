"""An operation that fails at any of its statements leaves everything as it was."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import apsw
import pytest

from tapeway.core.matching import rules
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import Lease
from tapeway.core.model.condition import ANY
from tapeway.core.model.messages import BodyFile
from tapeway.stores.sql import bodies, cassettes, recordings
from tapeway.stores.sql.statements import Computation, Op, Statement
from tapeway.stores.sqlite import schema
from tapeway.stores.sqlite.connection import immediate_transaction
from tapeway.stores.sqlite.operations import run, run_until_quick
from tapeway.stores.support.columns import imported_text, recording_text
from tests.stores.large_bodies import body, large
from tests.stores.recordings import HEAD, recording
from tests.stores.shared_instances import with_step

OTHER_RULES = replace(HEAD, meta=rules.meta_with_rules(HEAD.meta, Rules(ignore=("query.n",))))


class Broken(Exception):
    """The test broke it off."""


def broken_at(op: Op[Any], statement: int) -> Op[Any]:
    """The operation, which fails instead of this statement."""
    answer: Any = None
    asked = 0
    try:
        while True:
            ask: Statement | Computation = op.send(answer)
            if asked == statement:
                raise Broken
            asked += 1
            answer = yield ask
    except StopIteration as done:
        return done.value


def _no_lease(_: Lease) -> Op[None]:
    yield from ()


def _record(number: int, *supersedes: int) -> Op[None]:
    made = with_step(recording(number, *supersedes), 1)
    return recordings.record("x", HEAD, made, recording_text(made), 0, _no_lease)


def _edit() -> Op[bool]:
    changed = replace(recording(9).interaction, index=1)
    return recordings.edit("x", 1, (changed, imported_text(changed)), ANY, 0)


def _extend() -> Op[None]:
    items = recordings.numbered_batch([recording(n).interaction for n in range(3)], 0)
    added = recordings.numbered([(item, text) for _, item, text in items], 10)
    return recordings.extend("x", HEAD, added, 0)


OPERATIONS: dict[str, Callable[[], Op[Any]]] = {
    "record": lambda: _record(5, 0, 2),
    "record into a new one": lambda: recordings.record(
        "z",
        HEAD,
        recording(0),
        recording_text(recording(0)),
        0,
        _no_lease,
    ),
    "extend": _extend,
    "edit": _edit,
    "remove one": lambda: recordings.edit("x", 1, None, ANY, 0),
    "rename": lambda: cassettes.rename("x", "y"),
    "take out": lambda: cassettes.take_out("x", None),
    "remove rows": lambda: cassettes.remove_some(1),
    "begin to index anew": lambda: cassettes.begin_rekey("x", OTHER_RULES),
    "index anew": lambda: _index_anew(),
    "replace a body": lambda: _replace_body(),
}


def _index_anew() -> Op[object]:
    begun = yield from cassettes.begin_rekey("x", OTHER_RULES)
    assert begun is not None
    yield from cassettes.rekey(*begun, OTHER_RULES, -1)
    return (yield from cassettes.forget_keys(begun[0]))


def _replace_body() -> Op[bool]:
    upload = bodies.BodyUpload([body(1)])
    block = upload.take()
    id_ = yield from bodies.add_block(None, 0, block, upload.size)
    before = yield from bodies.finish(id_, upload.digest)
    assert before is not None
    return (yield from bodies.remove_block(before))


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    with closing(apsw.Connection(":memory:")) as made:
        made.pragma("foreign_keys", 1)
        schema.create(made, "memory")
        upload = bodies.BodyUpload([body(1)])
        id_ = run(bodies.add_block(None, 0, upload.take(), upload.size), made)
        run(bodies.finish(id_, upload.digest), made)
        for number in range(3):
            run_until_quick(_record(number), made)
        file = large(3, _file(upload))
        op = recordings.record("x", HEAD, file, recording_text(file), 0, _no_lease)
        run_until_quick(op, made)
        made_y = recording(0)
        run_until_quick(
            recordings.record("y", HEAD, made_y, recording_text(made_y), 0, _no_lease),
            made,
        )
        yield made


def _file(upload: bodies.BodyUpload) -> BodyFile:
    return BodyFile("", upload.size, upload.digest.hex())


def content(connection: apsw.Connection) -> dict[str, list[Any]]:
    tables = [
        name
        for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    ]
    return {
        name: sorted(map(repr, connection.execute(f"SELECT * FROM {name}")))  # noqa: S608
        for name in tables
        if name != "sqlite_sequence"
    }


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_breaks_off_at_any_statement_leaves_everything_as_it_was(
    operation: str, connection: apsw.Connection
) -> None:
    before, statement = content(connection), 0
    while True:
        try:
            with immediate_transaction(connection):
                run_until_quick(broken_at(OPERATIONS[operation](), statement), connection)
            break
        except Broken:
            assert content(connection) == before
        statement += 1

    assert statement > 1
    assert content(connection) != before
