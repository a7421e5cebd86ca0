"""A cassette on its way from one place and format to another."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from tapeway.cli import foreign_file
from tapeway.cli.findings import Found
from tapeway.cli.places import Place, place
from tapeway.core.json_text import dump
from tapeway.core.known_values import KnownValues
from tapeway.core.model import (
    BodyFile,
    CassetteHead,
    ForeignInteraction,
    Interaction,
    ResponseChunk,
    StoredCassette,
)
from tapeway.core.replacements import Finding
from tapeway.core.routing import valid_cassette_name
from tapeway.errors import ConfigError, StoreError
from tapeway.formats import kinds, native
from tapeway.formats.call import keyed
from tapeway.formats.kinds import TAPEWAY, Kind
from tapeway.formats.loss import Loss
from tapeway.inspection import Inspector
from tapeway.ports import BodyKeeper

Item = Interaction | ForeignInteraction
_PIECE = 256 * 1024
REPLACED, LEFT = "replaced", "still there"


@dataclass(frozen=True, slots=True)
class End:
    """Where a conversion begins or ends: a file of another tool, or a cassette in a store."""

    written: str
    kind: Kind

    @property
    def path(self) -> Path:
        return Path(self.written)


@dataclass(slots=True)
class Converted:
    """What became of a cassette."""

    total: int = 0
    kept: int = 0
    digest: str = ""
    losses: list[Loss] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)


def source(written: str, name: str | None) -> End:
    """The cassette or file to read, its format taken from its text where none is given.

    Raises ConfigError.
    """
    if name is not None:
        return End(written, _named(name, written))
    path = Path(written)
    if not path.is_file():
        return End(written, TAPEWAY)
    kind = foreign_file.kind_of(path)
    if kind is None and path.suffix in TAPEWAY.suffixes:
        # What is wrong with it is told by whoever reads cassettes.
        kind = TAPEWAY
    if kind is None:
        raise ConfigError(
            f"{written}: no format is known that looks like this; {_choice('--from')}"
        )
    return End(written, kind)


def target(written: str, name: str | None) -> End:
    """The cassette or file to write, its format taken from its suffix where none is given.

    Raises ConfigError.
    """
    if name is not None:
        return End(written, _named(name, written))
    kind = kinds.of_suffix(Path(written).suffix)
    if kind is None and not valid_cassette_name(written):
        raise ConfigError(f"{written}: no format is known for this suffix; {_choice('--to')}")
    return End(written, kind or TAPEWAY)


async def convert(
    one: End,
    other: End,
    store: str,
    known: KnownValues | None,
    fresh: CassetteHead,
    *,
    force: bool,
) -> Converted:
    """Read one end and write the other, verified; secrets are replaced where `known` is given.

    Raises ConfigError, StoreError and its children; a file is then as it was.
    """
    if other.kind is not TAPEWAY and not force and other.path.exists():
        raise foreign_file.taken(other.written)
    done = Converted()
    if one.kind is TAPEWAY:
        async with place(one.written, store) as found:
            await _pass_on(await found.load(), one, other, store, known, done, force=force)
    else:
        text = foreign_file.content(one.path)
        loaded = foreign_file.read(one.path, text, one.kind, fresh)
        done.losses += loaded.losses
        await _pass_on(loaded.cassette, one, other, store, known, done, force=force)
    return done


async def _pass_on(
    cassette: StoredCassette,
    one: End,
    other: End,
    store: str,
    known: KnownValues | None,
    done: Converted,
    *,
    force: bool,
) -> None:
    lost = sum(1 for loss in done.losses if loss.left_out)
    done.total = len(cassette.interactions) + lost
    if other.kind is not TAPEWAY:
        cassette = replace(cassette, interactions=tuple(map(_inlined, cassette.interactions)))
    if known is not None:
        cassette = _redacted(cassette, one, known, done.found)
    if other.kind is TAPEWAY:
        await _into_store(cassette, other, store, done, force=force)
    else:
        _into_file(cassette, other, done, force=force)


def _into_file(cassette: StoredCassette, other: End, done: Converted, *, force: bool) -> None:
    written = foreign_file.saved(other.kind, cassette)
    done.losses += written.losses
    kept = [
        item for index, item in enumerate(cassette.interactions) if index not in written.left_out
    ]

    def check(text: bytes) -> None:
        again = foreign_file.read(other.path, text, other.kind, cassette.head).cassette
        _verify(kept, again, other, done)

    foreign_file.write(other.path, written.text, check, force=force)


async def _into_store(
    cassette: StoredCassette, other: End, store: str, done: Converted, *, force: bool
) -> None:
    async with place(other.written, store) as to:
        if await to.store.load(to.name, writable=True) is not None and not force:
            raise foreign_file.taken(to.shown)
        items = [await _kept(to, item) for item in cassette.interactions]
        await to.store.save(to.name, replace(cassette, interactions=tuple(items)))
        _verify(items, await to.load(), other, done)


def _verify(kept: list[Item], again: StoredCassette, other: End, done: Converted) -> None:
    wanted, found = [_digest(each) for each in kept], [_digest(each) for each in again.interactions]
    if wanted != found:
        pairs = zip(wanted, found, strict=False)
        place = next((at for at, (one, two) in enumerate(pairs) if one != two), len(found))
        raise StoreError(
            f"{other.written}: interactions[{place}] does not come back as it was written; "
            "nothing can be relied on there, and the source is as it was"
        )
    done.kept = len(found)
    done.digest = hashlib.sha256("".join(found).encode()).hexdigest()


def _digest(item: Item) -> str:
    # What a recording says of itself settles once it is read and written.
    document = native.encode(native.decode(native.encode(item), 0))
    return hashlib.sha256(dump({**document, "index": 0})).hexdigest()


def _redacted(
    cassette: StoredCassette, one: End, known: KnownValues, found: list[Found]
) -> StoredCassette:
    inspector = Inspector(cassette.head.run_id, known)
    meta = inspector.document(dict(cassette.head.meta))
    _tell(one, ("meta",), meta.replaced, REPLACED, found)
    _tell(one, ("meta",), meta.left, LEFT, found)
    items: list[Item] = []
    for index, item in enumerate(cassette.interactions):
        at = ("interactions", index)
        document = native.encode(item)
        seen = inspector.interaction(item, document)
        _tell(one, at, seen.replaced, REPLACED, found)
        _tell(one, at, (*seen.left, *_in_files(inspector, item)), LEFT, found)
        items.append(_mended(item, seen.document, one) if seen.document is not document else item)
    head = replace(cassette.head, meta=meta.document)
    return StoredCassette(head, tuple(items))


def _mended(item: Item, document: native.Document, one: End) -> Item:
    mended = native.decode(document, item.index)
    if isinstance(mended, Interaction) and isinstance(item, Interaction):
        # A key taken before would be a hash over the secret.
        again = mended if one.kind is TAPEWAY else keyed(mended)
        return replace(
            again,
            request=replace(again.request, file=item.request.file),
            response=replace(again.response, file=item.response.file),
        )
    return mended


def _tell(
    one: End, at: tuple[str | int, ...], seen: Iterable[Finding], deed: str, found: list[Found]
) -> None:
    found.extend(
        [Found(one.written, replace(each, place=(*at, *each.place)), deed) for each in seen]
    )


def _in_files(inspector: Inspector, item: Item) -> Iterator[Finding]:
    if isinstance(item, Interaction):
        for name, message in (("request", item.request), ("response", item.response)):
            if message.file is not None:
                yield from inspector.body(
                    (name, "body_file"), message.headers, _pieces(message.file)
                )


async def _kept(to: Place, item: Item) -> Item:
    if isinstance(item, ForeignInteraction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=await _copied(to, request.file))
    if response.file is not None:
        response = replace(response, file=await _copied(to, response.file))
    return replace(item, request=request, response=response)


async def _copied(to: Place, file: BodyFile) -> BodyFile:
    if not isinstance(to.store, BodyKeeper):
        raise StoreError(f"{to.store.url} takes no large bodies, and this cassette has some")
    kept = await to.store.keep(to.name, _pieces(file))
    if kept.digest != file.digest:
        raise StoreError(f"{file.path} was changed since it was recorded: restore it")
    return replace(kept, parts=file.parts)


def _inlined(item: Item) -> Item:
    if isinstance(item, ForeignInteraction):
        return item
    request, response = item.request, item.response
    if request.file is not None:
        request = replace(request, file=None, body=b"".join(_pieces(request.file)))
    if response.file is not None:
        data = memoryview(b"".join(_pieces(response.file)))
        chunks, start = [], 0
        for at_ms, length in response.cuts:
            chunks.append(ResponseChunk(bytes(data[start : start + length]), at_ms))
            start += length
        response = replace(response, file=None, cuts=type(response.cuts)(), chunks=tuple(chunks))
    return replace(item, request=request, response=response)


def _pieces(file: BodyFile) -> Iterator[bytes]:
    try:
        with Path(file.path).open("rb") as opened:
            while piece := opened.read(_PIECE):
                yield piece
    except OSError as exc:
        raise StoreError(f"{file.path}: cannot be read ({exc.strerror})") from exc


def _named(name: str, written: str) -> Kind:
    kind = kinds.named(name, Path(written).suffix)
    if kind is None:
        raise ConfigError(f"there is no format '{name}': known are {_names()}")
    return kind


def _choice(flag: str) -> str:
    return f"give {flag} one of {_names()}"


def _names() -> str:
    return ", ".join([kind.name for kind in kinds.KINDS])
