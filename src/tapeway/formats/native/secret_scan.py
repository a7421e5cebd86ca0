"""Finds the secrets that a committed interaction of a cassette would show.

Everything the recorder would redact is a finding: secrets have a single definition. The redacted
document is then searched once more for known values: in every string, name and number, and in
encoded content. A document is changed only where something is redacted.

What one interaction teaches is searched for in the following ones. For those before it, a cassette
is scanned a second time, with the taught values among the known.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tapeway.core.http.content_codings import (
    content_coding,
    decode_leniently,
    decoder,
    leniently_readable,
    readable_request,
    readable_response,
)
from tapeway.core.http.location import without_userinfo
from tapeway.core.json_text import Json, Pointer, dump, parse
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.redaction import credentials
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import (
    ENCODED,
    Finding,
    decode_base64,
    find_replaced,
    find_secrets,
    masked_prefix,
)
from tapeway.core.redaction.known_values import KnownValues, issued_credentials
from tapeway.core.redaction.leak_guard import HIDDEN_NAME
from tapeway.core.redaction.patterns import MAX_LENGTH
from tapeway.core.redaction.redactor import Redactor
from tapeway.formats.fields import Document
from tapeway.formats.native import bodies, chunk_times, header_map, http_exchange, multipart
from tapeway.formats.native.assets import BYTES_NAME
from tapeway.formats.native.document import decode, encode

_MESSAGES = ("request", "response", http_exchange.PARTIAL)

# Fields that belong together and are replaced together.
_GROUPS = ((*bodies.NAMES, multipart.NAME), header_map.NAMES, chunk_times.NAMES)


_UNBOUNDED = 1 << 62

# Each is searched for in every interaction.
_MOST_TAUGHT = 256

# The most characters that encode one: an escape after eight backslashes.
_ESCAPED_LENGTH = 13
_BASE64 = ENCODED | {"raw_b64"}
_OCTETS = b"application/octet-stream"


@dataclass(frozen=True, slots=True)
class ScanResult:
    """The redacted document, the replaced findings, and the findings left in place."""

    document: Document
    replaced: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings in the original document, each place once."""
        places = {secret.place for secret in self.replaced}
        return (*self.replaced, *[secret for secret in self.left if secret.place not in places])


