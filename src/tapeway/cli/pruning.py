"""Which recordings of a cassette are to go: those a run did not use, or earlier answers."""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pydantic import BaseModel, ValidationError

from tapeway.admin.models.schema import legible
from tapeway.cli import exhibits
from tapeway.core.agenttape import lookup
from tapeway.core.http.routing import origin
from tapeway.core.matching.key import digest_of, request_key
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import Held
from tapeway.core.model.interaction import Interaction, fingerprint
from tapeway.errors import ConfigError
from tapeway.paging import CassetteWalk


class Unused(BaseModel):
    """A recording that a report names."""

    index: int
    method: str
    path: str
    mark: str | None = None


class ReportedUse(BaseModel):
    """What a report says of one cassette's use."""

    name: str
    unused: list[Unused]


class UseReport(BaseModel):
    """The part of a report that says what went unused."""

    cassettes: list[ReportedUse]


def read_report(text: bytes, shown: str) -> dict[str, list[Unused]]:
    """What each cassette did not need, by its name. Raises ConfigError for what is no report."""
    try:
        found = UseReport.model_validate_json(text)
    except ValidationError:
        raise ConfigError(
            f"{shown} is no report: give the JSON that tapeway run --report FILE.json wrote, or "
            "that GET /api/v1/report answered"
        ) from None
    return {each.name: each.unused for each in found.cassettes}


@dataclass(frozen=True, slots=True)
class Going:
    """A recording that goes, and its line for people."""

    index: int
    title: str


@dataclass(slots=True)
class Choice:
    """What goes, in order, of how many there were."""

    total: int = 0
    going: list[Going] = field(default_factory=list)


class UnusedOnes:
    """Finds the recordings a report names, also under other numbers.

    `numbered_for_good` where a number never comes to mean another recording: then a report without
    marks will do, and one that is gone went before.
    """

    def __init__(self, named: Sequence[Unused], shown: str, *, numbered_for_good: bool) -> None:
        self._shown = shown
        self._by_index = {each.index: each for each in named if each.mark is None}
        if self._by_index and not numbered_for_good:
            raise ConfigError(f"the report does not say which recordings of {shown}: {_ANEW}")
        self._by_mark: dict[str, list[Unused]] = defaultdict(list)
        for each in named:
            if each.mark is not None:
                self._by_mark[each.mark].append(each)
        self._seen: dict[str, list[Going]] = defaultdict(list)
        self._found: list[Going] = []

    def look(self, item: Held) -> None:
        """Take note of one as it goes by. Raises ConfigError for one that is another by now."""
        if not isinstance(item, Interaction):
            return
        if self._by_mark and (mark := fingerprint(item)) in self._by_mark:
            self._seen[mark].append(_going(item))
        if (named := self._by_index.get(item.index)) is not None:
            request = item.request
            if (request.method, legible(request.target)) != (named.method, named.path):
                raise self._changed(named)
            self._found.append(_going(item))

    def chosen(self) -> list[Going]:
        """Those to drop, once all went by. Raises ConfigError where some are not there."""
        found = self._found
        for mark, named in self._by_mark.items():
            numbers = {each.index for each in named}
            same = self._seen.get(mark, [])
            if len(same) < len(named):
                raise self._changed(named[0])
            # Of several that are the same in all, the last ones are those that were not reached.
            same.sort(key=lambda each: (each.index not in numbers, -each.index))
            found += same[: len(named)]
        return found

    def _changed(self, named: Unused) -> ConfigError:
        return ConfigError(
            f"{self._shown} has changed since the report, where #{named.index} was {named.method} "
            f"{named.path}: {_ANEW}"
        )


_ANEW = "make a new report with tapeway run --report FILE.json"


class EarlierOnes:
    """Finds, of the recordings of one request, all but the last ones."""

    def __init__(self, keep: int, rules: Rules) -> None:
        self._keep = keep
        self._rules = rules
        self._last: dict[tuple[str, bytes], deque[Going]] = defaultdict(deque)

    def look(self, item: Held) -> Going | None:
        """One that is too many now that this one went by."""
        # What answers in order, whatever is asked, is no repeat of anything.
        if not isinstance(item, Interaction) or lookup.is_ordered(item):
            return None
        request = item.request
        route = request.route or origin(request.base)
        last = self._last[route, digest_of(request_key(request, self._rules))]
        last.append(_going(item))
        return last.popleft() if len(last) > self._keep else None


async def choose(
    through: CassetteWalk, unused: UnusedOnes | None, earlier: EarlierOnes | None
) -> Choice:
    """What goes by either. Raises ConfigError, StoreError."""
    choice = Choice()
    going: dict[int, Going] = {}
    async for item in through.items:
        choice.total += 1
        if unused is not None:
            unused.look(item)
        if earlier is not None and (one := earlier.look(item)) is not None:
            going[one.index] = one
    going |= {each.index: each for each in (unused.chosen() if unused is not None else [])}
    choice.going = [going[index] for index in sorted(going)]
    return choice


def _going(item: Interaction) -> Going:
    return Going(item.index, exhibits.summary(item))
