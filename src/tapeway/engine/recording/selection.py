"""Which answers are recorded, by the settings and the mode."""

from collections.abc import Iterable
from dataclasses import dataclass

from tapeway.core.http.content_codings import readable_response
from tapeway.core.http.kept_answers import BAD_REQUEST, error_of_the_caller, kept_statuses
from tapeway.core.model.control import ModePolicy, Repeats
from tapeway.core.model.messages import Failure, Request, Response, ResponseHead, failure_of_error
from tapeway.engine.journal import NOT_STORED
from tapeway.errors import UpstreamError
from tapeway.providers.api_call import calls_model

MIB = 1024 * 1024
TRUNCATED = (
    "the stream ended without the mark its protocol ends with: it was passed on as it came, and "
    f"{NOT_STORED}: --record-failures stores such streams"
)
NOT_RECORDED_UNMARKED = (
    "the stream ended in good order, but without the mark its protocol ends with: it was passed on "
    f"as it came, and {NOT_STORED}, as --require-marks says"
)
ERROR_IN_STREAM = (
    "the stream reported an error although its status is a success: it was passed on, and "
    f"{NOT_STORED}: mode record stores it"
)
STATUS_NOT_RECORDED = (
    f"its status is {{status}}: it was passed on, and {NOT_STORED}: mode record stores it, and so does "
    "--record-statuses {statuses}"
)
LEFT_OUT = f"it was passed on, and {NOT_STORED}: the hook before_record leaves it out"
CALLER_NOT_RECORDED = (
    f"its error {{kind}} is about credentials, a signature or throttling: it was passed on, and "
    f"{NOT_STORED}: mode record stores it"
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings of recording and replaying."""

    repeats: Repeats | None = None
    """None: the rule in each cassette's `meta` is in force."""
    record_statuses: frozenset[int] | None = None
    """None: the statuses of `core/http/kept_answers.py`."""
    max_body: int = 80 * MIB
    record_failures: bool = False
    require_marks: bool = False
    minimal_headers: bool = False


class Selection:
    """Which answers to one request are recorded."""

    def __init__(self, policy: Policy, mode: ModePolicy, redacted: Request) -> None:
        self._policy = policy
        self._mode = mode
        self._redacted = redacted
        self._method = redacted.method

    def is_recorded(self, status: int) -> bool:
        """Whether an answer with this status is recorded."""
        policy = self._mode
        if not policy.records or not policy.replays:
            return policy.records
        return status in self._recorded_statuses

    @property
    def _recorded_statuses(self) -> frozenset[int]:
        """The statuses of answers that a mode that replays records too."""
        if (chosen := self._policy.record_statuses) is not None:
            return chosen
        return kept_statuses(calls_model=calls_model(self._redacted))

    @property
    def depends_on_error(self) -> bool:
        """Whether the type of an error decides if the answer is recorded."""
        policy = self._mode
        return policy.records and policy.replays and self._policy.record_statuses is None

    def why_not_recorded(self, response: Response) -> str | None:
        """Why an answer is not recorded in a mode that records; None where it is."""
        policy, status, verdict = self._mode, response.status, response.verdict
        if not self.is_recorded(status):
            statuses = ranges_text(self._recorded_statuses | {status})
            return STATUS_NOT_RECORDED.format(status=status, statuses=statuses)
        if status == BAD_REQUEST and self.depends_on_error:
            plain = readable_response(response, self._method)
            if (kind := error_of_the_caller(plain)) is not None:
                return CALLER_NOT_RECORDED.format(kind=kind)
        if verdict == "truncated" and not self._policy.record_failures:
            return TRUNCATED
        if verdict == "unmarked" and self._policy.require_marks:
            return NOT_RECORDED_UNMARKED
        return ERROR_IN_STREAM if verdict == "error" and policy.replays else None

    def failure_to_record(self, error: UpstreamError, head: ResponseHead | None) -> Failure | None:
        """The failure that is recorded for an error, None where nothing is."""
        if not self._policy.record_failures:
            return None
        return self.recordable_failure(error, head)

    def recordable_failure(self, error: UpstreamError, head: ResponseHead | None) -> Failure | None:
        """The failure that --record-failures stores for an error, None where that is nothing."""
        if not self._mode.records or (head is not None and not self.is_recorded(head.status)):
            return None
        return failure_of_error(error.code, begun=head is not None)


def ranges_text(statuses: Iterable[int]) -> str:
    """Statuses as --record-statuses takes them: `200-299,404`."""
    ranges: list[list[int]] = []
    for status in sorted(statuses):
        if ranges and ranges[-1][1] == status - 1:
            ranges[-1][1] = status
        else:
            ranges.append([status, status])
    return ",".join([f"{a}" if a == b else f"{a}-{b}" for a, b in ranges])
