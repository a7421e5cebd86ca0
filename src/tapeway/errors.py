"""The exceptions that tapeway raises on purpose.

    TapewayError                 status, code, message: what happened and what to do
    ├── ConfigError              a flag, variable or file key is invalid; exit code 2
    │   └── CommandNotFound           the program that `run` is to start does not exist; exit code 127
    ├── RequestError             the app's request cannot be served as sent (4xx)
    │   ├── ClientLeft           400  the client left before its request or its answer ended
    │   ├── WebSocketOff         426  an upgrade to WebSocket where that is switched off
    │   ├── Foreign              403, 421  a page or a host name that this listener does not serve
    │   ├── NoRoute              404  no route matches this path
    │   └── NoSlot               404  the slot points at no cassette
    ├── UpstreamError            the upstream failed (502, 504, 508)
    │   └── UnprovenEnd          502  the end of the connection may be a cut
    ├── StoreError               the cassette cannot be read or written (500, 502, 503, 507)
    │   ├── CassetteCorrupt      500  the stored cassette is invalid; with file, line and reason
    │   │   └── OtherToolsFile   500  another tool's file is where the cassette would be
    │   ├── CassetteUnreadable   503  this user may not read the cassette
    │   ├── CassetteLocked       503  another process records into this cassette
    │   ├── CassetteEdited       409  somebody edited the file while it was loaded
    │   ├── RecordingEdited      409  somebody changed a recording that was to go on
    │   ├── DocumentAway         500  a recording is to be read first; clients never see it
    │   ├── StoreFull            507  the disk, a quota or a size limit is exhausted
    │   ├── StorePoisoned        503  a sync failed; nothing is recorded until the eject
    │   ├── StoreAway            503  the database or remote store cannot be reached
    │   └── Fenced               503  another instance took over this recording; clients never see it
    ├── HookFailed               500  a function of the user failed
    ├── TemplateFailed           500  the request lacks what an answer is to repeat
    ├── CallMissed               400  no recording answers a call of the library
    ├── AdminError               the admin call cannot be carried out (4xx)
    └── Draining                 503  the process is stopping

The status is that of the HTTP response. The code is stable: scripts can match on it.
"""

from typing import TypeVar

E = TypeVar("E", bound=BaseException)


