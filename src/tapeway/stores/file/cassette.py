"""One cassette on disk, loaded for replay or for recording.

    load ─► append … append ─► release      the journal grows, the file is left alone
                                  └─► fold: file + journal ─► a new file, then no journal

Nothing here waits for anything but the disk; it runs in a thread, one call at a time.
"""

import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import AnyInteraction, Interaction, large_bodies
from tapeway.core.model.lazy_interaction import LazyInteraction
from tapeway.core.model.messages import BodyFile
from tapeway.errors import CassetteCorrupt, CassetteEdited, StoreError
from tapeway.formats.cassette_file import JSON, Serializer
from tapeway.formats.fields import Document
from tapeway.stores.file import bodies, snapshot
from tapeway.stores.file.append_log import earlier_sync_failed
from tapeway.stores.file.bodies import Draft
from tapeway.stores.file.paths import FolderNames, Paths
from tapeway.stores.file.snapshot import FileState, Snapshot
from tapeway.stores.file.writer import CassetteWriter
from tapeway.stores.support.resident_recordings import ResidentRecordings
from tapeway.stores.support.serialize import document_of

log = logging.getLogger(__name__)


class FileCassette:
    """The files of one cassette. Every method may raise StoreError or a child of StoreError."""

    def __init__(
        self,
        root: Path,
        name: str,
        serializer: Serializer = JSON,
        folder_names: FolderNames | None = None,
        resident: ResidentRecordings | None = None,
    ) -> None:
        """With `resident`, the recordings of a large file stay in it."""
        self._resident = resident
        self._paths = Paths(root, name, serializer, folder_names)
        self._writer: CassetteWriter | None = None
        self._seen_state: tuple[FileState | None, FileState | None] | None = None
        self._suspect = False
        self._guard = threading.Lock()
        self._kept_digests: Counter[str] = Counter()

    @property
    def poisoned(self) -> bool:
        """Whether a sync failed and what it was about has not been written anew since."""
        return self._suspect or (self._writer is not None and self._writer.poisoned)

    @property
    def has_handles(self) -> bool:
        """Whether its folder, lock and journal are open."""
        return self._writer is not None and not self._writer.parked

    def park(self, process_lock: Callable[[], str]) -> bool:
        """Close its handles, and keep the right to record by the lock of the process.

        False where that cannot be.
        """
        if self._writer is None or self._writer.parked:
            return True
        if self._writer.poisoned:
            return False
        try:
            self._writer.park(process_lock())
        except (OSError, StoreError):
            return False
        return True

    def refuse_poisoned(self) -> None:
        """Raise StorePoisoned where nothing is acknowledged."""
        if self.poisoned:
            raise earlier_sync_failed(self._paths.shown(self._paths.journal))

    def load(self, *, writable: bool) -> StoredCassette | None:
        """All that was ever acknowledged; claimed for writing if asked for."""
        if self._writer is not None and self._writer.poisoned:
            self.release()
        if writable and self._writer is None:
            self._writer, stored = self._take_writer()
            return stored
        if (held := self._held_writer()) is not None:
            return self._read(held.folder, held.snapshot())
        return self._load_for_replay()

    def append(self, head: CassetteHead, payloads: Sequence[bytes]) -> None:
        """Add recordings, durable on return, all or none; claims first what was only read."""
        self._claimed_writer().append(head, payloads)

    def check(self, interaction: Interaction) -> None:
        """Raise CassetteCorrupt where a large body it refers to is not beside the cassette."""
        if large_bodies(interaction):
            bodies.placed(self._claimed_writer().folder, self._paths, interaction)

    def recorded(self, items: Iterable[Interaction]) -> None:
        """Note durable recordings: from now on only these recordings keep large bodies alive."""
        with self._guard:
            for file in [file for item in items for file in large_bodies(item)]:
                self._kept_digests[file.digest] -= 1
            self._kept_digests = +self._kept_digests

    def claim(self) -> None:
        """Claim the cassette for writing, unless it is claimed."""
        self._claimed_writer()

    def keep(self, pieces: Iterable[bytes]) -> BodyFile:
        """A large body, durable beside the cassette; call it when claimed, in any thread."""
        folder = self._paths.make_folder()
        try:
            with self._guard:
                draft = Draft(folder, self._paths)
            try:
                draft.write(pieces)
                with self._guard:
                    file = draft.adopt()
                    self._kept_digests[file.digest] += 1
                return file
            finally:
                draft.close()
        finally:
            with suppress(OSError):
                os.close(folder)

    def save(self, cassette: StoredCassette) -> None:
        """Put this in the place of everything there is."""
        documents = _documents(cassette.interactions)
        writer = self._claimed_writer()
        for interaction in cassette.interactions:
            if large_bodies(interaction):
                bodies.placed(writer.folder, self._paths, interaction)
        with self._guard:
            writer.replace(cassette.head, documents)
            # A body may be there whose recording is not yet.
            writer.sweep(self._kept_digests)

    def replace_head(self, head: CassetteHead) -> None:
        """Replace the head of the cassette, if there is a cassette."""
        writer = self._claimed_writer()
        with self._guard:
            writer.replace_head(head)
            writer.sweep(self._kept_digests)

    def remove(self) -> bool:
        """Delete all files of the cassette, also unreadable ones, and let go; False for no file.

        Raises OtherToolsFile where only a file of another tool is there.
        """
        folder = self._paths.open_folder()
        if folder is None:
            return False
        os.close(folder)
        writer, self._writer = self._claimed_or_taken(), None
        self._seen_state, self._suspect = None, False
        try:
            self._paths.refuse_other_tools(writer.folder)
            with self._guard:
                return writer.remove()
        finally:
            self._kept_digests.clear()
            writer.close()

    @property
    def unfolded_bytes(self) -> int:
        """How much there is to be read and written to fold the journal; 0 where there is none."""
        return 0 if self._writer is None else self._writer.unfolded_bytes

    @property
    def unfolded_containers(self) -> int:
        """How many objects and lists there are to be written to fold the journal, about."""
        return 0 if self._writer is None else self._writer.unfolded_containers

    def let_go(self) -> None:
        """Let go without a fold: the next load finds everything in the journal."""
        self._seen_state = None
        writer, self._writer = self._writer, None
        self._kept_digests.clear()
        if writer is not None:
            writer.close()

    def release(self) -> None:
        """Fold the journal into the file and let go; the latter in any case."""
        folds = self.unfolded_bytes or self._kept_digests or self.poisoned
        self._seen_state = None
        try:
            # One that stays parked would be locked for the next load too.
            writer = self._held_writer()
        finally:
            self._writer = None
        if writer is None:
            return
        if not folds:
            writer.close()
            return
        self._suspect = writer.poisoned
        try:
            recorded = writer.recorded or self._kept_digests
            with self._guard:
                writer.fold()
                if recorded:
                    writer.sweep()
            self._suspect = False
        finally:
            self._kept_digests.clear()
            writer.close()

    def _load_for_replay(self) -> StoredCassette | None:
        folder = self._paths.open_folder()
        if folder is None:
            self._seen_state = (None, None)
            return None
        try:
            snapshot.settle(folder, self._paths)
            while True:
                now = snapshot.take(folder, self._paths)
                if now.journal is not None and now.journal.tail_ended:
                    place = self._paths.shown(self._paths.journal)
                    log.warning("%s: %s; it is passed over", place, now.journal.tail_text)
                try:
                    return self._read(folder, now)
                except (CassetteCorrupt, CassetteEdited):
                    # Somebody who records may just have removed a body that was replaced.
                    if snapshot.take(folder, self._paths).state == now.state:
                        raise
                finally:
                    self._seen_state = now.state
        finally:
            os.close(folder)

    def _held_writer(self) -> CassetteWriter | None:
        if self._writer is not None and self._writer.parked:
            self._writer.unpark()
        return self._writer

    def _claimed_or_taken(self) -> CassetteWriter:
        return self._held_writer() or CassetteWriter.take(self._paths)

    def _claimed_writer(self) -> CassetteWriter:
        if (held := self._held_writer()) is not None:
            return held
        self._writer, _ = self._take_writer()
        return self._writer

    def _take_writer(self) -> tuple[CassetteWriter, StoredCassette | None]:
        writer = CassetteWriter.take(self._paths)
        try:
            now = snapshot.take(writer.folder, self._paths)
            self._refuse_if_changed(now)
            stored = self._read(writer.folder, now)
            writer.resume(now)
            # The journal may be whole in memory only: nothing is added to it.
            if self._suspect:
                writer.fold()
                self._suspect = False
                stored = self._read(writer.folder, writer.snapshot())
        except BaseException:
            writer.close()
            raise
        self._seen_state = None
        return writer, stored

    def _refuse_if_changed(self, now: Snapshot) -> None:
        if self._seen_state is not None and self._seen_state != now.state:
            raise CassetteEdited(
                f"{self._paths.shown(self._paths.cassette)} was changed or recorded into by "
                "somebody since it was loaded for replay: eject it, so that it is loaded anew"
            )

    def _read(self, folder: int, now: Snapshot) -> StoredCassette | None:
        if not now.exists:
            return None
        return now.cassette(folder, self._resident)


def _documents(items: Iterable[AnyInteraction]) -> Iterator[Document]:
    """The documents in turn, each freed after the write."""
    for item in items:
        yield document_of(item.load() if isinstance(item, LazyInteraction) else item)
