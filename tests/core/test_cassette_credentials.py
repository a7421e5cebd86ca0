"""Whose recording answers where requests differ in nothing but a credential."""

from tapeway.core.cassette.index import CassetteIndex
from tapeway.core.matching.key import credential_mark, request_key
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseChunk, ResponseHead
from tapeway.core.redaction.redactor import Redactor

HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run")


def _paged(index: int, token: str) -> Interaction:
    request = Redactor("salt").request(Request("r", "GET", f"/list?token={token}"))
    return Interaction(
        index, request, Response(ResponseHead(200), (ResponseChunk(token.encode()),))
    )


def _asks(token: str) -> tuple[bytes, bytes]:
    request = Redactor("salt").request(Request("r", "GET", f"/list?token={token}"))
    return request_key(request), credential_mark(request)


def test_one_recorded_credential_answers_for_any_other_and_for_none() -> None:
    cassette = CassetteIndex("c", StoredCassette(HEAD, (_paged(0, "a" * 20),)), take=1)
    key, mark = _asks("b" * 20)

    found = cassette.next(key, "last", mark)

    assert found is not None
    assert cassette.next(key, "last") is found


def test_several_recorded_tokens_each_answer_for_themselves_and_for_no_other() -> None:
    pages = tuple(_paged(index, letter * 20) for index, letter in enumerate("abc"))
    cassette = CassetteIndex("c", StoredCassette(HEAD, pages), take=1)

    for page, letter in zip(pages, "abc", strict=True):
        key, mark = _asks(letter * 20)
        assert cassette.next(key, "last", mark) is page
        assert cassette.count(key, mark) == 1
    key, mark = _asks("d" * 20)
    assert cassette.next(key, "last", mark) is None
    assert cassette.count(key, mark) == 0


def test_a_recording_with_another_credential_replaces_the_one_there_was_and_not_its_own_takes() -> (
    None
):
    cassette = CassetteIndex("c", StoredCassette(HEAD, (_paged(0, "a" * 20),)), take=1)
    cassette.start_take(2)
    key, _ = _asks("b" * 20)

    first = cassette.recording(_paged(0, "b" * 20), key, cassette.take, replaces=True)
    cassette.add(first, key, cassette.take)
    second = cassette.recording(_paged(0, "c" * 20), key, cassette.take, replaces=True)
    cassette.add(second, key, cassette.take)

    assert first.supersedes == (0,)
    assert second.supersedes == ()
    assert [cassette.count(*_asks(letter * 20)) for letter in "abc"] == [0, 1, 1]


def test_recording_the_pages_again_replaces_each_page_by_itself() -> None:
    pages = tuple(_paged(index, letter * 20) for index, letter in enumerate("ab"))
    cassette = CassetteIndex("c", StoredCassette(HEAD, pages), take=1)
    cassette.start_take(2)
    superseded = []
    for letter in "ab":
        key, _ = _asks(letter * 20)
        step = cassette.recording(_paged(0, letter * 20), key, cassette.take, replaces=True)
        cassette.add(step, key, cassette.take)
        superseded.append(step.supersedes)

    assert superseded == [(0,), (1,)]
    assert len(cassette) == 2
