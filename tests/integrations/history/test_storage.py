"""What a history keeps, the same over every store, and from a session's id to its cassette and back."""

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.conversations.transcript import read_transcript
from tapeway.core.http.routing import valid_cassette_name
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import StoredCassette
from tapeway.core.model.interaction import ForeignInteraction
from tapeway.errors import CassetteCorrupt, RequestError, StoreError
from tapeway.integrations.history import HistoryStorage, Message, StorageProvider, storage
from tapeway.integrations.history.storage import cassette_name, session_id_of
from tests.stores.contract.kinds import Kind, Place
from tests.stores.recordings import HEAD, recording

KOLKATA = timezone(timedelta(hours=5, minutes=30))
ODD_IDS = [
    *("../escaped", "a/b", "/", ".", "..", "A", "a", "Straße 🎼", " ", "a\0b\n", "s", "escaped"),
    *(
        "escaped/sa",
        "history",
        "x" * 300,
        "CON",
        "nul",
        "com1.x",
        "a.",
        "x" * 127 + ".",
        "%2e%2e",
        "_",
        "a_b",
        "a.json",
        "é" * 100,
    ),
]


def said(text: Json, role: str = "user") -> Message:
    return Message(role, text)


async def test_appended_messages_come_back_in_order_also_after_reopening(place: Place) -> None:
    asked, answered = said("Hello"), said("Hi!", "assistant")
    async with StorageProvider(place.again()) as provider:
        await provider.history.append_messages("s", [asked, answered])
        assert await provider.history.get_history("s") == [asked, answered]
        await provider.history.append_messages("s", [said("more")])

    async with StorageProvider(place.again()) as provider:
        assert await provider.history.get_history("s") == [asked, answered, said("more")]
        await provider.history.append_messages("s", [said("and more")])
        assert len(await provider.history.get_history("s")) == 4


async def test_a_session_without_messages_is_empty_and_not_listed(history: HistoryStorage) -> None:
    assert await history.get_history("s") == []
    await history.append_messages("s", [])
    await history.clear_history("s")
    assert await history.list_sessions() == []


async def test_any_role_and_any_content_is_kept(history: HistoryStorage) -> None:
    call: Json = {"id": "c1", "name": "add", "arguments": {"a": 1, "b": [2.5, None, True, 2**70]}}
    messages = [
        said("", "system"),
        said("developer \0 \u2028 🎼 é", "developer"),
        said([{"type": "text", "text": "look"}, {"type": "image", "data": "…"}]),
        said({"tool_calls": [call]}, "assistant"),
        said({"tool_call_id": "c1", "result": 3.5}, "tool"),
        said(None, "assistant"),
        said(0, "a role of our own"),
    ]

    await history.append_messages("s", messages)

    assert await history.get_history("s") == messages


async def test_a_time_keeps_its_offset_and_an_unknown_one_stays_unknown(
    history: HistoryStorage,
) -> None:
    times = [
        None,
        datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        datetime(2026, 1, 1, tzinfo=KOLKATA),
        datetime(1999, 12, 31, 23, 59, 59),
        None,
    ]
    for time in times:
        await history.append_messages("s", [Message("user", "same", time)])

    found = [message.timestamp for message in await history.get_history("s")]
    assert found == times
    assert [time and time.utcoffset() for time in found] == [
        time and time.utcoffset() for time in times
    ]