class SecretScanner:
    """Scans the interactions of one cassette; its `run_id` determines the placeholders."""

    def __init__(self, run_id: str, known: KnownValues) -> None:
        self._run_id = run_id
        self._known = known
        self._taught: dict[bytes, Secret] = {}

    @property
    def taught(self) -> tuple[Secret, ...]:
        """The values replaced so far that are secrets wherever they stand."""
        return tuple(self._taught.values())

    def _learn(self, secrets: Iterable[Secret]) -> None:
        for secret in secrets:
            if len(self._taught) < _MOST_TAUGHT:
                self._taught.setdefault(secret.value, secret)

    def interaction(self, item: AnyInteraction, document: Document) -> ScanResult:
        """Scan an interaction. Without a finding the document is the very object given."""
        if isinstance(item, ForeignInteraction):
            return self.document(document)
        credentials_found = [
            *credentials.header_credentials(item.request.fields),
            *self._known.allowed.without(credentials.url_credentials(item.request)),
            *credentials.userinfo_credentials(item.request.base),
            *issued_credentials(item.response.head, self._known.allowed),
        ]
        plain = replace(
            item,
            request=replace(
                readable_request(item.request), base=without_userinfo(item.request.base)
            ),
            response=readable_response(
                item.response, item.request.method, cut=item.failure is not None
            ),
        )
        self._learn(credentials_found)
        redactor = Redactor(self._run_id, [*credentials_found, *self.taught], self._known)
        cleaned, taught = _redacted_interaction(plain, redactor)
        if taught:
            self._learn(taught)
            redactor = Redactor(
                self._run_id, [*credentials_found, *taught, *self.taught], self._known
            )
            cleaned, _ = _redacted_interaction(plain, redactor)
        replaced = tuple(_userinfo_finding(item.request))
        redacted = document
        if replaced or cleaned != plain:
            redacted = encode(cleaned)
            if not content_coding(cleaned.response.headers):
                # What it says was redacted.
                plain = replace(plain, response=leniently_readable(plain.response))
            replaced += tuple(find_replaced(encode(plain), redacted))
        secrets = KnownValues(redactor.secrets, self._known.allowed)
        inside = tuple(_in_coded_bodies(cleaned, secrets))
        if replaced:
            redacted = patched(document, encode(item), redacted)
            return ScanResult(redacted, replaced, (*_findings(redacted, secrets), *inside))
        left = tuple(_findings(document, secrets))
        # Encoding anew removes the raw copy of a body that was edited by hand.
        if left and redacted is document:
            redacted = encode(cleaned)
        if left and len(remaining := tuple(_findings(redacted, secrets))) < len(left):
            removed = tuple([secret for secret in left if secret not in remaining])
            redacted = patched(document, {}, redacted)
            return ScanResult(redacted, removed, (*remaining, *inside))
        return ScanResult(document, (), (*left, *inside))

    def document(self, document: Document) -> ScanResult:
        """Scan any JSON object, such as the metadata of a cassette."""
        redactor = Redactor(self._run_id, self.taught, self._known)
        redacted, taught = _redacted_json(document, redactor)
        assert isinstance(redacted, dict)  # noqa: S101 - only strings and numbers are replaced
        if "request" in redacted:
            # In a request more field names mean a secret.
            asked, more = _redacted_json(redacted["request"], redactor, in_response=False)
            redacted, taught = {**redacted, "request": asked}, [*taught, *more]
        self._learn(taught)
        replaced = tuple(find_replaced(document, redacted))
        left = tuple(
            _findings(redacted, KnownValues([*redactor.secrets, *taught], self._known.allowed))
        )
        return ScanResult(redacted if replaced else document, replaced, left)

    def body(
        self, pointer: Pointer, headers: Headers, pieces: Iterable[bytes]
    ) -> Iterator[Finding]:
        """Scan a large body in pieces, the content coding removed."""
        opened = decoder(content_coding(headers), limit=_UNBOUNDED)
        longest = max([len(secret.value) for secret in self._known.secrets], default=0)
        overlap = max(MAX_LENGTH, _ESCAPED_LENGTH * longest)
        before = b""
        start, reported = 0, -1
        for piece in pieces:
            window = before + (piece if opened is None else opened.feed(piece))
            for match in find_secrets(window, self._known):
                # A finding in the overlap may have been reported already.
                if start + match.offset > reported:
                    reported = start + match.offset
                    text = window[match.offset : match.offset + match.length]
                    yield Finding(pointer, match.label, masked_prefix(text))
            before = window[-overlap:]
            start += len(window) - len(before)


def decode_changed(item: AnyInteraction, document: Document) -> AnyInteraction:
    """The interaction in a changed document, with the large bodies of the original."""
    changed = decode(document, item.index)
    if isinstance(changed, Interaction) and isinstance(item, Interaction):
        return replace(
            changed,
            request=replace(changed.request, file=item.request.file),
            response=replace(changed.response, file=item.response.file),
        )
    return changed


