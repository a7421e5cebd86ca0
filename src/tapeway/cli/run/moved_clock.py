"""The environment in which a command sees another day: libfaketime moves the clock.

A statically linked program, for example in Go, does not follow libfaketime.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tapeway.errors import ConfigError

_FOLDERS = (
    *("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/lib64/faketime"),
    *("/usr/local/lib/faketime", "/opt/homebrew/lib/faketime"),
)
_IS_MAC = sys.platform == "darwin"
_LIBRARY = "libfaketime.1.dylib" if _IS_MAC else "libfaketime.so.1"
_PRELOAD = "DYLD_INSERT_LIBRARIES" if _IS_MAC else "LD_PRELOAD"
_SEPARATOR = ":" if _IS_MAC else " "


def environment_days_later(
    environ: Mapping[str, str], days: int, root: Path = Path(os.sep)
) -> dict[str, str]:
    """The environment in which a program sees a clock some days ahead.

    Raises ConfigError where libfaketime is not installed below `root`.
    """
    library = _find_library(root)
    if library is None:
        raise ConfigError(
            "--days: the clock of the second run cannot be moved, since libfaketime is not "
            "installed: install it (apt install libfaketime, brew install libfaketime), or leave "
            "out --days"
        )
    preloaded = environ.get(_PRELOAD)
    return {
        **environ,
        _PRELOAD: f"{library}{_SEPARATOR}{preloaded}" if preloaded else str(library),
        "FAKETIME": f"+{days}d",
        # Timeouts go on as they are.
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def _find_library(root: Path) -> Path | None:
    for folder in _FOLDERS:
        for library in sorted(root.glob(f"{folder.lstrip('/')}/{_LIBRARY}")):
            return library
    return None
