"""Changes of what is in force: mode, active cassette, takes. Each makes a new `Control` of an old."""

from dataclasses import replace

from tapeway.core.modes import Mode
from tapeway.core.shared import Control


def with_mode(now: Control, mode: Mode, cassette: str | None = None) -> Control:
    """A mode for all cassettes without one of their own, or for one alone; another starts a take."""
    if cassette is not None:
        after = replace(now, modes={**now.modes, cassette: mode})
        return after if now.mode_of(cassette) == mode else with_take(after, cassette)
    after = replace(now, mode=mode)
    if now.mode == mode:
        return after
    number = now.takes + 1
    # Those with a mode of their own go on in their take.
    kept = {name: now.take_of(name) for name in now.modes}
    return replace(after, takes=number, since=number, cassette_takes=kept)


def with_active(now: Control, name: str, mode: Mode | None = None) -> Control:
    """Another active cassette in a new take, and with `mode` that for all cassettes."""
    after = replace(now, active=name)
    if mode is not None:
        modes = {each: own for each, own in now.modes.items() if each != name}
        after = with_mode(replace(after, modes=modes), mode)
    return with_take(after, name, begun=after.takes - now.takes)


def with_take(now: Control, cassette: str | None = None, *, begun: int = 0) -> Control:
    """A new take for one cassette or for all; `begun` is how many this change began already."""
    number = now.takes + 1 - begun
    if cassette is None:
        return replace(now, takes=number, since=number, cassette_takes={})
    return replace(now, takes=number, cassette_takes={**now.cassette_takes, cassette: number})
