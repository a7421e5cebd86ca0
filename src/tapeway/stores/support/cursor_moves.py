"""How a step of a cursor is waited for: the stores make them for callers that wait in no task."""

import asyncio
from collections.abc import Callable
from functools import partial

from tapeway.core.model.control import CursorMove, CursorState

Done = Callable[[CursorMove, BaseException | None], None]
"""Gets the step, and why it could not be tried if it could not."""


async def made(add: Callable[[CursorMove, Done], None], move: CursorMove) -> CursorState | None:
    """Make a step by `add`; None where the cursor or the cassette has changed.

    Raises StoreError.
    """
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    add(move, partial(_settle, waiter))
    try:
        await waiter
    finally:
        # The future has the error, and the error has this function.
        del waiter
    return move.after


def _settle(waiter: "asyncio.Future[None]", _: CursorMove, refused: BaseException | None) -> None:
    if waiter.done():
        return
    if refused is None:
        waiter.set_result(None)
    else:
        waiter.set_exception(refused)
