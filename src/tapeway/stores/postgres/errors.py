"""Errors of the PostgreSQL driver as errors of the store.

The text of a server's error may repeat the data sent to it. So only texts of kinds that cannot
(`_PLAIN`) are passed on.
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

# SQLSTATEs, or their first two characters, whose texts name only roles, hosts and tables.
_PLAIN = ("08", "28", "3D", "3F", "42", "53", "55", "57", "58", "25", "XX")
_READ_ONLY = "25006"
_AWAY = ("08", "57P", "53300", _READ_ONLY)
_AGAIN = ("40001", "40P01")
_LIMITS = ("57014", "55P03", "25P03", "25P04")
_FULL = ("53100", "53200", "54")


def state_of(exc: BaseException) -> str:
    """The SQLSTATE, empty for an error that is not the server's."""
    return str(getattr(exc, "sqlstate", None) or "")


def is_lost(exc: BaseException) -> bool:
    """Whether the connection was lost, so that the result of a commit is unknown."""
    if isinstance(exc, asyncpg.PostgresError):
        return state_of(exc).startswith(_AWAY)
    return isinstance(exc, (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError))


def is_conflict(exc: BaseException) -> bool:
    """Whether the server aborted a transaction for a deadlock or a serialisation failure."""
    return state_of(exc) in _AGAIN


def is_read_only(exc: BaseException) -> bool:
    """Whether a server refuses all writes: a standby, or a default of its sessions."""
    return state_of(exc) == _READ_ONLY


def refuses_writes(exc: BaseException) -> bool:
    """Whether a server that refused to write may still be read: on a full disk, for example."""
    state = state_of(exc)
    lost = state.startswith(_AWAY) or state in (*_AGAIN, *_LIMITS)
    return bool(state) and (is_read_only(exc) or not lost)


def translated(exc: BaseException, address: PostgresAddress, action: str) -> StoreError:
    """The StoreError for an error of the driver; `action` says what failed."""
    reason, state = _reason(exc, address), state_of(exc)
    failed = f"{address.shown}: could not {action}"
    if state.startswith("28") or isinstance(exc, ssl.SSLError | ValueError):
        return StoreError(f"{failed} ({reason}); see the user, the password and TLS", status=503)
    if isinstance(exc, TimeoutError) or state in _LIMITS:
        return StoreAway(f"{failed} in time ({reason}); it works again once the database answers")
    if is_read_only(exc):
        return StoreAway(
            f"{failed} ({reason}); see default_transaction_read_only, and whether the address leads "
            "to a standby"
        )
    if is_lost(exc) or is_conflict(exc):
        return StoreAway(f"{failed} ({reason}); it works again once the database answers")
    if state.startswith(_FULL):
        return StoreFull(f"{failed} ({reason}); make room in the database, nothing was stored")
    if state == "42501":
        return StoreError(f"{failed} ({reason}); grant the role what docs/stores.md lists")
    return StoreError(f"{failed} ({reason})")


def _reason(exc: BaseException, address: PostgresAddress) -> str:
    kind, state = type(exc).__name__, state_of(exc)
    if state:
        text = getattr(exc, "message", None)
        plain = state.startswith(_PLAIN) and isinstance(text, str)
        return f"{state} {address.hide(text or '')}" if plain else f"{state} {kind}"
    if isinstance(exc, TimeoutError):
        return "no answer in time"
    if isinstance(exc, asyncpg.exceptions.ClientConfigurationError):
        # These texts name parameters and files; a quoted value may be a secret.
        return f"{kind}: {address.hide(str(exc))}"
    if isinstance(exc, ssl.SSLCertVerificationError):
        return address.hide(f"{kind}: {exc.verify_message}")
    if isinstance(exc, OSError) and exc.strerror:
        return address.hide(exc.strerror)
    return kind


def reads_only(place: str) -> StoreError:
    """Where something is to be written to a database that can only be read."""
    return StoreError(
        f"{place}: this database can only be read, as a standby or by the rights of this role: start "
        "one process with --mode replay, or give a role that may write to the primary",
        status=503,
    )
