"""From a session's id to its cassette and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.http.routing import valid_cassette_name
from tapeway.errors import RequestError
from tapeway.integrations.history.storage import name_of, session_of


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("user-1", "history/user-1"),
        ("0f3e.v2", "history/0f3e.v2"),
        ("A", "history/escaped/s_41"),
        ("../x", "history/escaped/s.._2fx"),
        ("é", "history/escaped/s_c3_a9"),
        ("a" * 129, "history/escaped/s" + "a" * 127 + "/saa"),
    ],
)
def test_a_session_has_a_cassette(session: str, name: str) -> None:
    assert name_of(session) == name
    assert session_of(name) == session


@given(session=st.text(st.characters(codec="utf-8"), min_size=1, max_size=80))
def test_every_session_has_a_cassette_of_its_own_and_back(session: str) -> None:
    name = name_of(session)

    assert valid_cassette_name(name)
    assert name == name.lower()
    assert session_of(name) == session


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
def test_other_cassettes_are_nobodys(name: str) -> None:
    assert session_of(name) in (None, "escaped")


@given(name=st.from_regex(r"history/[a-z_.0-9/]{1,40}", fullmatch=True))
def test_no_two_cassettes_are_of_one_session(name: str) -> None:
    session = session_of(name)
    assert session is None or name_of(session) == name


@pytest.mark.parametrize("session", ["", "\udcff", "Ä" * 200])
def test_what_has_no_cassette_is_refused(session: str) -> None:
    with pytest.raises(RequestError):
        name_of(session)
