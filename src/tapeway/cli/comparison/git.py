"""Cassettes in git: their text in a revision, their new names, conflicts."""

import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from tapeway.cli.cassette_arguments import ASSETS
from tapeway.core.http.routing import valid_cassette_name
from tapeway.errors import ConfigError
from tapeway.formats.cassette_file import SERIALIZER_BY_SUFFIX
from tapeway.formats.errors import FormatFault
from tapeway.stores.file.paths import JOURNAL, find_names


class FileVersion(NamedTuple):
    """What a commit has in a path, which is relative to a folder."""

    commit: str
    path: str
    blob: str


class Revision:
    """The cassettes of a folder as they are in a revision of its git repository.

    Raises ConfigError where the folder is in none, or git knows no such revision.
    """

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.root = root
        self._commit = _commit(root, name)
        listed = run_git(root, "ls-tree", "-r", "-z", "--name-only", self._commit)
        self.files = dict(_cassettes(listed))
        """The file of each cassette, by its name."""

    def text(self, name: str) -> bytes:
        """The text of a cassette's file."""
        return repository_text(self.root, f"{self._commit}:./{self.files[name]}")

    def large_bodies(self, name: str) -> Iterator[tuple[str, bytes]]:
        """The large bodies of a cassette that the folder no longer has, by the names of their files."""
        folder = f"{name}{ASSETS}"
        listed = run_git(self.root, "ls-tree", "-z", "--name-only", self._commit, f"./{folder}/")
        for part in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
            if not (self.root / part).exists():
                text = repository_text(self.root, f"{self._commit}:./{part}")
                yield PurePosixPath(part).name, text

    def changed(self) -> dict[str, str]:
        """The cassettes that may differ from the folder: names now, and names before.

        Only a moved cassette has a new name. A cassette of a single side has the name on this side.
        """
        listed = run_git(
            self.root, "diff", "--name-only", "-z", "--relative", "--no-ext-diff", self._commit
        )
        present = set(find_names(self.root))
        journals = {name for name in present if (self.root / f"{name}{JOURNAL}").exists()}
        names = {name for name, _ in _cassettes(listed)}
        moved = self._renamed_cassettes(
            sorted(self.files.keys() - present), sorted(present - self.files.keys())
        )
        names |= journals | (present ^ self.files.keys())
        return {name: moved.get(name, name) for name in sorted(names - {*moved.values()})}

    def _renamed_cassettes(self, removed: Sequence[str], added: Sequence[str]) -> dict[str, str]:
        """The new names of cassettes that are gone, and the old: more than half of their calls are there."""
        before = {name: _keys(self.text(name), self.files[name]) for name in removed if added}
        renamed: dict[str, str] = {}
        for name in added if removed else ():
            files = [self.root / f"{name}{ending}" for ending in SERIALIZER_BY_SUFFIX]
            file = next(filter(Path.is_file, files), None)
            now = _keys(file.read_bytes(), file.name) if file else Counter[str]()
            left = [old for old in before if old not in renamed.values()]
            common = {old: (before[old] & now).total() for old in left}
            near = max(common, key=common.__getitem__, default=None)
            if near and 2 * common[near] > max(before[near].total(), now.total()):
                renamed[name] = near
        return renamed


def _keys(text: bytes, path: str) -> Counter[str]:
    """The match keys in the text of a cassette's file; none where it cannot be read."""
    try:
        documents = SERIALIZER_BY_SUFFIX[Path(path).suffix].read(text).documents
    except FormatFault:
        return Counter()
    return Counter(str(document.get("match_key")) for _, document in documents)


def _commit(root: Path, name: str) -> str:
    run_git(root, "rev-parse", "--git-dir")
    try:
        commit = run_git(root, "rev-parse", "--verify", "--end-of-options", f"{name}^{{commit}}")
    except ConfigError:
        raise ConfigError(
            f"git knows no revision {name}: a single argument is one; give two cassettes to compare "
            "them"
        ) from None
    return commit.decode().strip()


