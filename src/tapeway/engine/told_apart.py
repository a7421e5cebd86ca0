"""Names header fields that told equal requests of a take apart, while their answers are recorded."""

import logging
from collections import OrderedDict

from tapeway.core.cassette.plan import Answer, LiveCall
from tapeway.core.matching.headers.conditions import varied_names
from tapeway.core.matching.headers.telling import (
    AnsweredFields,
    match_rule,
    telling_candidates,
    telling_names,
)
from tapeway.core.model.messages import Response
from tapeway.engine.journal import TOLD_APART

log = logging.getLogger(__name__)

_MOST_KEYS = 1024
_MOST_REQUESTS = 8
"""Requests of a key that are compared, the first ones: a poll has thousands."""


class ToldApart:
    """The newest recorded requests of this process, by cassette, take and match key."""

    def __init__(self) -> None:
        self._of: OrderedDict[tuple[str, int, bytes], list[AnsweredFields]] = OrderedDict()
        self._named: set[tuple[str, str]] = set()

    def noted(self, live_call: LiveCall, answer: Answer) -> Answer:
        """Note a recorded answer, and say so where a header tells equal requests apart."""
        names = self._telling(live_call, answer.response)
        if not names:
            return answer
        note = f"{TOLD_APART}{match_rule(names)}"
        cassette, redacted = answer.cassette, live_call.redacted
        if (cassette, note) not in self._named and len(self._named) < _MOST_KEYS:
            self._named.add((cassette, note))
            log.warning(
                "cassette '%s', %s %s: %s", cassette, redacted.method, redacted.target, note
            )
        return answer._replace(note=note if answer.note is None else f"{answer.note}; {note}")

    def _telling(self, live_call: LiveCall, response: Response) -> tuple[str, ...]:
        key = live_call.cassette.name, live_call.take.number, live_call.key
        requests = self._of.setdefault(key, [])
        if len(self._of) > _MOST_KEYS:
            self._of.popitem(last=False)
        if len(requests) >= _MOST_REQUESTS:
            return ()
        body: object = response.body if response.file is None else response.file.size
        fields = telling_candidates(live_call.request.fields)
        requests.append(AnsweredFields(fields, (response.status, hash(body))))
        if len(requests) < 2:
            return ()
        known = (*live_call.cassette.rules.match, *varied_names(response.headers))
        return telling_names(requests, known)
