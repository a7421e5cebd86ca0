"""Interactions and cassettes as the text that stores keep, checked before they are written."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from tapeway.core.json_text import Json, NotJson, check_json
from tapeway.core.model.cassette import (
    NOT_READ,
    CassetteHead,
    ReadBodies,
    Recording,
    StoredCassette,
)
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction
from tapeway.core.redaction.leak_guard import LeakFound, leak_error
from tapeway.errors import StoreError
from tapeway.formats.cassette_file import Serializer
from tapeway.formats.errors import FormatFault, pointer_text
from tapeway.formats.fields import Document
from tapeway.formats.native import http_exchange
from tapeway.formats.native.document import encode, numbered

_DOCUMENT, _META = 3, 3
"""How deep a document and a head's `meta` are nested in a cassette file or a journal."""
_NO_HEAD = CassetteHead("", "")
_SMALL = 2**53
_NO_JSON = (UnicodeEncodeError, TypeError, RecursionError)


def document_of(
    interaction: AnyInteraction, read: ReadBodies = NOT_READ, *, for_dump: bool = False
) -> Document:
    """The document. Raises StoreError for a recording that no cassette could give back.

    One `for_dump` may have texts of JSON in it, which nothing else than `dump` can write.
    """
    try:
        if isinstance(interaction, ForeignInteraction):
            check_json(interaction.document, depth=_DOCUMENT)
            return encode(interaction)
        for values in (interaction.usage, interaction.metadata):
            if values and not _is_plain(values):
                check_json(values, depth=_DOCUMENT + 1)
        return http_exchange.encode(interaction, read, for_dump=for_dump)
    except FormatFault as fault:
        raise StoreError(f"this answer cannot be kept in a cassette: {fault}") from fault
    except NotJson as exc:
        raise StoreError(f"this cannot be kept in a cassette: {exc}") from exc


def _is_plain(values: Mapping[str, Json]) -> bool:
    """Whether these are ASCII texts, small numbers and nulls, as nearly always."""
    texts = [*values]
    for value in values.values():
        if type(value) is str:
            texts.append(value)
        elif value is not None and (type(value) is not int or not 0 <= value < _SMALL):
            return False
    try:
        return "".join(texts).isascii()
    except TypeError:
        # A name that is no text.
        return False


def checked_documents(serializer: Serializer, cassette: StoredCassette) -> Iterator[Document]:
    """The documents of a cassette, written one after the other and not as a whole.

    Raises StoreError for a document that could not be read again.
    """
    serialize_cassette(serializer, cassette.head, ())
    for interaction in cassette.interactions:
        document = document_of(interaction)
        serialize_cassette(serializer, _NO_HEAD, (document,))
        yield document


def serialize_cassette(
    serializer: Serializer, head: CassetteHead, documents: Iterable[Document]
) -> bytes:
    """The cassette's file. Raises StoreError for a document that could not be read again."""
    return b"".join(cassette_pieces(serializer, head, documents))


def cassette_pieces(
    serializer: Serializer, head: CassetteHead, documents: Iterable[Document]
) -> Iterator[bytes]:
    """The cassette's file in pieces, which need not fit into memory."""
    try:
        check_json(head.meta, depth=_META)
        yield from serializer.pieces(head, documents)
    except FormatFault as fault:
        raise StoreError(f"the cassette cannot be written: {fault}") from fault
    except (NotJson, *_NO_JSON) as exc:
        raise StoreError("the cassette cannot be written: it holds what is no JSON") from exc


def serialize_recording(recording: Recording, write: Callable[[Document], bytes]) -> bytes:
    """A recording's document, written by `write`, with `dump`, and checked. Raises StoreError."""
    try:
        interaction = recording.interaction
        document = document_of(interaction, recording.read, for_dump=True)
        if isinstance(interaction, ForeignInteraction):
            # The document may carry a different index.
            document = numbered(interaction.index, document)
        text = write(document)
    except StoreError as exc:
        # The message may quote the response, and with it a secret.
        _check(recording, {}, exc.message.encode("utf-8", "backslashreplace"))
        raise
    except _NO_JSON as exc:
        raise StoreError("this answer cannot be kept in a cassette: it is no JSON") from exc
    _check(recording, document, text)
    return text


def _check(recording: Recording, document: Document, text: bytes) -> None:
    if recording.check is None:
        return
    try:
        recording.check(recording.interaction, document, text)
    except LeakFound as leak:
        place = pointer_text(leak.place) or "an error about it"
        raise leak_error(leak.secret, place, leak.remedy) from None
