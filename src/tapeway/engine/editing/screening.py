"""Searches imported interactions for secrets, as `tapeway cassette redact` searches a cassette."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tapeway.body_files import body_pieces
from tapeway.cooperative import Yielding
from tapeway.core.json_text import Pointer
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import AnyInteraction, Interaction
from tapeway.core.redaction.findings import Finding
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import AdminError
from tapeway.formats.errors import pointer_text
from tapeway.formats.native.document import encode
from tapeway.formats.native.secret_scan import ScanResult, SecretScanner, decode_changed

Secrets = Literal["refuse", "redact", "keep"]
"""What to do where a secret is found; `keep` does not search."""

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class ScreenedItems:
    """Interactions that may be stored, and the number of secrets replaced."""

    head: CassetteHead
    items: tuple[AnyInteraction, ...]
    replaced: int = 0


def screen(
    head: CassetteHead,
    items: Sequence[AnyInteraction],
    known: KnownValues,
    secrets: Secrets,
    *,
    meta: bool,
    first: int = 0,
) -> ScreenedItems:
    """The interactions without secrets. Reading all of them takes long: use a thread.

    `meta` says whether the metadata is imported too, `first` is the position of the first
    interaction. Raises AdminError (422), which names the refused secrets, and secrets in large
    bodies, which cannot be replaced.
    """
    if secrets == "keep":
        return ScreenedItems(head, tuple(items))
    scanner = SecretScanner(head.run_id, known)
    replaced: list[Finding] = []
    left: list[Finding] = []

    def note(seen: ScanResult, at: Pointer) -> None:
        replaced.extend(
            [replace(finding, place=(*at, *finding.place)) for finding in seen.replaced]
        )
        left.extend([replace(finding, place=(*at, *finding.place)) for finding in seen.left])

    interactions: list[AnyInteraction] = []
    yielding = Yielding()
    for number, item in enumerate(items, first):
        yielding.step()
        document = encode(item)
        seen = scanner.interaction(item, document)
        note(seen, ("interactions", number))
        note(ScanResult(document, (), tuple(_in_files(scanner, item))), ("interactions", number))
        interactions.append(
            item if seen.document is document else decode_changed(item, seen.document)
        )
    values = {secret.value for secret in known.secrets}
    if len(items) > 1 and any(secret.value not in values for secret in scanner.taught):
        # An interaction may show what a later one has taught.
        known = KnownValues([*scanner.taught, *known.secrets], known.allowed)
        return screen(head, items, known, secrets, meta=meta, first=first)
    if meta:
        about = scanner.document(dict(head.meta))
        note(about, ("meta",))
        head = replace(head, meta=about.document)
    _refuse(left if secrets == "redact" else [*replaced, *left], secrets)
    return ScreenedItems(head, tuple(interactions), len(replaced))


def _refuse(findings: Sequence[Finding], secrets: Secrets) -> None:
    if not findings:
        return
    places = [
        f"{pointer_text(finding.place)} ({finding.kind})" for finding in findings[:_MOST_NAMED]
    ]
    more = f" and {len(findings) - _MOST_NAMED} more" if len(findings) > _MOST_NAMED else ""
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
                yield from scanner.body(place, message.headers, body_pieces(message.file))