def versions(root: Path, paths: Sequence[str]) -> Iterator[FileVersion]:
    """Each version of the cassettes in these paths once, with the first commit of the version.

    All branches and tags are gone through, and what only a merge has. Raises ConfigError.
    """
    listed = run_git(
        *(root, "log", "--all", "--reverse", "--topo-order", "-m", "--raw", "--no-abbrev"),
        *("--no-renames", "--relative", "-z", "--format=%H", "--", *paths),
    )
    fields = iter(listed.decode("utf-8", "surrogateescape").split("\0"))
    commit, seen = "", set[tuple[str, str]]()
    for field in fields:
        about = field.lstrip("\n")
        if not about.startswith(":"):
            commit = about.strip() or commit
            continue
        path, blob = next(fields), about.split()[3]
        is_cassette = any(_cassettes(path.encode("utf-8", "surrogateescape")))
        if is_cassette and (path, blob) not in seen and blob.strip("0"):
            seen.add((path, blob))
            yield FileVersion(commit, path, blob)


def repository_text(root: Path, blob: str) -> bytes:
    """The content of a file, by its digest or as `COMMIT:./PATH`. Raises ConfigError."""
    return run_git(root, "cat-file", "blob", blob)


def rename_in_index(root: Path, old: str, new: str) -> None:
    """Rename a cassette's tracked files in git's index, as `git mv` does; a changed file stays changed.

    Raises ConfigError outside a repository, and where git is not installed.
    """
    endings = (*SERIALIZER_BY_SUFFIX, ASSETS)
    tracked = run_git(
        root, "ls-files", "-s", "-z", "--", *[f"./{old}{ending}" for ending in endings]
    )
    prefix = run_git(root, "rev-parse", "--show-prefix").decode().rstrip("\n")
    entries: list[str] = []
    for part in filter(None, tracked.decode("utf-8", "surrogateescape").split("\0")):
        about, _, path = part.partition("\t")
        mode, digest, stage = about.split()
        if stage == "0":
            entries.append(f"0 {'0' * len(digest)}\t{prefix}{path}\0")
            entries.append(f"{mode} {digest}\t{prefix}{new}{path.removeprefix(old)}\0")
    if entries:
        top = Path(run_git(root, "rev-parse", "--show-toplevel").decode().rstrip("\n"))
        text = "".join(entries).encode("utf-8", "surrogateescape")
        run_git(top, "update-index", "-z", "--index-info", standard_input=text)


def stages(file: Path) -> dict[int, bytes]:
    """The versions of a file that git has not merged: 1 is the base, 2 ours, 3 theirs.

    Empty outside a repository, without git, and for a file that is no conflict in its index.
    """
    try:
        listed = run_git(
            file.parent, "--literal-pathspecs", "ls-files", "-u", "-z", "--", f"./{file.name}"
        )
    except ConfigError:
        return {}
    blobs: dict[int, bytes] = {}
    for part in filter(None, listed.split(b"\0")):
        _, digest, stage = part.partition(b"\t")[0].decode().split()
        blobs[int(stage)] = run_git(file.parent, "cat-file", "blob", digest)
    return blobs


def run_git(folder: Path, *arguments: str, standard_input: bytes = b"") -> bytes:
    """The output of git. Raises ConfigError with git's message if git fails or is not installed."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and a revision never begins an option
            command, capture_output=True, check=False, input=standard_input
        )
    except FileNotFoundError:
        raise ConfigError("git is not installed, and only it knows revisions") from None
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "backslashreplace").strip().splitlines()
        raise ConfigError(f"git: {lines[0].removeprefix('fatal: ') if lines else 'it failed'}")
    return done.stdout


def _cassettes(listed: bytes) -> Iterator[tuple[str, str]]:
    """The names and files of the cassettes among paths that end in NUL."""
    for part in listed.decode("utf-8", "surrogateescape").split("\0"):
        path = PurePosixPath(part)
        name = part.removesuffix(path.suffix)
        in_assets = any(part.endswith(ASSETS) for part in path.parts[:-1])
        if path.suffix in SERIALIZER_BY_SUFFIX and valid_cassette_name(name) and not in_assets:
            yield name, part