async def test_concurrent_appends_lose_none_and_keep_what_belongs_together(
    history: HistoryStorage,
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            for session in ("a", "b"):
                pair = [said(number), said(-number, "assistant")]
                tasks.create_task(history.append_messages(session, pair))

    for session in ("a", "b"):
        found = [message.content for message in await history.get_history(session)]
        assert found == [value for number in range(20) for value in (number, -number)]


async def test_returned_messages_share_nothing_with_the_store(history: HistoryStorage) -> None:
    mine: list[Json] = [{"text": "a"}]
    messages = [said(mine)]
    await history.append_messages("s", messages)
    mine.clear()
    messages.clear()

    found = await history.get_history("s")
    assert found == [said([{"text": "a"}])]
    content = found[0].content
    assert isinstance(content, list)
    content.clear()
    found.clear()
    assert await history.get_history("s") == [said([{"text": "a"}])]


async def test_a_cleared_session_is_gone_and_may_be_started_again(history: HistoryStorage) -> None:
    for session in ("a", "b"):
        await history.append_messages(session, [said(session)])

    await history.clear_history("a")

    assert await history.get_history("a") == []
    assert await history.list_sessions() == ["b"]
    await history.append_messages("a", [said("anew")])
    assert await history.get_history("a") == [said("anew")]
    assert await history.get_history("b") == [said("b")]


async def test_a_session_may_be_called_anything(place: Place) -> None:
    async with StorageProvider(place.again()) as provider:
        for session in ODD_IDS:
            await provider.history.append_messages(session, [said(session)])

    async with StorageProvider(place.again()) as provider:
        assert sorted(await provider.history.list_sessions()) == sorted(ODD_IDS)
        for session in ODD_IDS:
            assert await provider.history.get_history(session) == [said(session)]


async def test_a_session_that_cannot_be_kept_is_refused(history: HistoryStorage) -> None:
    for session in ("", "é" * 300, "x" * 2000, "\ud800"):
        with pytest.raises(RequestError, match="session's id"):
            await history.append_messages(session, [said("lost?")])
        with pytest.raises(RequestError, match="session's id"):
            await history.get_history(session)
    assert await history.list_sessions() == []


async def test_sessions_are_listed_by_their_last_change(history: HistoryStorage) -> None:
    for session in ("c", "a", "b"):
        await history.append_messages(session, [said(1)])
    await history.append_messages("a", [said(2)])

    assert await history.list_sessions() == ["a", "b", "c"]


async def test_another_instance_lists_sessions_in_the_same_order(place: Place) -> None:
    async with StorageProvider(place.again()) as one:
        for session in ("c", "a", "b"):
            await one.history.append_messages(session, [said(1)])
            # Clocks of file systems stand still for milliseconds.
            await asyncio.sleep(0.02)
    async with StorageProvider(place.again()) as other:
        assert await other.history.list_sessions() == ["b", "a", "c"]


async def test_cassettes_of_others_are_no_sessions(place: Place) -> None:
    async with StorageProvider(place.again()) as provider:
        await provider.history.append_messages("s", [said(1)])
    store = place.again()
    await store.open()
    for name in ("default", "history", "history/Not-Ours", "history/escaped/x", "history/a/b"):
        await store.append(name, HEAD, recording(0))
    await store.close()

    async with StorageProvider(place.again()) as provider:
        assert await provider.history.list_sessions() == ["s"]


@pytest.mark.parametrize(
    "document", [None, {}, {"name": "append_messages", "args": {"messages": [1]}}]
)
async def test_an_interaction_of_no_history_is_an_error_and_not_skipped(
    place: Place, document: Json
) -> None:
    async with StorageProvider(place.again()) as provider:
        await provider.history.append_messages("s", [said(1)])
    strange = recording(1).interaction
    if document is not None:
        strange = ForeignInteraction(
            1, {"kind": "memory_write", "request": document, "response": None}
        )
    store = place.again()
    await store.open()
    found = await store.load(cassette_name("s"), writable=True)
    assert found is not None
    await store.save(cassette_name("s"), StoredCassette(found.head, (*found.interactions, strange)))
    await store.close()

    async with StorageProvider(place.again()) as provider:
        with pytest.raises(CassetteCorrupt, match="interaction 1 of cassette 'history/s'"):
            await provider.history.get_history("s")
        await provider.history.clear_history("s")
        assert await provider.history.get_history("s") == []


async def test_of_several_messages_all_or_none_are_stored(history: HistoryStorage) -> None:
    for bad in (
        said(float("nan")),
        said({"a": "\udfff"}),
        said("x", ""),
        Message(1, "x"),  # type: ignore[arg-type] # what callers without types pass
        Message("user", "x", "2026-01-01"),  # type: ignore[arg-type] # the same
    ):
        with pytest.raises(RequestError):
            await history.append_messages("s", [said("good"), bad])

    assert await history.get_history("s") == []


async def test_a_credential_of_the_environment_is_not_stored(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "synthetic-0123456789")
    leak = said("my key is synthetic-0123456789")
    async with StorageProvider(place.again()) as provider:
        with pytest.raises(StoreError, match="'service-api-key' would still be in") as refused:
            await provider.history.append_messages("s", [leak])
        assert "0123456789" not in repr(refused.value)
        assert refused.value.message.endswith("or give StorageProvider keep_secrets=True")
        assert await provider.history.list_sessions() == []

    async with StorageProvider(place.again(), keep_secrets=True) as provider:
        await provider.history.append_messages("s", [leak])
        assert await provider.history.get_history("s") == [leak]


async def test_more_sessions_than_are_kept_open_lose_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "MAX_CLAIMED", 2)
    async with StorageProvider(place.again()) as provider:
        for number in range(2):
            for session in range(5):
                await provider.history.append_messages(f"s{session}", [said(number)])

    async with StorageProvider(place.again()) as provider:
        assert len(await provider.history.list_sessions()) == 5
        for session in range(5):
            found = await provider.history.get_history(f"s{session}")
            assert [message.content for message in found] == [0, 1]


