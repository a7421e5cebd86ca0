"""The `.gitignore` in a folder of cassettes, for the files that are not to be committed."""

import os
from contextlib import suppress

from tapeway.stores.shared.durable_files import create_file, write_all

NAME = ".gitignore"
_TEXT = b"""# Of tapeway: locks, and recordings that are not in a cassette's file yet.
*.journal
.*.lock
.*.tmp
"""


def begin(folder: int, cassette_endings: tuple[str, ...]) -> None:
    """Write it into a folder that is to get its first cassette, unless there is one.

    A folder that holds folders, or files that may be cassettes, is not looked after: somebody may
    have removed it on purpose, or it may be that of a whole project. Errors do not matter here: no
    recording depends on it.
    """
    with suppress(OSError):
        with suppress(FileNotFoundError):
            # Before the folder is read: it may have thousands of cassettes with a journal alone.
            os.stat(NAME, dir_fd=folder, follow_symlinks=False)
            return
        with os.scandir(folder) as found:
            if any(
                each.name.endswith(cassette_endings) or each.is_dir(follow_symlinks=False)
                for each in found
            ):
                return
        fd = create_file(folder, NAME, os.O_WRONLY)
        try:
            write_all(fd, _TEXT)
        except OSError:
            os.unlink(NAME, dir_fd=folder)
        finally:
            os.close(fd)
