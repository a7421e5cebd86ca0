"""One request as a provider's code sees it."""

import re
from dataclasses import dataclass, field

from tapeway.testing.json_tree import JsonObject, text_at

_ASKED_STATUS = re.compile(r"error-([45]\d\d)")
_CREDENTIAL_HEADERS = (
    "x-amz-security-token",  # beside it, Authorization is but a signature
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
)


@dataclass(frozen=True, slots=True)
class Call:
    """The path is percent-decoded and the body content-decoded; `params` come from the route."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    json: JsonObject = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model that path or body names."""
        return self.params.get("model") or text_at(self.json, "model")

    @property
    def asked_status(self) -> int | None:
        """429 for a model named `error-429`: the failure this call asks for."""
        found = _ASKED_STATUS.fullmatch(self.model)
        return int(found[1]) if found else None

    @property
    def credential(self) -> str:
        """The key that came with the call, without its scheme; empty if there is none."""
        for name in _CREDENTIAL_HEADERS:
            if value := self.headers.get(name):
                return value.rpartition(" ")[2]
        return self.query.get("key", "")
