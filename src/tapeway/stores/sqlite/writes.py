"""Changes of the recordings, each in a transaction that its caller began."""

from collections.abc import Iterable, Sequence

import apsw

from tapeway.core.cassette.index import index_keys
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.interaction import AnyInteraction, exchange_of
from tapeway.errors import Fenced
from tapeway.stores.shared.columns import head_text, held_of, numbered, rules_of
from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.transaction import SPARED_S, CassetteRow, Position, WriteTransaction

BATCH = 200
"""How many recordings one transaction goes through: some milliseconds, so that others get theirs."""


_LEFTOVER = "SELECT id FROM cassette WHERE name IS NULL AND modified_at < ? LIMIT 1"


def append(
    pen: WriteTransaction, name: str, head: CassetteHead, recording: Recording, text: str
) -> int:
    """One recording in the place of those it supersedes, or at the end; its index.

    Raises Fenced, CassetteCorrupt.
    """
    _refuse_fenced(pen, name, recording)
    shelf = pen.shelf(name) or pen.new_shelf(name, head)
    gone = [pen.take_out(shelf.id, each) for each in recording.supersedes]
    places = [each.place for each in gone if each is not None]
    number, text = pen.free_number(shelf, recording.interaction.index, text)
    take = recording.step.take if recording.step else 0
    note_takes(pen, take)
    slot = Position(number, min(places, default=shelf.last_place + 1), take)
    pen.put(shelf, slot, recording.interaction, text)
    return number


def extend(
    pen: WriteTransaction,
    name: str,
    head: CassetteHead,
    items: Sequence[tuple[AnyInteraction, str]],
    first: int,
) -> None:
    """Interactions at the end, under the next numbers from `first` on."""
    fill(pen, pen.shelf(name) or pen.new_shelf(name, head), items, first)


def fill(
    pen: WriteTransaction,
    shelf: CassetteRow,
    items: Iterable[tuple[AnyInteraction, str]],
    first: int = 0,
) -> None:
    """The same for a cassette that is there, as it is."""
    first = max(shelf.next, first)
    for at, (item, text) in enumerate(items):
        number = first + at
        slot = Position(number, shelf.last_place + 1 + at, 0)
        pen.put(shelf, slot, item, text if item.index == number else numbered(text, number))


def edit(
    pen: WriteTransaction, name: str, index: int, changed: AnyInteraction | None, text: str
) -> bool:
    """Another interaction in the place of one, or none; False where there is none."""
    shelf = pen.shelf(name)
    slot = None if shelf is None else pen.take_out(shelf.id, index)
    if shelf is None or slot is None:
        return False
    if changed is not None:
        pen.put(shelf, slot, changed, text)
    return True


def fence(pen: WriteTransaction, name: str, key: bytes, number: int) -> None:
    """Refuse from now on what owners before this one of a lease would record."""
    pen.connection.execute(
        "INSERT INTO fence VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET fence = max(fence, ?)",
        (name, key, number, number),
    )


def note_takes(pen: WriteTransaction, takes: int) -> None:
    """Remember how many takes ever began."""
    pen.connection.execute("UPDATE state SET takes = max(takes, ?)", (takes,))


def hide(pen: WriteTransaction, name: str) -> int | None:
    """Take a cassette's name away, which removes it for all; what is left of it, or None."""
    shelf = pen.shelf(name)
    if shelf is None:
        return None
    pen.connection.execute("UPDATE cassette SET name = NULL WHERE id = ?", (shelf.id,))
    pen.touch(shelf.id)
    return shelf.id


def show(pen: WriteTransaction, name: str, shelf_id: int) -> int | None:
    """Give a name to what was brought in without one; what had it before, or None."""
    before = hide(pen, name)
    pen.connection.execute("UPDATE cassette SET name = ? WHERE id = ?", (name, shelf_id))
    pen.touch(shelf_id)
    return before


def supplant(pen: WriteTransaction, name: str, by: str) -> int | None:
    """Give a cassette another one's name; what is left of that, or None."""
    shelf = pen.shelf(by)
    return None if shelf is None else show(pen, name, shelf.id)


def clear(pen: WriteTransaction, shelf_id: int) -> bool:
    """Remove a part of a hidden cassette; whether there is more."""
    connection = pen.connection
    found = rows(
        connection, "SELECT id FROM interaction WHERE cassette = ? LIMIT ?", (shelf_id, BATCH)
    )
    if not found:
        connection.execute("DELETE FROM source WHERE cassette = ?", (shelf_id,))
        connection.execute("DELETE FROM cassette WHERE id = ?", (shelf_id,))
        return False
    for row in found:
        pen.leave_bodies(*row)
    connection.executemany("DELETE FROM interaction WHERE id = ?", found)
    return True


