"""ETags, and what a change that names one depends on (RFC 9110 sections 8.8.3 and 13)."""

import re

from aiohttp import web

from tapeway.engine.editing.changes import Condition
from tapeway.errors import AdminError

_TAG = re.compile(r'"([0-9a-f]{64})"')
_ANY = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


def tag(digest: str) -> str:
    """A digest as the header has it."""
    return f'"{digest}"'


def condition(request: web.Request) -> Condition:
    """What the change depends on. Raises AdminError (400) for what cannot be read."""
    wanted, unwanted = _values(request, "If-Match"), _values(request, "If-None-Match")
    if unwanted not in ([], ["*"]):
        raise AdminError("the only If-None-Match that is understood is '*'", code="bad_condition")
    absent = bool(unwanted)
    if wanted == ["*"]:
        return Condition(present=True, absent=absent)
    if not wanted:
        return Condition(absent=absent)
    if not all(map(_ANY.fullmatch, wanted)):
        raise AdminError("the If-Match is no list of ETags", code="bad_condition")
    # What is weak, or never was one of ours, matches nothing.
    strong = [found[1] for each in wanted if (found := _TAG.fullmatch(each))]
    return Condition(match=frozenset(strong), absent=absent)


def _values(request: web.Request, name: str) -> list[str]:
    joined = ",".join(request.headers.getall(name, []))
    return [each.strip() for each in joined.split(",") if each.strip()]
