"""The `.gitignore` in a folder of cassettes, for the files that are not to be committed."""

import os
from contextlib import suppress

from tapeway.stores.support.durable_files import create_file, write_all

NAME = ".gitignore"
_TEXT = b"""# Of tapeway: locks, and recordings that are not in a cassette's file yet.
*.journal
.*.lock
.*.tmp
"""


def begin(folder: int) -> None:
    """Write a .gitignore into a folder for cassettes, before the first lock, unless there is one.

    An empty one stays as it is. Errors do not matter here: no recording depends on it.
    """
    with suppress(OSError):
        with suppress(FileNotFoundError):
            os.stat(NAME, dir_fd=folder, follow_symlinks=False)
            return
        fd = create_file(folder, NAME, os.O_WRONLY)
        try:
            write_all(fd, _TEXT)
        except OSError:
            os.unlink(NAME, dir_fd=folder)
        finally:
            os.close(fd)
