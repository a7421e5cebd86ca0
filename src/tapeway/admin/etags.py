"""ETags and preconditions of the admin API (RFC 9110 sections 8.8.3 and 13)."""

import re

from aiohttp import web

from tapeway.core.model.condition import Condition
from tapeway.errors import AdminError

_OWN_TAG = re.compile(r'"([0-9a-f]{64})"')
_ANY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')


def etag_header(digest: str) -> dict[str, str]:
    """The ETag header of content with this digest."""
    return {"ETag": f'"{digest}"'}


def precondition(request: web.Request) -> Condition:
    """What If-Match and If-None-Match demand. Raises AdminError (400) for invalid ones."""
    match, none_match = _values(request, "If-Match"), _values(request, "If-None-Match")
    if none_match not in ([], ["*"]):
        raise AdminError("the only supported If-None-Match is '*'", code="bad_condition")
    absent = bool(none_match)
    if match == ["*"]:
        return Condition(present=True, absent=absent)
    if not match:
        return Condition(absent=absent)
    if not all(map(_ANY_TAG.fullmatch, match)):
        raise AdminError("the If-Match is not a list of ETags", code="bad_condition")
    # A weak or a foreign tag matches nothing.
    strong = [own_tag[1] for tag in match if (own_tag := _OWN_TAG.fullmatch(tag))]
    return Condition(match=frozenset(strong), absent=absent)


def _values(request: web.Request, name: str) -> list[str]:
    joined = ",".join(request.headers.getall(name, []))
    return [part.strip() for part in joined.split(",") if part.strip()]