async def test_a_session_that_was_read_may_be_continued_by_another_process(place: Place) -> None:
    async with StorageProvider(place.again()) as provider:
        await provider.history.append_messages("s", [said(0)])

    reader = StorageProvider(place.again())
    await reader.initialize()
    assert await reader.history.get_history("s") == [said(0)]
    writer = StorageProvider(place.again())
    await writer.initialize()
    await writer.history.append_messages("s", [said(1)])
    if place.again() is not place.again():
        await writer.close()
    await reader.history.append_messages("s", [said(2)])
    assert await reader.history.get_history("s") == [said(0), said(1), said(2)]
    await reader.close()


async def test_two_writers_of_one_session_lose_nothing_acknowledged(
    kind: Kind, place: Place
) -> None:
    kept: list[int] = []

    async def say(history: HistoryStorage, number: int) -> None:
        try:
            await history.append_messages("s", [said(number)])
        except StoreError:
            assert not kind.concurrent_writers
        else:
            kept.append(number)

    async with StorageProvider(place.again()) as one:
        two = StorageProvider(place.again())
        await two.initialize()
        both = (one.history, two.history)
        await asyncio.gather(*[say(both[number % 2], number) for number in range(20)])
        for history in both:
            found = [message.content for message in await history.get_history("s")]
            assert sorted(map(str, found)) == sorted(map(str, kept))
        if place.again() is not place.again():
            # Of memory there is only one.
            await two.close()
    assert kept


async def test_a_session_is_shown_as_a_conversation(place: Place) -> None:
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    async with StorageProvider(place.again()) as provider:
        await provider.history.append_messages("s", [Message("user", "2 + 2?", at)])
        await provider.history.append_messages("s", [Message("tool", {"sum": 4}), said("done")])
    store = place.again()
    await store.open()
    stored = await store.load(cassette_name("s"), writable=False)
    await store.close()

    assert stored is not None
    shown = await read_transcript(stored)
    assert [(message.role, message.content, message.at) for message in shown.messages] == [
        ("user", "2 + 2?", at.isoformat()),
        ("tool", "", None),
        ("user", "done", None),
    ]
    assert [part.value for part in shown.messages[1].parts] == [{"sum": 4}]
    assert {message.conversation for message in shown.messages} == {0}
    assert shown.left_out == ()


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("user-1", "history/user-1"),
        ("0f3e.v2", "history/0f3e.v2"),
        ("A", "history/escaped/s_41"),
        ("con", "history/escaped/scon"),
        ("a.", "history/escaped/sa_2e"),
        ("A.b.", "history/escaped/s_41_2eb_2e"),
        ("../x", "history/escaped/s.._2fx"),
        ("é", "history/escaped/s_c3_a9"),
        ("a" * 129, "history/escaped/s" + "a" * 127 + "/saa"),
    ],
)
def test_a_session_has_a_cassette(session: str, name: str) -> None:
    assert cassette_name(session) == name
    assert session_id_of(name) == session


@given(session=st.text(st.characters(codec="utf-8"), min_size=1, max_size=80))
def test_every_session_has_a_cassette_of_its_own_and_back(session: str) -> None:
    name = cassette_name(session)

    assert valid_cassette_name(name)
    assert name == name.lower()
    assert session_id_of(name) == session


@pytest.mark.parametrize(
    "name",
    [
        *("history", "x", "history/A", "history/a_b", "history/a/b", "other/a", "history/escaped"),
        *(
            "history/escaped/a",
            "history/escaped/s_4",
            "history/escaped/sab",
            "history/escaped/s_ff",
        ),
    ],
)
def test_other_cassettes_belong_to_no_session(name: str) -> None:
    assert session_id_of(name) in (None, "escaped")


@given(name=st.from_regex(r"history/[a-z_.0-9/]{1,40}", fullmatch=True))
def test_no_two_cassettes_are_of_one_session(name: str) -> None:
    session = session_id_of(name)
    assert session is None or cassette_name(session) == name


@pytest.mark.parametrize("session", ["", "\udcff", "Ä" * 200])
def test_a_session_id_without_a_cassette_name_is_refused(session: str) -> None:
    with pytest.raises(RequestError):
        cassette_name(session)
