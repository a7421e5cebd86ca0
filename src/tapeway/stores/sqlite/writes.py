"""Changes of the recordings, each inside a transaction that its caller began."""

from collections.abc import Iterable, Sequence

import apsw

from tapeway.core.cassette.recording_keys import index_keys
from tapeway.core.model.cassette import CassetteHead, Recording
from tapeway.core.model.condition import Condition
from tapeway.core.model.interaction import AnyInteraction, exchange_of
from tapeway.errors import Fenced
from tapeway.formats.native.document import interaction_digest
from tapeway.stores.shared.columns import head_text, interaction_of, rules_of, text_with_index
from tapeway.stores.sqlite.connection import rows
from tapeway.stores.sqlite.queries import mark_of
from tapeway.stores.sqlite.transaction import GRACE_S, CassetteRow, Position, WriteTransaction

BATCH = 200
"""Recordings per transaction: it takes some milliseconds, so that other writers are not held up."""


_LEFTOVER = "SELECT id FROM cassette WHERE name IS NULL AND modified_at < ? LIMIT 1"


def append(
    transaction: WriteTransaction, name: str, head: CassetteHead, recording: Recording, text: str
) -> int:
    """Write a recording in the place of those it supersedes, or of its index, which is returned.

    Raises Fenced, CassetteCorrupt.
    """
    _refuse_fenced(transaction, name, recording)
    cassette = transaction.cassette(name) or transaction.add_cassette(name, head)
    gone = [transaction.remove(cassette.id, each) for each in recording.supersedes]
    places = [each.place for each in gone if each is not None]
    number, text = transaction.free_number(cassette, recording.interaction.index, text)
    take = recording.step.take if recording.step else 0
    note_takes(transaction, take)
    # Not at the end: its index was reserved when its request came, and others may be done before it.
    position = Position(number, min(places, default=number + 1), take)
    transaction.put(cassette, position, recording.interaction, text)
    return number


def extend(
    transaction: WriteTransaction,
    name: str,
    head: CassetteHead,
    items: Sequence[tuple[AnyInteraction, str]],
    first: int,
) -> None:
    """Append interactions with the next numbers from `first` on."""
    add_at_end(
        transaction,
        transaction.cassette(name) or transaction.add_cassette(name, head),
        items,
        first,
    )


def add_at_end(
    transaction: WriteTransaction,
    cassette: CassetteRow,
    items: Iterable[tuple[AnyInteraction, str]],
    first: int = 0,
) -> None:
    """The same for a cassette whose row was read."""
    first = max(cassette.next, first)
    for at, (item, text) in enumerate(items):
        number = first + at
        position = Position(number, number + 1, 0)
        transaction.put(
            cassette,
            position,
            item,
            text if item.index == number else text_with_index(text, number),
        )


def edit(
    transaction: WriteTransaction,
    name: str,
    index: int,
    changed: AnyInteraction | None,
    text: str,
    condition: Condition,
) -> bool:
    """Replace one interaction, or remove it; False if there is none of that number.

    Raises AdminError (412) where it is not what the condition demands.
    """
    cassette = transaction.cassette(name)
    if cassette is not None and condition.given:
        _check_condition(transaction, cassette.id, index, condition)
    position = None if cassette is None else transaction.remove(cassette.id, index)
    if cassette is None or position is None:
        return False
    if changed is not None:
        transaction.put(cassette, position, changed, text)
    return True


def still_marked(transaction: WriteTransaction, name: str, mark: str | None) -> bool:
    """Whether nobody has changed a cassette since it had this mark; None for no cassette."""
    return mark_of(transaction.connection, name) == mark


def fence(transaction: WriteTransaction, name: str, key: bytes, number: int) -> None:
    """From now on, refuse recordings by earlier owners of a lease."""
    transaction.connection.execute(
        "INSERT INTO fence VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET fence = max(fence, ?)",
        (name, key, number, number),
    )


def note_takes(transaction: WriteTransaction, takes: int) -> None:
    """Store how many takes ever began."""
    transaction.connection.execute("UPDATE state SET takes = max(takes, ?)", (takes,))


def take_name(transaction: WriteTransaction, name: str) -> int | None:
    """Remove a cassette for all readers by taking its name; the id of its rows, or None."""
    cassette = transaction.cassette(name)
    if cassette is None:
        return None
    transaction.connection.execute("UPDATE cassette SET name = NULL WHERE id = ?", (cassette.id,))
    transaction.touch(cassette.id)
    return cassette.id


def give_name(transaction: WriteTransaction, name: str, cassette_id: int) -> int | None:
    """Name a cassette that was added without one; the id of the one that had the name, or None."""
    before = take_name(transaction, name)
    transaction.connection.execute("UPDATE cassette SET name = ? WHERE id = ?", (name, cassette_id))
    transaction.touch(cassette_id)
    return before


def replace_cassette(transaction: WriteTransaction, name: str, by: str) -> int | None:
    """Give a cassette the name of another; the id of that one's rows, or None."""
    cassette = transaction.cassette(by)
    return None if cassette is None else give_name(transaction, name, cassette.id)


