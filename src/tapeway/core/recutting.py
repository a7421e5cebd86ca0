"""Where the pieces of a body end after secrets in it were exchanged for placeholders."""

from collections.abc import Iterable

from tapeway.core.cuts import Cuts


def recut(cuts: Cuts, exchanged: Iterable[tuple[int, int, int]]) -> Cuts:
    """The cuts with every border where it was; one inside a secret moves to its placeholder's end.

    A piece of which nothing is left joins the next. `exchanged` holds in order where each secret
    began and ended, and how many bytes stand for it.
    """
    found = Cuts()
    waiting = iter(exchanged)
    span = next(waiting, None)
    border = shift = before = 0
    for at_ms, length in cuts:
        border += length
        moved = border + shift
        while span is not None and span[0] < border:
            start, end, instead = span
            moved = start + shift + instead + max(0, border - end)
            if border < end:
                break
            shift += instead - (end - start)
            span = next(waiting, None)
        if moved > before:
            found.add(at_ms, moved - before)
            before = moved
    return found