def clear_leftovers(pen: WriteTransaction) -> bool:
    """Remove a part of what somebody did not bring in or take out to its end; whether there is more."""
    found = pen.connection.execute(_LEFTOVER, (pen.written_before(SPARED_S),)).get
    if found is None:
        return False
    clear(pen, found)
    return True


def is_untidy(connection: apsw.Connection) -> bool:
    """Whether there may be anything to sweep or to clear."""
    idle = connection.execute("SELECT 1 FROM body WHERE idle_since NOT NULL LIMIT 1").get
    return idle is not None or connection.execute(_LEFTOVER, ("~",)).get is not None


def announce(
    pen: WriteTransaction, name: str, head: CassetteHead
) -> tuple[CassetteRow, int] | None:
    """Begin to find a cassette's recordings under a head's rules too: the generation of those.

    None where that is done: there is no cassette, or its rules are the same.
    """
    shelf = pen.shelf(name)
    if shelf is None:
        return None
    meta = head_text(head)
    if rules_of(meta) == rules_of(shelf.meta):
        _put_in_force(pen, shelf.id, head)
        return None
    coming = max(shelf.generation, shelf.coming_generation or 0) + 1
    pen.connection.execute(
        "UPDATE cassette SET coming_meta = ?, coming_generation = ? WHERE id = ?",
        (meta, coming, shelf.id),
    )
    return shelf, coming


def rekey(
    pen: WriteTransaction, shelf_id: int, generation: int, head: CassetteHead, after: int
) -> int | None:
    """Find some more recordings under the rules to come; which one was the last of them.

    Behind the last of all, those rules are in force, and -1 is told. None where another change of
    the rules came in between: then nothing is in force of this one.
    """
    connection, under = pen.connection, rules_of(head_text(head))
    coming = connection.execute(
        "SELECT coming_generation FROM cassette WHERE id = ?", (shelf_id,)
    ).get
    if coming != generation:
        return None
    found = rows(
        connection,
        "SELECT id, number, document FROM interaction WHERE cassette = ? AND number > ? "
        "AND exchange ORDER BY number LIMIT ?",
        (shelf_id, after, BATCH),
    )
    for id_, number, text in found:
        exchange = exchange_of(held_of(text, number, pen.place))
        if exchange is not None:
            for each in index_keys(exchange, under):
                connection.execute(
                    "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)",
                    (shelf_id, generation, each, id_),
                )
    if len(found) == BATCH:
        return int(found[-1][1])
    connection.execute(
        "UPDATE cassette SET generation = coming_generation, coming_generation = NULL, "
        "coming_meta = NULL WHERE id = ?",
        (shelf_id,),
    )
    _put_in_force(pen, shelf_id, head)
    return -1


def forget_keys(pen: WriteTransaction, shelf_id: int) -> bool:
    """Remove some of the keys that rules gave which are not in force; whether there are more."""
    pen.connection.execute(
        "DELETE FROM key WHERE (cassette, generation, digest, interaction) IN ("
        "SELECT key.cassette, key.generation, digest, interaction FROM key JOIN cassette "
        "ON cassette.id = key.cassette WHERE key.cassette = ? "
        "AND key.generation < cassette.generation LIMIT ?)",
        (shelf_id, BATCH),
    )
    return pen.connection.changes() == BATCH


def _put_in_force(pen: WriteTransaction, shelf_id: int, head: CassetteHead) -> None:
    pen.connection.execute(
        "UPDATE cassette SET created_at = ?, run_id = ?, meta = ? WHERE id = ?",
        (head.created_at, head.run_id, head_text(head), shelf_id),
    )
    pen.touch(shelf_id)


def _refuse_fenced(pen: WriteTransaction, name: str, recording: Recording) -> None:
    lease = recording.lease
    if lease is None:
        return
    newest = pen.connection.execute(
        "SELECT fence FROM fence WHERE name = ? AND key = ?", (lease.name, lease.key)
    ).get
    if newest is not None and newest > lease.fence:
        raise Fenced(
            f"{pen.place}: another process records the same for cassette '{name}' by now: this "
            "answer was not written"
        )