def remove_some(transaction: WriteTransaction, cassette_id: int) -> bool:
    """Remove a batch of the rows of a cassette without a name; whether there are more."""
    connection = transaction.connection
    transaction.note_removal()
    found = rows(
        connection, "SELECT id FROM interaction WHERE cassette = ? LIMIT ?", (cassette_id, BATCH)
    )
    if not found:
        connection.execute("DELETE FROM source WHERE cassette = ?", (cassette_id,))
        connection.execute("DELETE FROM cassette WHERE id = ?", (cassette_id,))
        return False
    for row in found:
        transaction.release_bodies(*row)
    connection.executemany("DELETE FROM interaction WHERE id = ?", found)
    return True


def clear_leftovers(transaction: WriteTransaction) -> bool:
    """Remove a batch of a cassette that was left half-written or half-removed; whether there is more."""
    found = transaction.connection.execute(_LEFTOVER, (transaction.timestamp_before(GRACE_S),)).get
    if found is None:
        return False
    remove_some(transaction, found)
    return True


def needs_wiping(connection: apsw.Connection) -> bool:
    """Whether something was removed since the file was wiped."""
    return bool(connection.execute("SELECT removed FROM state").get)


def needs_sweep(connection: apsw.Connection) -> bool:
    """Whether there may be unused bodies or half-written cassettes."""
    idle = connection.execute("SELECT 1 FROM body WHERE idle_since NOT NULL LIMIT 1").get
    return idle is not None or connection.execute(_LEFTOVER, ("~",)).get is not None


def begin_rekey(
    transaction: WriteTransaction, name: str, head: CassetteHead
) -> tuple[CassetteRow, int] | None:
    """Begin to index a cassette by the rules of a new head; the row, and the generation of its
    keys.

    None if nothing is left to do: there is no cassette, or its rules stay the same.
    """
    cassette = transaction.cassette(name)
    if cassette is None:
        return None
    meta = head_text(head)
    if rules_of(meta) == rules_of(cassette.meta):
        _put_in_force(transaction, cassette.id, head)
        return None
    coming = max(cassette.generation, cassette.coming_generation or 0) + 1
    transaction.connection.execute(
        "UPDATE cassette SET coming_meta = ?, coming_generation = ? WHERE id = ?",
        (meta, coming, cassette.id),
    )
    return cassette, coming


def rekey(
    transaction: WriteTransaction, cassette_id: int, generation: int, head: CassetteHead, after: int
) -> int | None:
    """Index a batch of recordings by the new rules; returns the number of the last one.

    After the last batch the new rules are in force, and the result is -1. None if another change of
    the rules came in between: then this change is abandoned.
    """
    connection, under = transaction.connection, rules_of(head_text(head))
    coming = connection.execute(
        "SELECT coming_generation FROM cassette WHERE id = ?", (cassette_id,)
    ).get
    if coming != generation:
        return None
    found = rows(
        connection,
        "SELECT id, number, document FROM interaction WHERE cassette = ? AND number > ? "
        "AND exchange ORDER BY number LIMIT ?",
        (cassette_id, after, BATCH),
    )
    for id_, number, text in found:
        exchange = exchange_of(interaction_of(text, number, transaction.path))
        if exchange is not None:
            for each in index_keys(exchange, under):
                connection.execute(
                    "INSERT OR IGNORE INTO key VALUES (?, ?, ?, ?)",
                    (cassette_id, generation, each, id_),
                )
    if len(found) == BATCH:
        return int(found[-1][1])
    connection.execute(
        "UPDATE cassette SET generation = coming_generation, coming_generation = NULL, "
        "coming_meta = NULL WHERE id = ?",
        (cassette_id,),
    )
    _put_in_force(transaction, cassette_id, head)
    return -1


def forget_keys(transaction: WriteTransaction, cassette_id: int) -> bool:
    """Remove a batch of the keys of earlier rules; whether there are more."""
    transaction.connection.execute(
        "DELETE FROM key WHERE (cassette, generation, digest, interaction) IN ("
        "SELECT key.cassette, key.generation, digest, interaction FROM key JOIN cassette "
        "ON cassette.id = key.cassette WHERE key.cassette = ? "
        "AND key.generation < cassette.generation LIMIT ?)",
        (cassette_id, BATCH),
    )
    return transaction.connection.changes() == BATCH


def _put_in_force(transaction: WriteTransaction, cassette_id: int, head: CassetteHead) -> None:
    transaction.note_removal()
    transaction.connection.execute(
        "UPDATE cassette SET created_at = ?, run_id = ?, meta = ? WHERE id = ?",
        (head.created_at, head.run_id, head_text(head), cassette_id),
    )
    transaction.touch(cassette_id)


def _check_condition(
    transaction: WriteTransaction, cassette_id: int, number: int, condition: Condition
) -> None:
    text = transaction.connection.execute(
        "SELECT document FROM interaction WHERE cassette = ? AND number = ?", (cassette_id, number)
    ).get
    if text is not None:
        condition.check(interaction_digest(interaction_of(text, number, transaction.path)))


def _refuse_fenced(transaction: WriteTransaction, name: str, recording: Recording) -> None:
    lease = recording.lease
    if lease is None:
        return
    newest = transaction.connection.execute(
        "SELECT fence FROM fence WHERE name = ? AND key = ?", (lease.name, lease.key)
    ).get
    if newest is not None and newest > lease.fence:
        raise Fenced(
            f"{transaction.path}: another process records the same for cassette '{name}' by now: this "
            "answer was not written"
        )
