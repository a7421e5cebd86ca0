"""The format version of a cassette file, and the upgrade of a file that has an older one.

Every cassette file names its version in the field `version` of its root: AgentTape's "1", under
which tapeway adds only fields that AgentTape ignores. A change that an older tapeway would misread
needs a new version: raise CURRENT, and add to UPGRADES the function that turns a whole document of
the version before into one of the new version:

    def upgrade_1_to_2(document: Document) -> Document: ...

    CURRENT = 2
    UPGRADES = {1: upgrade_1_to_2}

A file is upgraded in memory when it is loaded, one version after the other, and has the current
version once it is written. Journals and databases hold the same interactions under versions of
their own: such a change needs an upgrade there too.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document, Fields

Upgrade = Callable[[Document], Document]
"""Turns the document of one version into that of the next. Raises FormatFault with the place."""

CURRENT = 1
"""The version that is written."""

UPGRADES: Mapping[int, Upgrade] = MappingProxyType({})
"""For each older version that is read, the function that leads to the next one."""

_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def upgraded(
    document: Document, upgrades: Mapping[int, Upgrade] = UPGRADES, current: int = CURRENT
) -> Document:
    """The document in the current version, the very one that was given if it has that already.

    Raises FormatFault for a version that is missing or that this tapeway cannot read.
    """
    version = _version(document, sorted(upgrades), current)
    while version < current:
        document = upgrades[version](document)
        version += 1
        document = document | {"version": str(version)}
    return document


def _version(document: Document, older: list[int], current: int) -> int:
    fields = Fields(document, ())
    fields.require("version")
    written = str(fields.values["version"])
    readable = [str(each) for each in (*older, current)]
    if written in readable:
        return int(written)
    known = f"this tapeway reads {', '.join(readable)}"
    if _NUMBER.fullmatch(written) and int(written) > current:
        reason = f"the file has the newer format version {written}; {known}"
        raise FormatFault(reason, ("version",), advice="update tapeway")
    raise fields.fault("version", f"there is no format version '{written}'; {known}: correct it")
