"""A recorded request, with lazily computed values for its keys.

The keys share one parse of the body, and one removal of the credential fields.
"""

from tapeway.core.json_text import Json, ReadJson
from tapeway.core.matching.credential_fields import OpenedRequest, open_request
from tapeway.core.matching.document import parsed_request, with_rules
from tapeway.core.matching.key import document_key, key_and_body
from tapeway.core.matching.rules import Rules
from tapeway.core.model.messages import Request


class RecordedRequest:
    """A recorded request, for the rules of one cassette."""

    # Not `cached_property`: its lock costs as much as a small body's parse.
    __slots__ = ("_opened", "_parsed", "_read", "request", "rules")

    def __init__(self, request: Request, rules: Rules) -> None:
        self.request = request
        self.rules = rules
        self._parsed: dict[str, Json] | None = None
        self._read: ReadJson | None = None
        self._opened: OpenedRequest | None = None

    def key(self) -> bytes:
        """The match key; the other values use what was parsed for it."""
        request, rules = self.request, self.rules
        if rules:
            self._parsed = parsed_request(request, rules)
            return document_key(request.route, self._parsed, rules)
        keyed = key_and_body(request, rules)
        self._read = keyed.read
        return keyed.key

    @property
    def opened(self) -> OpenedRequest:
        """Its document without its credential fields and without what rules ignore."""
        if self._opened is None:
            request, rules = self.request, self.rules
            parsed = self._parsed or parsed_request(request, rules, self._read)
            self._opened = open_request(request, rules, recorded=True, parsed=parsed)
        return self._opened

    @property
    def compared(self) -> dict[str, Json]:
        """Its document without its credential fields, with rules applied."""
        return with_rules(self.opened.document, self.rules)
