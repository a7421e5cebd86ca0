"""What a report measures: prices of the tokens saved, recordings that are stale, secrets replaced."""

from collections.abc import Mapping

import pytest

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.engine.journal import (
    MOST_MODELS,
    NO_MODEL,
    ClientTexts,
    ServedAnswer,
    ServedRequest,
    Tally,
)
from tapeway.engine.report.standards import Standards
from tapeway.engine.report.summary import (
    RecordingsInMemory,
    RecordingsInStore,
    RecordingSummary,
    Savings,
    report_of,
    savings,
)
from tapeway.providers.prices import Price, PriceTable
from tests.stores.model_store import ModelPlace, ModelStore
from tests.support.reports import report_of_index

TODAY = "2026-03-31"
MONTH = Standards(max_age=30)
PRICES = PriceTable(
    {("openai", "big"): Price(10.0, 30.0), ("openai", "free"): Price(0.0, 0.0)}, "p"
)


def replayed(model: str, prompt: int, completion: int) -> ServedRequest:
    tokens = (prompt, completion, prompt + completion)
    request = (
        "tw-1",
        0.0,
        "c",
        "openai",
        "POST",
        ClientTexts("/"),
        ServedAnswer("replayed", 200, tokens=tokens, model=model),
        0.0,
        None,
    )
    return ServedRequest(*request)


def saved(*replays: ServedRequest) -> Savings:
    tally = Tally()
    for replay in replays:
        tally.add(replay)
    empty = CassetteIndex("c", StoredCassette(CassetteHead("", "")), take=1)
    return report_of_index(empty, tally, Standards(PRICES)).saved


def test_a_model_has_its_own_price_for_input_and_output() -> None:
    found = saved(replayed("openai/big", 1000, 100), replayed("openai/big", 500, 0))

    assert found == Savings(0.018, (), "p")


def test_a_model_without_a_price_is_counted_and_none_is_guessed() -> None:
    unknown = [replayed(name, 5, 6) for name in ("openai/bigger", "azure/big", "openai/bigger")]
    found = saved(replayed("openai/free", 1, 1), *unknown)

    assert found.usd == 0.0
    assert [(model.model, model.calls, model.tokens) for model in found.unpriced] == [
        ("openai/bigger", 2, 22),
        ("azure/big", 1, 11),
    ]


def test_replays_of_unknown_price_alone_have_saved_no_known_amount() -> None:
    assert saved(replayed("openai/bigger", 5, 6)).usd is None
    assert saved().usd == 0.0


def test_models_beyond_a_bound_are_counted_as_one() -> None:
    tally = Tally()
    for number in range(MOST_MODELS + 5):
        tally.add(replayed(f"openai/m{number}", 1, 1))

    assert len(tally.models) == MOST_MODELS + 1
    assert tally.models[NO_MODEL] == [5, 5, 5]


def item(index: int, date: bytes | None = None) -> Interaction:
    headers = () if date is None else ((b"Date", date),)
    response = Response(ResponseHead(200, headers=headers))
    return Interaction(index, Request("openai", "GET", f"/{index}"), response)


JANUARY, MARCH = b"Sat, 31 Jan 2026 10:00:00 GMT", b"Sun, 01 Mar 2026 00:00:00 GMT"


def stored(checked: str | None, created: str, *items: Interaction) -> StoredCassette:
    meta: Mapping[str, Json] = {} if checked is None else {"checked_at": checked}
    return StoredCassette(CassetteHead(created, "run", meta), items)


@pytest.mark.parametrize(
    ("cassette", "days"),
    [
        # Its check counts, whatever the recordings say.
        (stored("2026-03-01", "2020-01-01T00:00:00Z", item(0, JANUARY)), []),
        (stored("2026-02-28", "2026-03-30T00:00:00Z", item(0, MARCH)), ["2026-02-28"]),
        # Without one each recording has a day of its own, or that of the cassette.
        (
            stored(None, "2026-03-20T00:00:00Z", item(0, JANUARY), item(1, MARCH), item(2)),
            ["2026-01-31"],
        ),
        (stored(None, "2026-01-02T00:00:00Z", item(0, b"yesterday")), ["2026-01-02"]),
    ],
)
async def test_recordings_are_stale_from_a_day_on(
    cassette: StoredCassette, days: list[str]
) -> None:
    index = CassetteIndex("c", cassette, take=1)
    expected = [RecordingSummary(at, "GET", f"/{at}", day=day) for at, day in enumerate(days)]

    in_memory = RecordingsInMemory(index)
    assert list((await report_of(in_memory, Tally(), MONTH, TODAY)).stale) == expected
    assert (await report_of(in_memory, Tally(), Standards(), TODAY)).stale == ()

    store = ModelStore(ModelPlace())
    await store.open()
    try:
        for interaction in cassette.interactions:
            await store.append("c", cassette.head, Recording(interaction))
        found = await report_of(RecordingsInStore(store, index, (1,)), Tally(), MONTH, TODAY)
    finally:
        await store.close()
    assert list(found.stale) == expected


def test_an_age_beyond_the_calendar_makes_nothing_stale() -> None:
    index = CassetteIndex("c", stored("0001-01-01", "", item(0)), take=1)

    assert report_of_index(index, Tally(), Standards(max_age=999_999), TODAY).stale == ()


def test_a_model_that_is_met_while_a_thread_sums_up_disturbs_nothing() -> None:
    models = {"openai/gpt-4o": [1, 10, 10]}

    class Prices(PriceTable):
        def find(self, provider: str, model: str) -> Price | None:
            models.setdefault("openai/o3", [1, 1, 1])
            return super().find(provider, model)

    saved = savings(Prices(), models)

    assert saved.usd == 0.000125
