"""The mode and takes in force for all processes of a SQLite store, and which process applied them."""

from collections.abc import Callable
from dataclasses import replace

import apsw

from tapeway.core.model.control import Control
from tapeway.errors import StoreError
from tapeway.stores.sqlite.connection import immediate_transaction, rows
from tapeway.stores.sqlite.coordination import members
from tapeway.stores.sqlite.coordination.members import ProcessMember
from tapeway.stores.support.control_document import decode_control, encode_control


def join(
    instance: ProcessMember, wanted: Control, takes: int, now: float, connection: apsw.Connection
) -> Control:
    """Join the processes that apply changes; returns the state in force, `wanted` if no other has
    joined.

    `takes` is how many ever began, as stored with the recordings.
    """
    with immediate_transaction(connection):
        members.remove_dead(now, connection)
        control = read(connection)
        others = connection.execute(
            "SELECT count(*) FROM instance WHERE joined AND id <> ?", (instance.id,)
        ).get
        if control is None or not others:
            takes = max(takes, control.takes if control else 0) + 1
            generation = (control.generation if control else 0) + 1
            control = replace(
                wanted, takes=takes, since=takes, cassette_takes={}, generation=generation
            )
            _write(control, connection)
        members.register(instance, now, connection)
        connection.execute(
            "UPDATE instance SET joined = 1, generation = ? WHERE id = ?",
            (control.generation, instance.id),
        )
    return control


def steer(change: Callable[[Control], Control], connection: apsw.Connection) -> Control:
    """Change the state in force for all processes; returns the new state."""
    with immediate_transaction(connection):
        before = read(connection)
        if before is None:
            raise StoreError("nothing is in force in this store yet: join it first", status=503)
        control = replace(change(before), generation=before.generation + 1)
        _write(control, connection)
    return control


def read(connection: apsw.Connection) -> Control | None:
    """The state in force; None as long as no process joined."""
    found = connection.execute("SELECT document, takes, generation FROM control").fetchone()
    if found is None:
        return None
    document, takes, generation = found
    try:
        return decode_control(document, generation, takes=takes)
    except ValueError as exc:
        raise StoreError(
            f"what is in force in this store cannot be read: {exc}", status=503
        ) from exc


def generation(connection: apsw.Connection) -> int:
    """The number of the last change."""
    return connection.execute("SELECT generation FROM control").get or 0


def applied(
    instance: ProcessMember, generation: int, now: float, connection: apsw.Connection
) -> None:
    """Note that a process applied a change; it is registered again if it was removed as dead."""
    with immediate_transaction(connection):
        members.register(instance, now, connection)
        connection.execute(
            "UPDATE instance SET seen = ?, joined = 1, generation = ? WHERE id = ?",
            (now, generation, instance.id),
        )


def laggards(generation: int, now: float, connection: apsw.Connection) -> list[str]:
    """The live processes that have not applied a change."""
    members.remove_dead(now, connection)
    found = rows(
        connection,
        "SELECT id FROM instance WHERE joined AND generation < ? ORDER BY id",
        (generation,),
    )
    return [id_ for (id_,) in found]


def _write(control: Control, connection: apsw.Connection) -> None:
    connection.execute("DELETE FROM control")
    connection.execute(
        "INSERT INTO control VALUES (?, ?, ?)",
        (control.generation, control.takes, encode_control(control, without=["takes"]).decode()),
    )
