"""Finds secrets in every version of cassettes in git, also of removed cassettes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tapeway.cli import terminal
from tapeway.cli.cassette_arguments import ASSETS, is_address, looks_like_cassette
from tapeway.cli.comparison.git import FileVersion, repository_text, versions
from tapeway.cli.secrets import CassetteScan, FoundSecret, Searched, with_taught
from tapeway.core.model.messages import BodyFile
from tapeway.core.redaction.known_values import KnownValues
from tapeway.errors import ConfigError, StoreError
from tapeway.formats.cassette_file import SERIALIZER_BY_SUFFIX
from tapeway.formats.errors import FormatFault
from tapeway.formats.native.secret_scan import SecretScanner
from tapeway.settings.options import Settings
from tapeway.stores.opening import open_store

_SHOWN_COMMIT = 12


def scan_history(arguments: Sequence[str], settings: Settings, known: KnownValues) -> Searched:
    """What all versions show, each version once.

    A version that is no valid cassette is named and searched as a text: nobody can correct history.
    Raises
    ConfigError outside a repository, and for what is in no folder.
    """
    searched = Searched()
    for root, paths in _places(arguments, settings.store):
        for version in versions(root, paths):
            text = repository_text(root, version.blob)
            if not looks_like_cassette(PurePosixPath(version.path).suffix, text):
                continue
            try:
                searched += _searched(root, version, text, known)
            except (FormatFault, StoreError, ConfigError) as exc:
                terminal.print_error(f"{_shown(version)}: {exc}; its text was searched as it is")
                searched += _as_text(version, text, known)
    return searched


def _places(arguments: Sequence[str], url: str) -> Iterator[tuple[Path, list[str]]]:
    """The folders to ask git in, each with the paths below it."""
    for argument in arguments:
        path = Path(argument)
        if is_address(argument):
            raise ConfigError(f"{argument}: only the cassettes of a folder have a history in git")
        if path.is_dir():
            yield path, ["."]
        elif path.suffix in SERIALIZER_BY_SUFFIX:
            # The file may be deleted, and so may the folder.
            yield _existing(path.parent), [str(path.absolute())]
        else:
            yield _folder(url), [f"./{argument}{ending}" for ending in SERIALIZER_BY_SUFFIX]
    if not arguments:
        yield _folder(url), ["."]


def _folder(url: str) -> Path:
    store = open_store(url)
    if (folder := store.facts.folder) is None:
        raise ConfigError(f"{store.url}: only the cassettes of a folder have a history in git")
    if not folder.is_dir():
        raise ConfigError(f"{folder}: there is no such folder; see --store")
    return folder


def _existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())


def _searched(root: Path, version: FileVersion, text: bytes, known: KnownValues) -> Searched:
    path = PurePosixPath(version.path)
    beside = path.with_suffix(ASSETS)

    def content(digest: str) -> bytes:
        return repository_text(root, f"{version.commit}:./{beside}/sha256-{digest}")

    def body(file: BodyFile) -> Iterable[bytes]:
        return (content(file.digest),)

    serializer = SERIALIZER_BY_SUFFIX[path.suffix]
    parsed = serializer.read(text)
    items = serializer.decode_all(text, parsed, lambda digest: content(digest.partition(":")[2]))

    def scan(known: KnownValues) -> CassetteScan:
        scanned = CassetteScan(_shown(version), parsed.head, known, body)
        for (_, document), item in zip(parsed.documents, items, strict=True):
            scanned.redact(item, document)
        return scanned

    scanned = scan(known)
    if scanned.taught:
        scanned = scan(with_taught(known, scanned))
    return scanned.searched(
        [replace(secret, shown=version.path, commit=version.commit) for secret in scanned.found]
    )


def _as_text(version: FileVersion, text: bytes, known: KnownValues) -> Searched:
    findings = SecretScanner("", known).body((), (), (text,))
    secrets = [FoundSecret(version.path, finding, commit=version.commit) for finding in findings]
    return Searched(tuple(secrets), cassettes=1)


def _shown(version: FileVersion) -> str:
    return f"{version.commit[:_SHOWN_COMMIT]}:{version.path}"
