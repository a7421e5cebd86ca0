"""What `@pytest.mark.tapeway(cassette=…, mode=…, rules=…, faults=…)` asks for a test."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

import pytest

from ..embedded.admin_client import AdminClient
from ..embedded.deck import DeckMode
from .names import cassette_name

MARKER = "tapeway"
MARKER_HELP = (
    "tapeway(cassette=NAME, mode=MODE, rules={…}, faults=[…]): the cassette of a test, its mode, its "
    "matching rules, and the faults laid over what is replayed. {test} in NAME stands for the test's own name without its parameters."
)
_ARGUMENTS = ("cassette", "mode", "rules", "faults")


@dataclass(frozen=True, slots=True)
class RecordedTest:
    """How a test uses tapeway: other tests may name a `shared` cassette too."""

    cassette: str
    shared: bool
    mode: DeckMode | None
    rules: Mapping[str, object] | None
    faults: tuple[Mapping[str, object], ...] = ()


def recorded_as(item: pytest.Item) -> RecordedTest:
    """The use of tapeway by a test, from markers and name; for each argument the nearest marker counts.

    Raises UsageError for an unknown argument or value; `check` has tapeway look at the rest.
    """
    given: dict[str, object] = {}
    for marker in item.iter_markers(MARKER):
        if marker.args or not marker.kwargs.keys() <= {*_ARGUMENTS}:
            unknown = [*map(repr, marker.args), *(marker.kwargs.keys() - {*_ARGUMENTS})]
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.tapeway takes {', '.join(_ARGUMENTS)} by name, "
                f"and no {unknown[0]}"
            )
        given = {**marker.kwargs, **given}
    mode, rules, cassette = given.get("mode"), given.get("rules"), given.get("cassette")
    if mode is not None and mode not in get_args(DeckMode):
        modes = ", ".join(get_args(DeckMode))
        raise pytest.UsageError(f"{item.nodeid}: there is no mode {mode!r}: use {modes}")
    if rules is not None and not (
        isinstance(rules, Mapping) and all(isinstance(rule, str) for rule in rules)
    ):
        raise pytest.UsageError(f"{item.nodeid}: rules must be a dict, such as {{'ignore': […]}}")
    faults = given.get("faults", ())
    if not isinstance(faults, list | tuple) or not all(
        isinstance(each, Mapping) for each in faults
    ):
        raise pytest.UsageError(
            f"{item.nodeid}: faults must be a list of dicts, such as "
            "[{'name': 'busy', 'do': '429'}]"
        )
    if mode == "auto" and os.environ.get("CI", "").lower() in ("true", "1"):
        mode = "replay"
    own = cassette_name(item.nodeid)
    name = own if cassette is None else _formatted(item, str(cassette))
    return RecordedTest(name, name != own, cast("DeckMode | None", mode), rules, tuple(faults))


def check(recorded: RecordedTest, admin: AdminClient) -> None:
    """Ask tapeway whether it takes name, rules and faults of a test. Raises DeckError if not."""
    asked: dict[str, object] = {"cassette": recorded.cassette, "rules": recorded.rules}
    if recorded.faults:
        asked["faults"] = [{**fault} for fault in recorded.faults]
    admin.call("POST", "check", asked)


def _formatted(item: pytest.Item, template: str) -> str:
    try:
        return template.format(test=cassette_name(item.nodeid, params=False))
    except (AttributeError, KeyError, IndexError, ValueError):
        raise pytest.UsageError(
            f"{item.nodeid}: cassette={template!r} may hold {{test}} and no other braces"
        ) from None
