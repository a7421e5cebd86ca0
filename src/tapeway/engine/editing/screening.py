"""What is brought in is looked at for secrets, as `tapeway cassette redact` looks at a cassette."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tapeway.body_files import pieces
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import AdminError
from tapeway.formats.errors import pointer_text
from tapeway.formats.native.document import encode
from tapeway.formats.native.secret_scan import ScanResult, SecretScanner, decode_redacted

Secrets = Literal["refuse", "redact", "keep"]
"""What to do where something shows a secret: `keep` does not even look."""

_NAMED = 20


@dataclass(frozen=True, slots=True)
class Screened:
    """What may be kept, and how many places were replaced in it."""

    head: CassetteHead
    items: tuple[AnyInteraction, ...]
    replaced: int = 0


def screened(
    head: CassetteHead,
    items: Sequence[AnyInteraction],
    known: KnownValues,
    secrets: Secrets,
    *,
    meta: bool,
) -> Screened:
    """The same without what shows a secret; goes through all of it, so call it in a thread.

    `meta` says whether the head is brought in too. Raises AdminError (422) that names the places:
    those that may not stay, or in large bodies cannot be replaced.
    """
    if secrets == "keep":
        return Screened(head, tuple(items))
    scanner = SecretScanner(head.run_id, known)
    replaced: list[Finding] = []
    left: list[Finding] = []

    def note(seen: ScanResult, at: Pointer) -> None:
        replaced.extend([replace(each, place=(*at, *each.place)) for each in seen.replaced])
        left.extend([replace(each, place=(*at, *each.place)) for each in seen.left])

    found: list[AnyInteraction] = []
    for number, item in enumerate(items):
        document = encode(item)
        seen = scanner.interaction(item, document)
        note(seen, ("interactions", number))
        note(ScanResult(document, (), tuple(_in_files(scanner, item))), ("interactions", number))
        found.append(item if seen.document is document else decode_redacted(item, seen.document))
    if meta:
        about = scanner.document(dict(head.meta))
        note(about, ("meta",))
        head = replace(head, meta=about.document)
    _refuse(left if secrets == "redact" else [*replaced, *left], secrets)
    return Screened(head, tuple(found), len(replaced))


def _refuse(found: Sequence[Finding], secrets: Secrets) -> None:
    if not found:
        return
    places = [f"{pointer_text(each.place)} ({each.kind})" for each in found[:_NAMED]]
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    advice = (
        "they cannot be replaced: take them out yourself"
        if secrets == "redact"
        else "have them replaced with ?secrets=redact, or kept as they are with ?secrets=keep"
    )
    raise AdminError(
        f"this shows secrets, so nothing was kept: {', '.join(places)}{more}; {advice}",
        status=422,
        code="shows_secrets",
    )


def _in_files(scanner: SecretScanner, item: AnyInteraction) -> Iterator[Finding]:
    if isinstance(item, Interaction):
        for name, message in (("request", item.request), ("response", item.response)):
            if message.file is not None:
                place: Pointer = (name, "body_file")
                yield from scanner.body(place, message.headers, pieces(message.file))
