"""`tapeway cassette verify`: check that cassettes are complete and consistent.

The checks cover large bodies with digests, match keys, and the headers that decide on the requests
of a recording. Each interaction has to survive a write and a read, and a database's
index has to find the interaction by its request and by no other request. A note says where a
request repeats an answer in another form.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import click

from tapeway.body_files import body_pieces
from tapeway.cli import changes, terminal
from tapeway.cli.cassette_arguments import OpenStores, existing, is_address, locate, opened
from tapeway.cli.options import OutputFormat, cassette_command
from tapeway.cli.transfer.batches import is_unfinished
from tapeway.conversations.repeated_answers import RepeatedAnswers
from tapeway.core.agenttape import key
from tapeway.core.cassette.recording_keys import recording_key
from tapeway.core.http.headers import find_header
from tapeway.core.json_text import Json, dump
from tapeway.core.matching.headers.conditions import varied_names
from tapeway.core.matching.rules import Rules
from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import (
    AnyInteraction,
    ForeignInteraction,
    Interaction,
    exchange_of,
    large_bodies,
)
from tapeway.core.model.messages import BodyFile, Request, Response
from tapeway.errors import StoreAway, StoreError, TapewayError
from tapeway.formats.errors import FormatFault
from tapeway.formats.fields import Document
from tapeway.formats.native.document import encode, load, write
from tapeway.paging import CassetteRef
from tapeway.ports import CassetteStore, SharedStore
from tapeway.settings.options import Settings
from tapeway.stores.opening import open_store

_ASKING = (
    *("upstream", "route", "allow_address", "sign"),
    *("upstream_proxy", "upstream_ca", "upstream_cert", "insecure_upstream"),
    *("connect_timeout", "upstream_timeout", "max_body"),
)
"""The options about the services that `--live` asks."""

_BUDGET = 10
_NO_HEAD = CassetteHead("", "")
_UNFINISHED = "an interrupted conversion left this behind: convert again, or remove it"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an interaction, or, without an index, with the whole cassette."""

    index: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What was found in a cassette, or in `error` why it could not be read."""

    name: str
    interactions: int = 0
    bodies: int = 0
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    error: str | None = None


@cassette_command(*_ASKING)
@click.argument("names", metavar="[NAME|FILE|STORE#NAME]...", nargs=-1)
@click.option(
    "--live", is_flag=True, help="Ask the services, and report how their answers changed."
)
@click.option(
    "--budget",
    type=click.IntRange(min=1),
    metavar="N",
    help="The most calls that --live makes, of all cassettes together. [10]",
)
@click.option(
    "--rewrite-keys", is_flag=True, help="Compute the match keys of edited requests anew."
)
def verify(
    names: tuple[str, ...],
    live: bool,
    budget: int | None,
    rewrite_keys: bool,
    output_format: OutputFormat,
    settings: Settings,
) -> int:
    """Check that cassettes are complete and consistent.

    tapeway verify and tapeway cassette verify are one command: they differ in nothing but the name.
    Without a name of a cassette, it checks all of the store, and a database also checks itself.

    \b
        tapeway cassette verify
        tapeway cassette verify smoke cassettes/suite/login.json
        tapeway cassette verify --live --budget 3 smoke

    \b
    Exit codes:
        0  all is well
        1  something is wrong, or with --live a field has another type
        2  a cassette or the store cannot be read, or a service does not answer

    The check reads everything. Large bodies and assets must exist and have the digests in their
    names. Each match key must belong to its request. Each recording must keep the headers that the
    answer depends on (Vary). Each interaction must be unchanged after a write and a read. A database
    must find each interaction by its request and by no other request.

    A note names each request that repeats an answer in another form: a client that gets the edited
    answer sends a different request.

    --live compares the form of new answers with recorded answers instead, and writes nothing. An
    added field is an info, a missing field a warning, another type or status an error. The keys of
    the environment are sent, and only calls that change nothing at the service are made.
    """
    if live and rewrite_keys:
        raise click.UsageError("--live writes nothing: leave out --rewrite-keys.")
    if live:
        return _verify_live(names, settings, budget or _BUDGET, output_format)
    if budget is not None:
        raise click.UsageError("--budget is for --live.")
    results = asyncio.run(_verify(names, settings.store, rewrite_keys=rewrite_keys))
    if output_format == "json":
        click.echo(dump([_as_json(result) for result in results], indent=True).decode())
    else:
        for result in results:
            _print(result)
    if any(result.error is not None for result in results):
        return terminal.NOT_DONE
    return terminal.FOUND if any(result.problems for result in results) else terminal.DONE


def _verify_live(
    names: Sequence[str], settings: Settings, budget: int, output_format: OutputFormat
) -> int:
    # Only here: it takes a while to load.
    from tapeway.cli.comparison import live

    if not names:
        existing(open_store(settings.store))
        names = asyncio.run(_names(settings.store))
    results = asyncio.run(live.verify_live(names, settings, budget))
    if output_format == "json":
        click.echo(dump([live.document(result) for result in results], indent=True).decode())
    for result in results:
        if result.error is not None:
            terminal.print_error(result.error)
        elif output_format == "text":
            for line in live.lines(result):
                click.echo(line)
    if any(result.count("error") for result in results):
        return terminal.FOUND
    return terminal.NOT_DONE if any(result.failed for result in results) else terminal.DONE


async def _verify(names: Sequence[str], store: str, *, rewrite_keys: bool) -> list[VerifyResult]:
    async with OpenStores() as stores:
        if names:
            return await _verify_each(names, store, stores, rewrite_keys=rewrite_keys)
        database = await stores.opened(existing(open_store(store)))
        every = await database.names()
        results = await _verify_each(every, store, stores, rewrite_keys=rewrite_keys)
        return [*results, *await _check_store(database)]


async def _verify_each(
    names: Sequence[str], store: str, stores: OpenStores, *, rewrite_keys: bool
) -> list[VerifyResult]:
    with terminal.progress_of_all("checking", list(names)) as every:
        return [await _verify_one(name, store, stores, rewrite_keys=rewrite_keys) for name in every]


async def _names(store: str) -> Sequence[str]:
    async with opened(open_store(store)) as opened_store:
        return await opened_store.names()


async def _verify_one(
    argument: str, store: str, stores: OpenStores, *, rewrite_keys: bool
) -> VerifyResult:
    # A store's address may contain a password.
    shown = f"{argument.partition(':')[0]}:…" if is_address(argument) else argument
    try:
        unopened = locate(argument, store)
        shown = unopened.shown
        async with stores.cassette(unopened) as cassette:
            if rewrite_keys:
                await _rewrite_keys(cassette)
            return await _check_cassette(cassette)
    except StoreAway:
        raise
    except TapewayError as exc:
        return VerifyResult(shown, error=exc.message)


async def _rewrite_keys(cassette: CassetteRef) -> None:
    """Put the computed match key in the place of each wrong one. Raises StoreError."""

    def with_right_key(item: AnyInteraction, document: Document) -> Document:
        right = _right_key(item)
        return document if right is None else {**document, "match_key": right}

    async for item in (await cassette.walk()).items:
        if _right_key(item) is not None:
            break
    else:
        # Somebody may record into a cassette that stays as it is.
        return
    async with changes.claimed(cassette) as claimed:
        await claimed.change(with_right_key, claimed.head)


def _right_key(item: AnyInteraction) -> str | None:
    """The match key of the request, if the interaction has another one."""
    # A foreign tool computed its key from a request that is not in the cassette.
    if not isinstance(item, Interaction) or item.stored_keys or not item.match_key:
        return None
    computed = key.http_key(item.request)
    return None if computed in ("", item.match_key) else computed


async def _check_cassette(cassette: CassetteRef) -> VerifyResult:
    walk = await cassette.walk()
    index = None
    if (shared := cassette.store.shared) is not None:
        index = IndexCheck(shared, cassette.name, cassette.rules(walk.head))
    problems: list[Problem] = []
    bodies: set[str] = set()
    repeated = RepeatedAnswers()
    count = 0
    with terminal.progress(cassette.shown, walk.count) as step:
        async for item in walk.items:
            count += 1
            problems += [
                Problem(item.index, problem) for problem in _check_interaction(item, bodies)
            ]
            problems += await index.problems(item) if index is not None else []
            if isinstance(item, Interaction):
                repeated.add(item)
            step(1)
    problems += index.left_over() if index is not None else []
    if is_unfinished(walk.head):
        problems.append(Problem(None, _UNFINISHED))
    elif count != walk.count:
        problems.append(
            Problem(None, f"the store counts {walk.count} interactions, but {count} are there")
        )
    notes = [Problem(difference.index, str(difference)) for difference in repeated.differences]
    return VerifyResult(cassette.shown, count, len(bodies), tuple(problems), tuple(notes))


def _check_interaction(item: AnyInteraction, bodies: set[str]) -> Iterator[str]:
    """What is wrong with it. Each large body is read once: `bodies` are the digests of those read."""
    for file in large_bodies(item):
        if file.digest not in bodies:
            bodies.add(file.digest)
            yield from _check_body(file)
    if isinstance(item, Interaction):
        yield from _check_key(item)
        yield from _check_headers(item)
    yield from _check_round_trip(item)


def _check_body(file: BodyFile) -> Iterator[str]:
    try:
        for _ in body_pieces(file):
            pass
    except StoreError as exc:
        yield exc.message


def _check_key(item: Interaction) -> Iterator[str]:
    if (right := _right_key(item)) is not None:
        yield (
            "its match_key does not belong to its request: tapeway does not use it, but AgentTape's "
            f"tools would look for {right}; verify --rewrite-keys writes it"
        )


def _check_headers(item: Interaction) -> Iterator[str]:
    """Whether a recording by tapeway lacks headers that decide on its requests."""
    request, response = item.request, item.response
    if not request.route or item.stored_keys:
        return
    missing = [name for name in varied_names(response.headers) if name not in request.varied]
    if missing:
        yield (
            f"its answer depends on {', '.join(missing)} (Vary), but the recording does not keep what "
            "its request said there: it answers requests that say anything; record it again"
        )
    asks = find_header(request.headers, b"access-control-request-method")
    permits = find_header(response.headers, b"access-control-allow-methods")
    if request.method == "OPTIONS" and permits is not None and asks is None:
        yield (
            "it is a preflight without the method that was asked for: it answers no preflight; record "
            "it again"
        )


def _check_round_trip(item: AnyInteraction) -> Iterator[str]:
    try:
        reread = load(write(_NO_HEAD, [encode(item)])).interactions[0]
    except FormatFault as fault:
        yield f"it cannot be written and read again: {fault}"
        return
    if _without_place(reread) != _without_place(item):
        yield "written and read again, it is another one"


def _without_place(item: AnyInteraction) -> AnyInteraction:
    """The interaction without the fields that depend on the store."""
    if isinstance(item, ForeignInteraction):
        fields = {name: member for name, member in item.document.items() if name != "index"}
        return ForeignInteraction(0, fields)
    request: Request = item.request
    response: Response = item.response
    if request.file is not None:
        request = replace(request, file=replace(request.file, path=""))
    if response.file is not None:
        response = replace(response, file=replace(response.file, path=""))
    return replace(item, index=0, request=request, response=response, match_key="")


class IndexCheck:
    """Compares the log of a shared store with the interactions of a cassette, one after the other."""

    def __init__(self, store: SharedStore, name: str, rules: Rules) -> None:
        self._store = store
        self._name = name
        self._rules = rules
        self._seen = 0
        self._keys: dict[int, bytes | None] | None = None

    async def problems(self, item: AnyInteraction) -> list[Problem]:
        """Check that the log tells of the interaction, with its match key. Raises StoreError."""
        if self._keys is None:
            self._keys = await self._read()
        if item.index not in self._keys:
            return [Problem(item.index, "the store does not find it by its request")]
        key, exchange = self._keys.pop(item.index), exchange_of(item)
        if exchange is None or key in (None, recording_key(exchange, self._rules)):
            return []
        return [Problem(item.index, "the store finds it by a request it does not have")]

    async def _read(self) -> dict[int, bytes | None]:
        keys = dict[int, bytes | None]()
        while (page := await self._store.since(self._name, self._seen)) is not None:
            for row in page.rows:
                keys.pop(row.number, None)
                if row.live:
                    keys[row.number] = row.key
            self._seen = page.seen
            if page.seen == page.revision:
                break
        return keys

    def left_over(self) -> list[Problem]:
        """Interactions of the log that are not there; call it after all were checked."""
        left = sorted(self._keys or ())
        return [Problem(index, "the store finds it, and it is not there") for index in left]


async def _check_store(store: CassetteStore) -> list[VerifyResult]:
    problems = tuple([Problem(None, problem) for problem in await store.check()])
    return [VerifyResult(store.url, problems=problems)] if problems else []


def _as_json(result: VerifyResult) -> Json:
    problems: list[Json] = [
        {"index": problem.index, "reason": problem.reason} for problem in result.problems
    ]
    return {
        "name": result.name,
        "interactions": result.interactions,
        "large_bodies": result.bodies,
        "problems": problems,
        "notes": [{"index": note.index, "reason": note.reason} for note in result.notes],
        "error": result.error,
    }


def _print(result: VerifyResult) -> None:
    name = terminal.line(result.name)
    if result.error is not None:
        terminal.print_error(result.error)
        return
    for problem in result.problems:
        at = "" if problem.index is None else f"#{problem.index}: "
        click.echo(f"{name}: {terminal.styled(at + terminal.line(problem.reason), 'bad')}")
    for note in result.notes:
        click.echo(f"{name}: {terminal.styled(f'#{note.index}: {note.reason}', 'note')}")
    if not result.problems:
        bodies = f", {terminal.counted(result.bodies, 'large body', 'large bodies')}"
        count = terminal.counted(result.interactions, "interaction")
        whole = terminal.styled("whole", "good")
        click.echo(f"{name}: {count}{bodies if result.bodies else ''}, {whole}")
