"""Redacts requests for storing and showing.

Redaction never changes what matches.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from tapeway.core.http.headers import is_stored
from tapeway.core.http.sdk_conventions import client_ids
from tapeway.core.matching.headers.conditions import varied_names
from tapeway.core.matching.headers.distance import request_credentials
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.messages import Headers, Request, ResponseHead
from tapeway.core.model.request_fields import EDITION, RequestFields
from tapeway.core.redaction.credentials import (
    Secret,
    header_credentials,
    own_parameters,
    url_credentials,
    userinfo_credentials,
)
from tapeway.core.redaction.known_values import (
    NOTHING_ALLOWED,
    Allowed,
    KnownValues,
    RecordedPlaceholders,
    issued_credentials,
)
from tapeway.core.redaction.leak_guard import LeakGuard
from tapeway.core.redaction.redactor import Redactor

MOST_LEARNED = 64
"""Secrets remembered of one cassette, those met last: each is searched for in every recording."""
MOST_CASSETTES = 256
MOST_ID = 128
"""Characters of a client's own id for a request that are shown."""


class RequestRedaction:
    """Redacts the secrets of a request, of the process, and of earlier exchanges.

    A secret redacted from an answer is remembered and gets an equal placeholder wherever the client
    sends the secret next: a flow that hands on a session token replays.
    """

    def __init__(self, known: Sequence[Secret] = (), allowed: Allowed = NOTHING_ALLOWED) -> None:
        """`known` are the secrets of the process; what is `allowed` is not replaced in bodies and URLs."""
        self.version = 0
        """Changes when a secret is learnt: texts redacted before may still show the secret."""
        self._values = KnownValues(known, allowed)
        self._learned: OrderedDict[str, OrderedDict[bytes, Secret]] = OrderedDict()
        self._recorded: OrderedDict[str, RecordedPlaceholders] = OrderedDict()
        self._cached_redactor = lru_cache(maxsize=256)(self._redactor)
        # Clients use few paths with few sets of header fields.
        self._cached_target = lru_cache(maxsize=512)(self._target)
        self._cached_guard = lru_cache(maxsize=256)(partial(LeakGuard, known=self._values))

    def learn(self, salt: str, secrets: Sequence[Secret]) -> None:
        """Remember secrets redacted from a recording of the cassette with this salt.

        New ones take the place of those that no recording has shown for longest.
        """
        known: Mapping[bytes, Secret] = self._learned.get(salt, {})
        # The first name that a value was met under stays the name of its placeholder.
        if not (new := [secret for secret in secrets if secret.value not in known]):
            return
        self._cached_target.cache_clear()
        self.version += 1
        learned = self._learned.setdefault(salt, OrderedDict())
        self._learned.move_to_end(salt)
        for secret in secrets:
            if secret.value in learned:
                learned.move_to_end(secret.value)
        learned.update({secret.value: secret for secret in reversed(new)})
        while len(learned) > MOST_LEARNED:
            learned.popitem(last=False)
        self._recorded_with(salt).leave_out(learned)
        while len(self._learned) > MOST_CASSETTES:
            self._learned.popitem(last=False)

    def recall(self, salt: str, placeholders: RecordedPlaceholders) -> None:
        """Have the values recognised that have these placeholders in the cassette with this salt."""
        self._recorded_with(salt).update(placeholders)

    def redact(self, salt: str, request: Request, rules: Rules = NO_RULES) -> Request:
        """The request as the cassette with this salt and these rules would store it."""
        return self.redact_and_learn(salt, request, rules)[0]

    def as_of_earlier_versions(self, salt: str, request: Request, rules: Rules) -> Request:
        """The request as earlier versions stored it, whose placeholders kept no length."""
        head = (*self._head_secrets(request), *self._learned_secrets(salt))
        redactor = self._cached_redactor(salt, head).of_earlier_versions
        return with_fields(
            redactor.request(request), request.headers, (*rules.match, *request.varied), redactor
        )

    def redact_and_learn(
        self, salt: str, request: Request, rules: Rules = NO_RULES
    ) -> tuple[Request, tuple[Secret, ...]]:
        """The redacted request, and the secrets of the request."""
        head = self._head_secrets(request)
        redactor = self._cached_redactor(salt, (*head, *self._learned_secrets(salt)))
        redacted, taught = redactor.request_and_secrets(
            request, request_credentials(request, redactor.placeholder)
        )
        names = (*rules.match, *request.varied)
        return with_fields(redacted, request.headers, names, redactor), (*head, *taught)

    def redact_again(self, salt: str, stored: Request, taught: Sequence[Secret]) -> Request:
        """A request that was redacted before its answer taught these secrets."""
        return Redactor(salt, taught).again(stored) if taught else stored

    def target(self, salt: str, request: Request, recorded: str = "") -> str:
        """The target as it may be shown. `recorded` is that of the recording that answers, if any."""
        return self.target_later(salt, request, recorded)()

    def target_later(self, salt: str, request: Request, recorded: str = "") -> Callable[[], str]:
        """A function that returns the redacted target: few targets are ever looked at."""
        return partial(
            self._cached_target,
            *(salt, request.route, request.headers, request.target, request.base, recorded),
        )

    def traced(self, salt: str, fields: RequestFields) -> tuple[str | None, str | None]:
        """The client's request id and trace id, redacted."""
        given, trace = client_ids(fields.first)
        if given is None:
            return None, trace
        redactor = self.redactor_of(
            salt, self._head_secrets(Request("", "", "", fields.headers, read=fields))
        )
        return redactor.value(given)[:MOST_ID].decode(), trace

    def redactor(self, salt: str, request: Request, more: Sequence[Secret] = ()) -> Redactor:
        """Replaces this request's secrets, the process's, those met before, and `more`."""
        head = self._head_secrets(request)
        _, taught = self._cached_redactor(salt, head).request_and_secrets(request)
        return self.redactor_of(salt, (*head, *taught, *more))

    def issued(self, head: ResponseHead) -> list[Secret]:
        """The credentials a response issues in its head."""
        return issued_credentials(head, self._values.allowed)

    def redactor_of(self, salt: str, secrets: Sequence[Secret]) -> Redactor:
        """A redactor for these secrets, the process's secrets and secrets of earlier exchanges."""
        return self._cached_redactor(salt, (*secrets, *self._learned_secrets(salt)))

    def guard_of(self, salt: str, secrets: Sequence[Secret]) -> LeakGuard:
        """A guard that refuses to write these secrets, the process's, or earlier secrets."""
        return self._cached_guard((*secrets, *self._learned_secrets(salt)))

    def _redactor(self, salt: str, secrets: tuple[Secret, ...]) -> Redactor:
        return Redactor(salt, secrets, self._values, self._recorded_with(salt))

    def _recorded_with(self, salt: str) -> RecordedPlaceholders:
        if (recorded := self._recorded.get(salt)) is None:
            recorded = self._recorded[salt] = RecordedPlaceholders(salt)
            if len(self._recorded) > MOST_CASSETTES:
                self._recorded.popitem(last=False)
        return recorded

    def _target(
        self, salt: str, route: str, headers: Headers, target: str, base: str, recorded: str
    ) -> str:
        request = Request(route, "", target, headers, base=base)
        redactor = self._cached_redactor(
            salt, (*self._head_secrets(request), *self._learned_secrets(salt))
        )
        return redactor.target(target, own_parameters(request), recorded)

    def _head_secrets(self, request: Request) -> tuple[Secret, ...]:
        userinfo = userinfo_credentials(request.base) if "@" in request.base else ()
        in_urls = self._values.allowed.without(url_credentials(request))
        return (*userinfo, *header_credentials(request.fields), *in_urls)

    def _learned_secrets(self, salt: str) -> tuple[Secret, ...]:
        learned = self._learned.get(salt)
        return tuple(learned.values()) if learned else ()


def with_answers_fields(
    stored: Request, sent: Headers, response: Headers, redactor: Redactor
) -> Request:
    """The request of a new recording: with the header fields that the answer names in Vary."""
    names = varied_names(response)
    if not names:
        return stored if stored.edition == EDITION else replace(stored, edition=EDITION)
    return replace(with_fields(stored, sent, names, redactor), varied=names, edition=EDITION)


def with_fields(
    stored: Request, sent: Headers, names: Iterable[str], redactor: Redactor
) -> Request:
    """A stored request with the fields of these names that were sent, beside those always stored."""
    wanted = {octets for name in names if not is_stored(octets := name.encode())}
    if not wanted:
        return stored
    wanted -= {name.lower() for name, _ in stored.headers}
    more = [(name, redactor.field(name, value)) for name, value in sent if name.lower() in wanted]
    return replace(stored, headers=(*stored.headers, *more)) if more else stored
