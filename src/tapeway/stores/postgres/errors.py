"""What is used of the driver, and what its errors become.

Texts of a server's errors may repeat what was sent to it, so only those of kinds that cannot are
passed on.
"""

import ssl

import asyncpg  # type: ignore[import-untyped]

from tapeway.errors import StoreAway, StoreError, StoreFull
from tapeway.stores.postgres.address import PostgresAddress

FAULTS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,  # TimeoutError among them
    ValueError,
    EOFError,
)

# SQLSTATEs, or their first two characters, whose texts name roles, hosts and tables alone.
_PLAIN = ("08", "28", "3D", "3F", "42", "53", "55", "57", "58", "25", "XX")
_AWAY = ("08", "57P", "53300", "25006")
_AGAIN = ("40001", "40P01")
_LIMITS = ("57014", "55P03", "25P03", "25P04")
_FULL = ("53100", "53200", "54")


def state_of(exc: BaseException) -> str:
    """The SQLSTATE, empty for what did not come from the server."""
    return str(getattr(exc, "sqlstate", None) or "")


def is_lost(exc: BaseException) -> bool:
    """Whether the connection is gone, so that nobody knows whether a commit took place."""
    if isinstance(exc, asyncpg.PostgresError):
        return state_of(exc).startswith(_AWAY)
    return isinstance(exc, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError))


def is_clash(exc: BaseException) -> bool:
    """Whether the server gave up one of two transactions that were in each other's way."""
    return state_of(exc) in _AGAIN


def translated(exc: BaseException, address: PostgresAddress, deed: str) -> StoreError:
    """The error people see."""
    said, state = _said(exc, address), state_of(exc)
    place = f"{address.shown}: could not {deed}"
    if state.startswith("28") or isinstance(exc, ssl.SSLError | ValueError):
        return StoreError(f"{place} ({said}); see the user, the password and TLS", status=503)
    if isinstance(exc, TimeoutError) or state in _LIMITS:
        return StoreAway(f"{place} in time ({said}); it works again once the database answers")
    if is_lost(exc) or is_clash(exc):
        return StoreAway(f"{place} ({said}); it works again once the database answers")
    if state.startswith(_FULL):
        return StoreFull(f"{place} ({said}); make room in the database, nothing was stored")
    if state == "42501":
        return StoreError(f"{place} ({said}); grant the role what docs/stores.md lists")
    return StoreError(f"{place} ({said})")


def _said(exc: BaseException, address: PostgresAddress) -> str:
    kind, state = type(exc).__name__, state_of(exc)
    if state:
        text = getattr(exc, "message", None)
        plain = state.startswith(_PLAIN) and isinstance(text, str)
        return f"{state} {address.hide(text or '')}" if plain else f"{state} {kind}"
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, OSError) and exc.strerror:
        return address.hide(exc.strerror)
    return kind
