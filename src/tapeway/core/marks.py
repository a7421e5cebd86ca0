"""What tells one recording from others when its number has changed."""

import hashlib

from tapeway.core.model import Interaction, Request, Response


def mark_of(item: Interaction) -> str:
    """Sixteen hex digits for what was asked and answered; no time, header, host or number is in it.

    Costs a hash over both bodies, unless they lie in files.
    """
    request, response = item.request, item.response
    said = (
        request.method.encode("utf-8", "surrogateescape"),
        request.url.partition("://")[2].partition("/")[2].encode("utf-8", "surrogateescape"),
        _body(request),
        b"%d" % response.status,
        _body(response),
        item.failure.kind.encode() if item.failure is not None else b"",
    )
    found = hashlib.sha256()
    for each in said:
        # A length keeps two different divisions of the same bytes apart.
        found.update(b"%d:" % len(each))
        found.update(each)
    return found.hexdigest()[:16]


def _body(message: Request | Response) -> bytes:
    return message.body if message.file is None else message.file.digest.encode()
