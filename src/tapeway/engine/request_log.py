"""What the log says of requests: misses, failed calls, and with `--access-log` a line for each."""

import asyncio
import logging
from dataclasses import dataclass
from typing import NamedTuple

from tapeway.core.misses.miss import RECORD_NOTE, Miss
from tapeway.engine.journal import ServedRequest, ServedRequests

misses = logging.getLogger("tapeway.misses")
"""The logger of misses alone: `tapeway run` silences misses, because the report names them."""

access = logging.getLogger("tapeway.access")
failures = logging.getLogger("tapeway.failures")

QUIET_S = 5.0
"""After so many seconds without a further failure of its kind, a row of failures has ended."""

_MOST_ROWS = 1000


def page_of(request_id: str, page: str | None) -> str | None:
    """The address of a request on the page or in a report, None without one."""
    return f"{page}#/journal/{request_id}" if page else None


def log_miss(miss: Miss, request_id: str, page: str | None) -> None:
    """Log a miss with the command that records it, and with the address of its page."""
    line, address = miss.message, page_of(request_id, page)
    if miss.record_command is not None and RECORD_NOTE not in line:
        line += f"{RECORD_NOTE}{miss.record_command}"
    misses.warning("%s", line if address is None else f"{line}; see {address}")


class AccessLog(ServedRequests):
    """Logs a line for each request, at any level of other lines, and hands the request on."""

    def __init__(self, journal: ServedRequests) -> None:
        self._journal = journal
        # An access log is wanted even if only warnings are logged.
        access.setLevel(logging.INFO)

    def add(self, served: ServedRequest) -> None:
        served = served.written()
        fields = {
            "client_address": served.client_address,
            "method": served.method,
            "path": served.path,
            "cassette": served.cassette,
            "route": served.route,
            "outcome": served.outcome,
            "status": served.status,
            "code": served.code,
            "bytes": served.answer.sent,
            "duration_ms": round(served.duration_ms, 3),
            "id": served.id,
            "request_id": served.request_id,
            "trace_id": served.trace_id,
        }
        access.info("request", extra=fields)
        self._journal.add(served)


class FailedCall(NamedTuple):
    """A call that tapeway answered with an error, or whose answer it broke off. All is redacted."""

    cassette: str
    route: str
    method: str
    path: str
    status: int
    code: str
    message: str
    id: str
    request_id: str


@dataclass(slots=True)
class _Row:
    """Equal failures, one after another."""

    last: FailedCall
    times: int = 1
    told: int = 1
    """How many of them the log has told of."""
    next_line: int = 10
    """With so many of them, the log tells of them again."""
    swept: int = 0
    """How many there were when the rows were last looked at."""


class FailureLog:
    """Logs a warning for each failed call.

    A service that is down fails many calls alike: the log has the first of them at once, then one
    line with the count for ten of them, for a hundred and so on, and one when the row has ended.
    Calls are alike that have cassette, route, method, path and code in common.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], _Row] = {}
        self._sweep: asyncio.TimerHandle | None = None

    def add(self, call: FailedCall) -> None:
        """Log a failed call, or count it to the row that it continues."""
        kind = (call.cassette, call.route, call.method, call.path, call.code)
        row = self._rows.get(kind)
        if row is not None:
            row.last, row.times = call, row.times + 1
            if row.times == row.next_line:
                row.next_line *= 10
                _tell(row)
            return
        if len(self._rows) >= _MOST_ROWS:
            self.end_rows()
        self._rows[kind] = _Row(call)
        _log(call, 1)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(QUIET_S, self._end_quiet_rows)

    def end_rows(self) -> None:
        """Log the counts that no line has told yet, and begin anew."""
        for row in self._rows.values():
            _tell(row)
        self._rows.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _end_quiet_rows(self) -> None:
        self._sweep = None
        for kind, row in list(self._rows.items()):
            if row.times == row.swept:
                _tell(row)
                del self._rows[kind]
            row.swept = row.times
        if self._rows:
            self._sweep = asyncio.get_running_loop().call_later(QUIET_S, self._end_quiet_rows)


def _tell(row: _Row) -> None:
    if row.times > row.told:
        row.told = row.times
        _log(row.last, row.times)


def _log(call: FailedCall, times: int) -> None:
    fields = call._asdict() | {"times": times}
    message = fields.pop("message")
    text = "a call failed: %s" if times == 1 else f"{times} calls failed alike: %s"
    failures.warning(text, message, extra=fields)
