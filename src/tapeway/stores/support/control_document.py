"""What is in force for all instances of a store, as the store keeps it: a JSON document."""

from collections.abc import Collection, Iterator
from dataclasses import asdict

from tapeway.core.json_text import Json, dump, parse
from tapeway.core.model.control import MODE_POLICIES, Control, Mode, Slot


def encode_control(control: Control, *, without: Collection[str] = ()) -> bytes:
    """The document, `without` members that have columns; the generation always has one."""
    document: dict[str, Json] = {
        "mode": control.mode,
        "active": control.active,
        "takes": control.takes,
        "since": control.since,
        "modes": dict(control.modes),
        "cassette_takes": dict(control.cassette_takes),
        "slots": {name: asdict(slot) for name, slot in control.slots.items()},
        "slot_takes": {name: list(takes) for name, takes in control.slot_takes.items()},
    }
    return dump({name: value for name, value in document.items() if name not in without})


def decode_control(text: bytes | str, generation: int, **columns: Json) -> Control:
    """The control, from the document and the columns. Raises ValueError."""
    document = parse(text)
    # A tapeway of an older version wrote no slots.
    known: dict[str, Json] = {"slots": {}, "slot_takes": {}}
    match {**known, **document, **columns} if isinstance(document, dict) else None:
        case {
            "mode": str(mode),
            "active": str(active),
            "takes": int(takes),
            "since": int(since),
            "modes": dict(modes),
            "cassette_takes": dict(cassette_takes),
            "slots": dict(slots),
            "slot_takes": dict(slot_takes),
        }:
            return Control(
                _mode(mode),
                active,
                takes,
                since,
                {name: _mode(each) for name, each in modes.items()},
                {name: each for name, each in cassette_takes.items() if isinstance(each, int)},
                generation,
                {name: _slot(name, each) for name, each in slots.items()},
                {name: tuple(_numbers(takes)) for name, takes in slot_takes.items()},
            )
        case _:
            raise ValueError("it is not what this tapeway writes")


def _slot(name: str, value: Json) -> Slot:
    match value:
        case {"cassette": str(cassette), "mode": mode, "take": int(take), **more}:
            # A tapeway of an older version wrote no `since`.
            since = more.get("since")
            began = since if isinstance(since, int) else take
            return Slot(cassette, None if mode is None else _mode(mode), take, began)
        case _:
            raise ValueError(f"slot {name!r} is not what this tapeway writes")


def _numbers(takes: Json) -> Iterator[int]:
    return (each for each in (takes if isinstance(takes, list) else ()) if isinstance(each, int))


def _mode(text: Json) -> Mode:
    for mode in MODE_POLICIES:
        if mode == text:
            return mode
    raise ValueError(f"there is no mode {text!r}: another tapeway set it")
