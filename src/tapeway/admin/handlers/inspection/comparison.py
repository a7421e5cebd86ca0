"""Two cassettes, or two interactions, compared by meaning."""

import asyncio

from aiohttp import web

from tapeway.admin.context import HandlerContext
from tapeway.admin.handlers.cassettes import read_cassette, refuse_large
from tapeway.admin.handlers.inspection.exchange import the_interaction
from tapeway.admin.models.inspection import CompareQuery
from tapeway.admin.models.schema import Nothing
from tapeway.admin.operation import OperationCall
from tapeway.admin.responses import json_response
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
    RecordingPair,
    compare,
    compare_items,
    diff_document,
    pair_document,
)

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
    sides = await _read(context, names[0]), await _read(context, names[1])
    return json_response(
        await asyncio.to_thread(_compared, context, names, sides, headers=query.headers)
    )


async def _read(context: HandlerContext, name: str) -> StoredCassette:
    advice = "compared here: use 'tapeway cassette diff', or compare two interactions"
    await refuse_large(context, name, advice, files=True)
    return await read_cassette(context, name)


async def rules_in_force(context: HandlerContext, name: str) -> Rules:
    """The rules in force for a cassette."""
    outline = await context.broker.editor.outline(name)
    if outline is None:
        raise no_cassette(name)
    return merged_rules(_rules_in(outline.head.meta), context.broker.rules)


def _rules_in(meta: object) -> Rules:
    try:
        return rules_of_meta(meta) if isinstance(meta, dict) else NO_RULES
    except ValueError as exc:
        raise AdminError(f"the cassette's rules cannot be read: {exc}", status=409) from None


def _compared(
    context: HandlerContext,
    names: tuple[str, str],
    sides: tuple[StoredCassette, StoredCassette],
    *,
    headers: bool,
) -> bytes:
    """The comparison of two cassettes in memory; runs in a thread, where it waits for nothing."""
    broker = context.broker
    rules = merged_rules(_rules_in(dict(sides[0].head.meta)), broker.rules)
    first, second = [
        DiffSource.in_memory(stored, name, broker.routes)
        for name, stored in zip(names, sides, strict=True)
    ]
    diff = asyncio.run(compare(first, second, rules, headers=headers, rows=True))
    return _document(diff)


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


def _document(diff: CassetteDiff) -> bytes:
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
            **diff_document(shown),
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
