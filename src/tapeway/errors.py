"""Every error tapeway raises on purpose, as one tree.

    TapewayError                 status, code, message: what happened and what to do
    ├── ConfigError              a flag, variable or file key that cannot be used; exit code 2
    ├── RequestError             the app's request cannot be served as sent (4xx)
    │   └── NoRoute              404  no route takes this path
    ├── UpstreamError            the live service failed (502, 504, 508)
    ├── StoreError               the cassette cannot be read or written (500, 502, 503, 507)
    │   ├── CassetteCorrupt      the stored form cannot be read; named with file, line, reason
    │   ├── CassetteLocked       another process writes this cassette
    │   ├── CassetteEdited       somebody changed the file while it was loaded
    │   ├── StoreFull            507  no space, quota or size limit
    │   ├── StorePoisoned        503  a sync failed; nothing is acknowledged until reopened
    │   ├── StoreAway            503  the database or remote store cannot be reached
    │   └── Fenced               503  another instance records the same by now; never shown to a client
    ├── CallMissed               424  no recording answers a program's own call
    ├── AdminError               the admin call cannot be carried out (4xx)
    └── Draining                 503  the process is stopping

The status is the HTTP status the error becomes; the code is stable, and is what scripts match on.
"""


class TapewayError(Exception):
    """An error with the HTTP `status` it becomes and a stable `code`."""

    status = 500
    code = "internal"

    def __init__(self, message: str, *, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status = status
        if code is not None:
            self.code = code


class ConfigError(TapewayError):
    """The configuration cannot be used as given."""

    code = "config"


class RequestError(TapewayError):
    """The app's request cannot be served as it was sent."""

    status = 400
    code = "bad_request"


class NoRoute(RequestError):
    """No route takes this path; the message names the routes there are."""

    status = 404
    code = "no_route"


class UpstreamError(TapewayError):
    """The live service could not be reached or did not answer whole; `code` starts with `upstream_`."""

    status = 502
    code = "upstream_error"


class StoreError(TapewayError):
    """The cassette could not be read or written; the message names the file or address."""

    status = 502
    code = "recording_failed"


class CassetteCorrupt(StoreError):
    """The stored cassette cannot be read. It is left as it is."""

    status = 500
    code = "cassette_corrupt"


class CassetteLocked(StoreError):
    """Another process holds the cassette for writing."""

    status = 503
    code = "cassette_locked"


class CassetteEdited(StoreError):
    """The cassette's file changed while it was loaded; neither version was overwritten."""

    status = 409
    code = "cassette_edited"


class StoreFull(StoreError):
    """There is no room for the recording; it works again once there is."""

    status = 507


class StorePoisoned(StoreError):
    """A write or sync failed in a way that leaves the disk's state unknown."""

    status = 503


class StoreAway(StoreError):
    """The database or the remote store does not answer; it works again once it does."""

    status = 503
    code = "store_unreachable"


class Fenced(StoreError):
    """The right to record this answer has passed to another instance; nothing was written."""

    status = 503


class CallMissed(TapewayError):
    """No recording answers a call that a program makes of its own functions, or none is left."""

    status = 424
    code = "replay_miss"


class AdminError(TapewayError):
    """The admin call cannot be carried out."""

    status = 400
    code = "bad_request"


class Draining(TapewayError):
    """The process is stopping and no longer starts live calls."""

    status = 503
    code = "draining"


def too_large(max_bytes: int) -> UpstreamError:
    """The error for an answer that is larger than it may be."""
    return UpstreamError(
        f"the answer is larger than --max-body ({max_bytes} bytes); nothing was stored",
        code="upstream_too_large",
    )


def closed(place: str) -> StoreError:
    """The error for what is asked of a store after its end."""
    return StoreError(f"the store {place} is closed: open it first", status=503)


def describe(exc: BaseException) -> str:
    """The kind of an unexpected error and where it arose, without its text: that may hold secrets."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(exc).__name__
    file = trace.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f"{type(exc).__name__} at {file}:{trace.tb_lineno}"
