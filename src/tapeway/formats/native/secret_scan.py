"""What an interaction of a cassette would show if it were committed, and the interaction without it.

Whatever redaction would replace is a finding, so that there is one opinion on what a secret is. What
it leaves is searched once more: every string and name, and inside what is encoded.

A document changed only where a change says so: whatever else stands in it stays as it stands.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tapeway.core.http.content_codings import (
    content_coding,
    decode_leniently,
    decoder,
    readable_request,
    readable_response,
)
from tapeway.core.http.routing import without_userinfo
from tapeway.core.json_text import Json, Pointer, dump, parse
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead
from tapeway.core.redaction import credentials
from tapeway.core.redaction.findings import (
    ENCODED,
    Finding,
    decode_base64,
    find_replaced,
    masked_prefix,
    seen,
)
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.leak_guard import HIDDEN_NAME
from tapeway.core.redaction.patterns import MAX_LENGTH
from tapeway.core.redaction.redactor import Redactor
from tapeway.formats.fields import Document
from tapeway.formats.native import bodies, chunk_times, header_map, http_exchange
from tapeway.formats.native.document import BYTES_NAME, decode, encode

_MESSAGES = ("request", "response", http_exchange.PARTIAL)

# Fields that say one thing together.
_GROUPS = (bodies.NAMES, header_map.NAMES, chunk_times.NAMES)


def patched(
    document: Mapping[str, Json], before: Mapping[str, Json], after: Mapping[str, Json]
) -> dict[str, Json]:
    """The document of an interaction with what differs between two encodings of it.

    A document may leave out much and say things otherwise than it would be encoded.
    """
    result = dict(document)
    for name, new in after.items():
        old, own = before.get(name), document.get(name)
        if name not in document or old == new:
            continue
        if name in _MESSAGES and all(isinstance(each, dict) for each in (old, new, own)):
            result[name] = _message(_object(own), _object(old), _object(new))
        else:
            result[name] = new
    return result


def _message(
    own: dict[str, Json], before: dict[str, Json], after: dict[str, Json]
) -> dict[str, Json]:
    grouped = {name for group in _GROUPS for name in group}
    alone = [(name,) for name in {**before, **after} if name not in grouped]
    for group in (*_GROUPS, *alone):
        new = {name: after[name] for name in group if name in after}
        if new != {name: before[name] for name in group if name in before}:
            own = _instead(own, group, new)
    return own


def _instead(own: dict[str, Json], group: tuple[str, ...], new: dict[str, Json]) -> dict[str, Json]:
    result: dict[str, Json] = {}
    for name, value in own.items():
        # All of the group where its first one stood.
        result |= new if name in group else {name: value}
    return result | new


def _object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A document without its secrets, what was replaced, and what redaction could not reach."""

    document: Document
    replaced: tuple[Finding, ...] = ()
    left: tuple[Finding, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that the document showed as it stood, each place once."""
        places = {each.place for each in self.replaced}
        return (*self.replaced, *[each for each in self.left if each.place not in places])


class SecretScanner:
    """Looks at one cassette, whose `run_id` makes its placeholders what they are."""

    def __init__(self, run_id: str, known: KnownValues) -> None:
        self._run_id = run_id
        self._known = known

    def interaction(self, item: AnyInteraction, document: Document) -> ScanResult:
        """What its document shows. One that shows nothing is left exactly as it stands."""
        if isinstance(item, ForeignInteraction):
            return self.document(document)
        shown = [
            *credentials.header_credentials(item.request.headers),
            *credentials.target_credentials(item.request.target),
            *credentials.userinfo_credentials(item.request.base),
            *credentials.response_credentials(item.response.headers),
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
        named = Redactor(self._run_id, shown, self._known).body_secrets(plain.request)
        redactor = Redactor(self._run_id, [*shown, *named], self._known)
        mended = encode(_redacted(plain, redactor))
        replaced = (*_userinfo(item.request), *find_replaced(encode(plain), mended))
        secrets = KnownValues(redactor.secrets)
        inside = tuple(_inside(item, secrets))
        if replaced:
            mended = patched(document, encode(item), mended)
            return ScanResult(mended, replaced, (*sightings(mended, secrets), *inside))
        left = tuple(sightings(document, secrets))
        # A stale copy of what was edited by hand is gone once it is written anew.
        if left and len(stays := tuple(sightings(mended, secrets))) < len(left):
            gone = tuple([each for each in left if each not in stays])
            mended = patched(document, {}, mended)
            return ScanResult(mended, gone, (*stays, *inside))
        return ScanResult(document, (), (*left, *inside))

    def document(self, document: Document) -> ScanResult:
        """The same for JSON of any kind, such as what a cassette says about itself."""
        redactor = Redactor(self._run_id, (), self._known)
        mended = _mended(document, redactor)
        assert isinstance(mended, dict)  # noqa: S101 - only strings and numbers are replaced
        if "request" in mended:
            # Names mean more in what was asked.
            asked = _mended(mended["request"], redactor, in_response=False)
            mended = {**mended, "request": asked}
        replaced = tuple(find_replaced(document, mended))
        return ScanResult(
            mended if replaced else document, replaced, tuple(sightings(mended, self._known))
        )

    def body(self, place: Pointer, headers: Headers, pieces: Iterable[bytes]) -> Iterator[Finding]:
        """What a large body shows that lies in a file, with its content coding taken off."""
        opened = decoder(content_coding(headers), limit=_UNBOUNDED)
        longest = max([len(each.value) for each in self._known.secrets], default=0)
        overlap = max(MAX_LENGTH, _CHARACTER * longest)
        before = b""
        start, told = 0, -1
        for piece in pieces:
            window = before + (piece if opened is None else opened.feed(piece))
            for each in seen(window, self._known):
                # One that came to its end only now may have been told already.
                if start + each.offset > told:
                    told = start + each.offset
                    text = window[each.offset : each.offset + each.length]
                    yield Finding(place, each.label, masked_prefix(text))
            before = window[-overlap:]
            start += len(window) - len(before)


_UNBOUNDED = 1 << 62

# How many characters may stand for one, behind eight backslashes.
_CHARACTER = 13
_BASE64 = ENCODED | {"raw_b64"}


def decode_redacted(item: AnyInteraction, document: Document) -> AnyInteraction:
    """What a document says that was made of this interaction's, with its large bodies."""
    mended = decode(document, item.index)
    if isinstance(mended, Interaction) and isinstance(item, Interaction):
        return replace(
            mended,
            request=replace(mended.request, file=item.request.file),
            response=replace(mended.response, file=item.response.file),
        )
    return mended


def sightings(value: Json, known: KnownValues, at: Pointer = ()) -> Iterator[Finding]:
    """Each string, number or name of a document that shows a known value or shape."""
    if isinstance(value, dict):
        for name, inner in value.items():
            in_name = list(_seen(name.encode(), known, (*at, HIDDEN_NAME)))
            yield from in_name
            yield from sightings(inner, known, (*at, HIDDEN_NAME if in_name else name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from sightings(inner, known, (*at, index))
    elif isinstance(value, str):
        plain = decode_base64(value) if at and at[-1] in _BASE64 else None
        yield from _seen(value.encode() if plain is None else plain, known, at)
    elif isinstance(value, int) and value > 0:
        # Behind a minus the digits of a secret are another value.
        yield from _seen(dump(value), known, at)


def _seen(text: bytes, known: KnownValues, place: Pointer) -> Iterator[Finding]:
    for each in seen(text, known):
        yield Finding(
            place, each.label, masked_prefix(text[each.offset : each.offset + each.length])
        )


def _inside(item: Interaction, known: KnownValues) -> Iterator[Finding]:
    """What can be read of bodies whose coding cannot be taken off."""
    for name, message in (("request", item.request), ("response", item.response)):
        if (coding := content_coding(message.headers)) and _stays_coded(
            message, item.request.method
        ):
            yield from _seen(decode_leniently(coding, message.body), known, (name, "body"))


def _stays_coded(message: Request | Response, method: str) -> bool:
    if isinstance(message, Request):
        return readable_request(message) is message
    return readable_response(message, method) is message


def _redacted(item: Interaction, redactor: Redactor) -> Interaction:
    request = redactor.request(item.request)
    metadata = _mended(dict(item.metadata), redactor)
    usage = None if item.usage is None else _mended(dict(item.usage), redactor)
    return replace(
        item,
        # All fields are kept, also those that a recording of ours would not hold.
        request=replace(request, headers=_sent(item.request.headers, redactor)),
        response=redactor.response(item.response),
        metadata=metadata if isinstance(metadata, dict) else {},
        usage=usage if isinstance(usage, dict) else None,
        tags=tuple([redactor.value(tag.encode()).decode() for tag in item.tags]),
        failure=item.failure
        and replace(item.failure, message=redactor.value(item.failure.message.encode()).decode()),
    )


def _sent(headers: Headers, redactor: Redactor) -> Headers:
    answer = redactor.response(Response(ResponseHead(200, headers=headers)))
    return tuple([(name, _cookies(name, value, redactor)) for name, value in answer.headers])


def _cookies(name: bytes, value: bytes, redactor: Redactor) -> bytes:
    if name.lower() != b"cookie":
        return value
    # A cookie that is sent looks like one that is set, without attributes.
    pairs = [(b"set-cookie", pair) for pair in value.split(b";")]
    answer = redactor.response(Response(ResponseHead(200, headers=tuple(pairs))))
    return b";".join([pair for _, pair in answer.headers])


def _mended(value: Json, redactor: Redactor, *, in_response: bool = True) -> Json:
    text = dump(value)
    if BYTES_NAME.encode() in text:
        # A placeholder amid base64 would be no base64 any more.
        value = _with_octets(value, redactor, in_response=in_response)
        text = dump(value)
    mended = redactor.message(text, in_response=in_response)
    return value if mended == text else parse(mended)


def _with_octets(value: Json, redactor: Redactor, *, in_response: bool) -> Json:
    if isinstance(value, dict):
        said = value.get(BYTES_NAME)
        octets = decode_base64(said) if isinstance(said, str) and len(value) == 1 else None
        if octets is not None:
            mended = redactor.message(octets, in_response=in_response)
            return (
                {BYTES_NAME: base64.b64encode(mended).decode("ascii")}
                if mended != octets
                else value
            )
        return {
            k: _with_octets(each, redactor, in_response=in_response) for k, each in value.items()
        }
    if isinstance(value, list):
        return [_with_octets(each, redactor, in_response=in_response) for each in value]
    return value


def _userinfo(request: Request) -> Iterator[Finding]:
    # Nothing stands for it: whoever asks is told its own.
    if "@" in request.base:
        yield Finding(("request", "url"), "userinfo", "")
