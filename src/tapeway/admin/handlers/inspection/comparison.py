"""Two cassettes, or two interactions, compared by meaning."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import read_cassette, refuse_large
from tapeway.admin.handlers.inspection.exchange import the_interaction, unloaded_recordings
from tapeway.admin.models.inspection import CompareCassettesQuery, CompareQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.responses import json_response, stream_response
from tapeway.core.cassette.branches import Place, flattened
from tapeway.core.http.routing import assign_route
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.rules import NO_RULES, Rules, merged_rules, rules_of_meta
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import AnyInteraction
from tapeway.engine.editing.changes import no_cassette
from tapeway.errors import AdminError
from tapeway.inspection.pairing import (
    CassetteDiff,
    DiffSource,
    PairedRow,
    Progress,
    RecordingPair,
    compare,
    compare_items,
    diff_document,
    pair_document,
)

LOOK_S = 0.2
"""How often events tell how far a comparison has come."""

_Places = tuple[Sequence[Place] | None, Sequence[Place] | None]
MOST_ROWS = 10_000
_MOST_SHOWN = 1000
"""The most pairs with differences, and the most recordings of one side alone."""


async def get_comparison(
    context: HandlerContext, call: OperationCall[CompareQuery, Nothing]
) -> web.Response:
    """Two cassettes, or two interactions, compared as `tapeway cassette diff` does."""
    query, name = call.query, call.cassette
    names = name, query.other or name
    index = query.other_index if query.index is None else query.index
    if index is not None:
        other = index if query.other_index is None else query.other_index
        first = await the_interaction(context, names[0], index)
        second = await the_interaction(context, names[1], other)
        rules, items = await rules_in_force(context, name), (first, second)
        text = await asyncio.to_thread(
            _compared_items, context, names, items, rules, headers=query.headers
        )
        return json_response(text)
    compared, _ = await _comparison(context, names, headers=query.headers)
    return json_response(await asyncio.to_thread(compared))


async def comparison_events(
    context: HandlerContext, call: OperationCall[CompareCassettesQuery, Nothing]
) -> web.StreamResponse:
    """Two cassettes compared, as server-sent events: `progress`, and the `comparison` at the end."""
    query = call.query
    names = call.cassette, query.other or call.cassette
    compared, progress = await _comparison(context, names, headers=query.headers)
    headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    return await stream_response(call.request, headers, _events(compared, progress))


async def _events(compared: Callable[[], bytes], progress: Progress) -> AsyncIterator[bytes]:
    told = replace(progress)
    yield _progress_event(told)
    result = asyncio.get_running_loop().run_in_executor(None, compared)
    while not result.done():
        if (now := replace(progress)) != told:
            told = now
            yield _progress_event(now)
        await asyncio.wait((result,), timeout=LOOK_S)
    yield b"event: comparison\ndata: %b\n\n" % result.result()


def _progress_event(progress: Progress) -> bytes:
    return b"event: progress\ndata: %b\n\n" % dump(asdict(progress))


async def _comparison(
    context: HandlerContext, names: tuple[str, str], *, headers: bool
) -> tuple[Callable[[], bytes], Progress]:
    """What compares two cassettes, which are read already, in a thread; and how far it has come."""
    read = await _read(context, names[0]), await _read(context, names[1])
    sides = read[0][0], read[1][0]
    rules = merged_rules(_rules_in(dict(sides[0].head.meta)), context.broker.rules)
    progress = Progress(of=sum(len(stored.interactions) for stored in sides))
    places = read[0][1], read[1][1]
    compared = partial(_compared, context, names, sides, rules, progress, places, headers=headers)
    return compared, progress


async def _read(
    context: HandlerContext, name: str
) -> tuple[StoredCassette, Sequence[Place] | None]:
    """A cassette, with what it has from its bases; then also where each recording is."""
    advice = "compared here: use 'tapeway cassette diff', or compare two interactions"
    await refuse_large(context, name, advice, files=True)
    stored = await read_cassette(context, name)
    layers = await context.broker.source.layers(name, stored.head)
    if not layers:
        return stored, None
    return await asyncio.to_thread(flattened, name, stored, layers)


async def rules_in_force(context: HandlerContext, name: str) -> Rules:
    """The rules in force for a cassette."""
    if (held := await unloaded_recordings(context, name)) is not None:
        return merged_rules(_rules_in(held.head.meta), context.broker.rules)
    walk = await context.broker.editor.walk(name)
    if walk is None:
        raise no_cassette(name)
    return merged_rules(_rules_in(walk.head.meta), context.broker.rules)


def _rules_in(meta: object) -> Rules:
    try:
        return rules_of_meta(meta) if isinstance(meta, dict) else NO_RULES
    except ValueError as exc:
        raise AdminError(f"the cassette's rules cannot be read: {exc}", status=409) from None


def _compared(
    context: HandlerContext,
    names: tuple[str, str],
    sides: tuple[StoredCassette, StoredCassette],
    rules: Rules,
    progress: Progress,
    places: _Places,
    *,
    headers: bool,
) -> bytes:
    first, second = [
        DiffSource.in_memory(stored, name, context.broker.routes)
        for name, stored in zip(names, sides, strict=True)
    ]
    compared = compare(first, second, rules, headers=headers, rows=True, progress=progress)
    return _document(asyncio.run(compared), places)


def _compared_items(
    context: HandlerContext,
    names: tuple[str, str],
    items: tuple[AnyInteraction, AnyInteraction],
    rules: Rules,
    *,
    headers: bool,
) -> bytes:
    first, second = [assign_route(item, context.broker.routes) for item in items]
    pair = compare_items(first, second, rules, headers=headers)
    row = PairedRow(first.index, second.index, pair.state)
    different = (pair,) if pair.differences else ()
    counts = int(pair.state == "equal"), int(pair.state == "alike")
    return _document(CassetteDiff(names, *counts, different, (), (), (row,)))


def _document(diff: CassetteDiff, places: _Places = (None, None)) -> bytes:
    shown = CassetteDiff(
        diff.names,
        diff.equal,
        diff.alike,
        diff.different[:_MOST_SHOWN],
        diff.only_first[:_MOST_SHOWN],
        diff.only_second[:_MOST_SHOWN],
    )
    return dump(
        {
            "names": list(diff.names),
            # Where the recordings of a side with a base are: they are numbered for the comparison.
            "places": [None if side is None else [[*place] for place in side] for side in places],
            **diff_document(shown),
            "counts": {
                "different": len(diff.different),
                "only_first": len(diff.only_first),
                "only_second": len(diff.only_second),
            },
            "different": [placed_pair(pair) for pair in shown.different],
            "rows": [row.document for row in diff.rows[:MOST_ROWS]],
            "rows_left_out": max(0, len(diff.rows) - MOST_ROWS),
        }
    )


def placed_pair(pair: RecordingPair) -> dict[str, Json]:
    """A pair with the places of its differences as steps too."""
    written = pair_document(pair)
    texts = written["differences"]
    placed: list[Json] = []
    for difference, text in zip(
        pair.differences, texts if isinstance(texts, list) else [], strict=True
    ):
        at = difference.recorded_steps
        steps: dict[str, Json] = {
            "steps": list(difference.steps),
            "recorded_steps": None if at is None else list(at),
        }
        placed.append({**text, **steps} if isinstance(text, dict) else text)
    return {**written, "differences": placed}