class TapewayError(Exception):
    """An error with the HTTP `status` of its response and a stable `code`."""

    status = 500
    code = "internal"
    is_failure = True
    """Whether a call that ends so has failed, and not only as its client or an option wanted it."""

    def __init__(self, message: str, *, status: int | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if status is not None:
            self.status = status
        if code is not None:
            self.code = code


class ConfigError(TapewayError):
    """The configuration is invalid."""

    code = "config"


class RequestError(TapewayError):
    """The app's request cannot be served as it was sent."""

    status = 400
    code = "bad_request"


class ClientLeft(RequestError):
    """The client left before its request or its answer ended."""

    is_failure = False


class WebSocketOff(RequestError):
    """WebSocket is switched off. A client falls back to HTTP at once only after a 426."""

    is_failure = False
    status = 426
    code = "websocket_off"


class Foreign(RequestError):
    """A page that may not call the listener, or a name that does not lead there.

    `asker` tells the log who asked, and `option` which option would serve the request, if one would.
    """

    is_failure = False
    status = 403
    code = "foreign_origin"

    def __init__(
        self,
        message: str,
        asker: str = "",
        option: str | None = None,
        *,
        status: int | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, status=status, code=code)
        self.asker = asker
        self.option = option


class NoRoute(RequestError):
    """No route matches this path; the message names the routes."""

    status = 404
    code = "no_route"


class NoSlot(RequestError):
    """The slot was never set, or was removed."""

    status = 404
    code = "no_slot"


class HookFailed(TapewayError):
    """A hook raised, or returned what cannot be used; the message names file and line."""

    code = "hook_failed"


class TemplateFailed(TapewayError):
    """An answer by hand is to repeat what the request does not have."""

    code = "template_failed"


class UpstreamError(TapewayError):
    """The upstream is unreachable or its response is incomplete; `code` starts with `upstream_`."""

    status = 502
    code = "upstream_error"


class UnprovenEnd(UpstreamError):
    """Only an end mark shows that the body is whole: the connection may have been cut."""

    code = "upstream_truncated"


class StoreError(TapewayError):
    """The cassette could not be read or written; the message names the file or address."""

    status = 502
    code = "recording_failed"


class CommandNotFound(ConfigError):
    """The program that a command wraps does not exist."""


class CassetteCorrupt(StoreError):
    """The stored cassette is invalid. It is left unchanged."""

    status = 500
    code = "cassette_corrupt"


class OtherToolsFile(CassetteCorrupt):
    """The cassette's file was written by another tool: `cassette convert` reads the file."""


class CassetteUnreadable(StoreError):
    """This user may not read the cassette."""

    status = 503


class CassetteLocked(StoreError):
    """Another process records into the cassette."""

    status = 503
    code = "cassette_locked"


class CassetteEdited(StoreError):
    """Somebody edited the cassette's file while it was loaded; neither version was overwritten."""

    status = 409
    code = "cassette_edited"


class DocumentAway(StoreError):
    """A recording that is to be read first, which nobody can wait for here; clients never see it."""

    index = -1


def document_away(index: int) -> DocumentAway:
    """The error of a decision that looks at this recording."""
    away = DocumentAway(f"recording {index} is not in memory")
    away.index = index
    return away


class RecordingEdited(CassetteEdited):
    """Somebody changed or removed the recording that was to go on; nothing was written."""

    code = "recording_edited"


class StoreFull(StoreError):
    """There is no room for the recording. Recording works again when there is room."""

    status = 507


class StorePoisoned(StoreError):
    """A failed write or sync left the state of the disk unknown."""

    status = 503


class StoreAway(StoreError):
    """The database or the remote store does not respond; tapeway waits for a response."""

    status = 503
    code = "store_unreachable"


class Fenced(StoreError):
    """Another instance now has the right to record this response; nothing was written."""

    status = 503


class CallMissed(TapewayError):
    """No recording is left that answers this call of a program's own function."""

    status = 400
    code = "replay_miss"


class AdminError(TapewayError):
    """The admin call cannot be carried out."""

    status = 400
    code = "bad_request"


class Draining(TapewayError):
    """The process is stopping and starts no more live calls."""

    status = 503
    code = "draining"


def too_large(max_bytes: int) -> UpstreamError:
    """The error for a response of an upstream that is larger than --max-body."""
    return UpstreamError(
        f"the response is larger than --max-body ({max_bytes} bytes); nothing was stored",
        code="upstream_too_large",
    )


def poisoned(place: str) -> StorePoisoned:
    """The error for a store whose last write may be on the disk in part."""
    return StorePoisoned(
        f"a write to {place} failed and left it in an unknown state: nothing is recorded "
        "until the cassette is ejected or tapeway is restarted",
        code="store_poisoned",
    )


def out_of_touch(place: str, why: str = "") -> StoreAway:
    """The error of an instance that does not know which mode and takes are in force, and why."""
    return StoreAway(
        why
        or f"{place} has not answered for too long to know what is in force: check that it runs; "
        "tapeway continues once it answers"
    )


def recording_edited(name: str, index: int) -> RecordingEdited:
    """The error for more of a recording that somebody changed or removed."""
    return RecordingEdited(
        f"interaction {index} of cassette '{name}' was changed or removed meanwhile: what came "
        "after it was not written"
    )


def interaction_gone(name: str, index: int) -> CassetteEdited:
    """The error for a walk over a cassette that cannot go on behind an interaction."""
    return CassetteEdited(
        f"interaction {index} of cassette '{name}' is gone since it was read: begin again"
    )


def closed(place: str) -> StoreError:
    """The error for using a store that is closed."""
    return StoreError(f"the store {place} is closed: open it first", status=503)


def fenced(name: str) -> Fenced:
    """The error of a recording whose lease was taken over."""
    return Fenced(f"another instance records the same into cassette '{name}' by now")


def copy_of(exc: E) -> E:
    """A copy of an error, to raise in one more place with a traceback of its own.

    The copy keeps no variables of other places alive, as a shared traceback would.
    """
    if isinstance(exc, TapewayError):
        another = type(exc).__new__(type(exc))
        another.__dict__.update(exc.__dict__)
        another.args, another.__cause__ = exc.args, exc.__cause__
        return another
    return exc


def forget_frames(exc: BaseException) -> None:
    """Drop the tracebacks of an error and of its causes.

    A traceback keeps the variables of its functions alive: memory, and room on the disk.
    """
    chain = [exc]
    for error in chain:
        error.__traceback__ = None
        earlier = (error.__cause__, error.__context__)
        chain += [cause for cause in earlier if cause is not None and cause not in chain]


def describe(exc: BaseException) -> str:
    """The type of an unexpected error and the line that raised it. The text may hold secrets."""
    trace = exc.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(exc).__name__
    file = trace.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f"{type(exc).__name__} at {file}:{trace.tb_lineno}"
