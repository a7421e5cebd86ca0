"""A recording as a cassette file and its journal would hold it."""

from tapeway.core.guard import Sighted
from tapeway.core.model import ForeignInteraction, Interaction, Recording
from tapeway.errors import StoreError
from tapeway.formats import native
from tapeway.formats.fault import FormatFault, shown
from tapeway.stores.journal_text import Entry, payload


def document_of(interaction: Interaction | ForeignInteraction) -> native.Document:
    """The document. Raises StoreError for a recording that no cassette could give back."""
    try:
        return native.encode(interaction)
    except FormatFault as fault:
        raise StoreError(f"this answer cannot be kept in a cassette: {fault}") from fault


def payload_of(recording: Recording) -> bytes:
    """What the journal holds, checked. Raises StoreError like `document_of`, and for a credential."""
    document = document_of(recording.interaction)
    try:
        text = payload(Entry(document, recording.supersedes))
    except (UnicodeEncodeError, TypeError, RecursionError) as exc:
        raise StoreError("this answer cannot be kept in a cassette: it is no JSON") from exc
    if recording.check is not None:
        try:
            recording.check(recording.interaction, document, text)
        except Sighted as leak:
            raise StoreError(_refusal(leak.secret.label, shown(leak.place))) from None
    return text


def _refusal(label: str, place: str) -> str:
    return (
        f"nothing was recorded: the credential '{label}' would still stand in {place or 'the file'} "
        "of the recording; keep it out of there, or ask in mode passthrough, which records nothing"
    )