def _findings(value: Json, known: KnownValues, at: Pointer = ()) -> Iterator[Finding]:
    """A finding for each string, number or name that contains a known value or pattern."""
    if isinstance(value, dict):
        for name, inner in value.items():
            in_name = list(_findings_in(name.encode(), known, (*at, HIDDEN_NAME)))
            yield from in_name
            yield from _findings(inner, known, (*at, HIDDEN_NAME if in_name else name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _findings(inner, known, (*at, index))
    elif isinstance(value, str):
        plain = decode_base64(value) if at and at[-1] in _BASE64 else None
        yield from _findings_in(value.encode() if plain is None else plain, known, at)
    elif isinstance(value, int) and value > 0:
        # A negative number differs from the digits of a secret.
        yield from _findings_in(dump(value), known, at)


def _findings_in(text: bytes, known: KnownValues, pointer: Pointer) -> Iterator[Finding]:
    for match in find_secrets(text, known):
        yield Finding(
            pointer, match.label, masked_prefix(text[match.offset : match.offset + match.length])
        )


def _in_coded_bodies(item: Interaction, known: KnownValues) -> Iterator[Finding]:
    """Findings in the readable part of bodies with a content coding that cannot be removed."""
    for name, message in (("request", item.request), ("response", item.response)):
        if (coding := content_coding(message.headers)) and _stays_coded(
            message, item.request.method
        ):
            yield from _findings_in(decode_leniently(coding, message.body), known, (name, "body"))


def _stays_coded(message: Request | Response, method: str) -> bool:
    if isinstance(message, Request):
        return readable_request(message) is message
    return readable_response(message, method) is message


def _redacted_interaction(
    item: Interaction, redactor: Redactor
) -> tuple[Interaction, list[Secret]]:
    """The interaction without secrets, and the secrets that request and response taught."""
    request, asked = redactor.request_and_secrets(item.request)
    response, answered = redactor.response_and_secrets(item.response)
    metadata, _ = _redacted_json(dict(item.metadata), redactor)
    usage = None if item.usage is None else _redacted_json(dict(item.usage), redactor)[0]
    cleaned = replace(
        item,
        # All headers are kept, also headers that the recorder would not store.
        request=replace(request, headers=_redacted_headers(item.request.headers, redactor)),
        response=response,
        metadata=metadata if isinstance(metadata, dict) else {},
        usage=usage if isinstance(usage, dict) else None,
        tags=tuple([redactor.value(tag.encode()).decode() for tag in item.tags]),
        failure=item.failure
        and replace(item.failure, message=redactor.value(item.failure.message.encode()).decode()),
    )
    return cleaned, [*asked, *answered]


def _redacted_headers(headers: Headers, redactor: Redactor) -> Headers:
    answer = redactor.response(Response(ResponseHead(200, headers=headers)))
    return tuple(
        [(name, _redacted_cookies(name, value, redactor)) for name, value in answer.headers]
    )


def _redacted_cookies(name: bytes, value: bytes, redactor: Redactor) -> bytes:
    if name.lower() != b"cookie":
        return value
    # A cookie in a request is redacted like a Set-Cookie without attributes.
    pairs = [(b"set-cookie", pair) for pair in value.split(b";")]
    answer = redactor.response(Response(ResponseHead(200, headers=tuple(pairs))))
    return b";".join([pair for _, pair in answer.headers])


def _redacted_json(
    value: Json, redactor: Redactor, *, in_response: bool = True
) -> tuple[Json, list[Secret]]:
    """The value without secrets, and the secrets that it taught."""
    text = dump(value)
    if BYTES_NAME.encode() in text:
        # A placeholder within base64 would be invalid base64.
        value = _redacted_bytes(value, redactor, in_response=in_response)
        text = dump(value)
    redacted, taught = redactor.message_and_secrets(text, in_response=in_response)
    return value if redacted == text else parse(redacted), taught


def _redacted_bytes(value: Json, redactor: Redactor, *, in_response: bool) -> Json:
    if isinstance(value, dict):
        encoded = value.get(BYTES_NAME)
        plain = decode_base64(encoded) if isinstance(encoded, str) and len(value) == 1 else None
        if plain is not None:
            redacted = redactor.message(plain, in_response=in_response, content_type=_OCTETS)
            return (
                {BYTES_NAME: base64.b64encode(redacted).decode("ascii")}
                if redacted != plain
                else value
            )
        return {
            k: _redacted_bytes(member, redactor, in_response=in_response)
            for k, member in value.items()
        }
    if isinstance(value, list):
        return [_redacted_bytes(item, redactor, in_response=in_response) for item in value]
    return value


def _userinfo_finding(request: Request) -> Iterator[Finding]:
    # Userinfo is removed without a placeholder.
    if "@" in request.base:
        yield Finding(("request", "url"), "userinfo", "")


def patched(
    document: Mapping[str, Json], before: Mapping[str, Json], after: Mapping[str, Json]
) -> dict[str, Json]:
    """The document with the differences between two encodings of the interaction applied.

    A document may lack fields, or hold fields in a form that encoding would not write.
    """
    result = dict(document)
    for name, new in after.items():
        old, own = before.get(name), document.get(name)
        if name not in document or old == new:
            continue
        match (own, old, new):
            case (dict(), dict(), dict()) if name in _MESSAGES:
                result[name] = _patch_message(own, old, new)
            case _:
                result[name] = new
    return result


def _patch_message(
    own: dict[str, Json], before: dict[str, Json], after: dict[str, Json]
) -> dict[str, Json]:
    grouped = {name for group in _GROUPS for name in group}
    alone = [(name,) for name in {**before, **after} if name not in grouped]
    for group in (*_GROUPS, *alone):
        new = {name: after[name] for name in group if name in after}
        if new != {name: before[name] for name in group if name in before}:
            own = _replace_group(own, group, new)
    return own


def _replace_group(
    own: dict[str, Json], group: tuple[str, ...], new: dict[str, Json]
) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for name, value in own.items():
        # The whole group in the position of the first field.
        result |= new if name in group else {name: value}
    return result | new
