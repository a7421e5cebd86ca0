"""`tapeway.serve`: a proxy inside a blocking or an asynchronous program.

    with tapeway.serve(mode="replay", cassette="smoke") as deck:
        client = OpenAI(base_url=deck.url("openai"))

The proxy is a separate process: a patched clock or a blocked event loop of the program does not
disturb the proxy.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import update_wrapper
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from .admin_client import AdminClient, DeckError, segment
from .client_variables import ClientSetup
from .server_process import ServerProcess

DeckMode = Literal["replay", "record", "auto", "passthrough"]
Given = ParamSpec("Given")
T = TypeVar("T")


class Deck:
    """A running tapeway, for a program that blocks. Its methods raise DeckError."""

    def __init__(
        self,
        proxy_url: str,
        admin: AdminClient,
        slot: str | None = None,
        clients: ClientSetup | None = None,
    ) -> None:
        """`clients` says how clients reach the proxy; without it, the admin API is asked."""
        self.proxy_url = proxy_url
        self.admin = admin
        self._slot = slot
        self._clients = clients

    @property
    def admin_url(self) -> str:
        """Where its admin API listens."""
        return self.admin.url

    @property
    def clients(self) -> ClientSetup:
        """How clients reach the proxy."""
        if self._clients is None:
            self._clients = ClientSetup.of(self.admin.call("GET", "clients"))
        return self._clients

    def url(
        self, route: str | None = None, *, cassette: str | None = None, slot: str | None = None
    ) -> str:
        """The base URL for a route's SDK, or the URL of the proxy without a route.

        With `cassette` or `slot`, requests go to this cassette or through this slot; in pytest the
        slot is that of the test, if neither is given.
        """
        root, slot = self.proxy_url, slot or self._slot
        if cassette is not None:
            root = f"{root}/@{segment(cassette)}"
        elif slot is not None:
            root = f"{root}/@~{segment(slot)}"
        return root if route is None else root + self.clients.routes.get(route, f"/{route}")

    def mode(
        self,
        mode: DeckMode | None = None,
        *,
        cassette: str | None = None,
        everywhere: bool = False,
    ) -> DeckMode:
        """Set the mode, for all cassettes or for one; without `mode`, tell it.

        `everywhere` sets it for cassettes with a mode of their own too, and ends those modes.
        """
        if mode is None:
            answer = self.admin.call("GET", "mode", cassette=cassette)
        else:
            sent = {"mode": mode, "cassette": cassette, "all": everywhere}
            answer = self.admin.call("PUT", "mode", sent)
        answered: DeckMode = answer["mode"]
        return answered

    def insert(self, cassette: str, mode: DeckMode | None = None) -> None:
        """Make a cassette the active one, in a new take."""
        self.admin.call("POST", "insert", {"cassette": cassette, "mode": mode})

    def point(
        self,
        slot: str,
        cassette: str,
        mode: DeckMode | None = None,
        *,
        rules: Mapping[str, object] | None = None,
        record_command: str | None = None,
        faults: Sequence[Mapping[str, object]] = (),
    ) -> int:
        """Point a slot at a cassette, which gets these rules too; returns the number of its take.

        Log, page and reports name `record_command` for what is missed through the slot. `faults` are
        laid over what is replayed through it.
        """
        sent: dict[str, object] = {
            "cassette": cassette,
            "mode": mode,
            "rules": None if rules is None else {**rules},
            "record_command": record_command,
        }
        if faults:
            sent["faults"] = [{**fault} for fault in faults]
        answer = self.admin.call("PUT", f"slots/{segment(slot)}", sent)
        take: int = answer["take"]
        return take

    def faults(self, faults: Sequence[Mapping[str, object]]) -> None:
        """Lay these faults over all that is replayed, in place of those before."""
        self.admin.call("PUT", "faults", {"faults": [{**fault} for fault in faults]})

    def rewind(self, cassette: str | None = None) -> None:
        """Start a new take, for all cassettes or for one."""
        self.admin.call("POST", "rewind", {"cassette": cassette})

    def eject(self, cassette: str | None = None, *, prune: bool = False) -> dict[str, Any]:
        """Write the final form of a cassette (the active one), unload it, and return its report."""
        answer = self.admin.call("POST", "eject", {"cassette": cassette, "prune": prune})
        (report,) = answer["cassettes"]
        ejected: dict[str, Any] = report
        return ejected

    def report(self) -> dict[str, Any]:
        """How the cassettes were used, in the form of `GET /api/v1/report`."""
        report: dict[str, Any] = self.admin.call("GET", "report")
        return report

    def requests(
        self, slot: str | None = None, take: int | None = None, *, since: int | None = None
    ) -> list[dict[str, Any]]:
        """The requests through a slot since its last change of cassette, oldest first.

        With `take` only in this take of the slot, with `since` in this take and later takes; in
        pytest the slot of the test is the default. Each has `id`, `take`, `method`, `route`,
        `path`, `headers` and the parsed `body`, without secrets.
        """
        if (slot := slot or self._slot) is None:
            raise DeckError("only requests through slots are kept: name one", "no_slot")
        answer = self.admin.call("GET", f"slots/{segment(slot)}/requests", take=take, since=since)
        requests: list[dict[str, Any]] = answer["requests"]
        return requests

    def journal(self, /, **query: object) -> list[dict[str, Any]]:
        """The newest requests, newest first; `outcome="miss"` and the like narrow them."""
        entries: list[dict[str, Any]] = self.admin.call("GET", "journal", **query)["entries"]
        return entries


def _in_thread(
    method: Callable[Concatenate[Deck, Given], T],
) -> "Callable[Concatenate[AsyncDeck, Given], Coroutine[Any, Any, T]]":
    """A method of Deck that waits in a thread."""

    async def call(self: "AsyncDeck", /, *args: Given.args, **kwargs: Given.kwargs) -> T:
        return await asyncio.to_thread(method, self.deck, *args, **kwargs)

    return update_wrapper(call, method)


class AsyncDeck:
    """A running tapeway, for an asynchronous program: every method but `url` is awaited."""

    def __init__(self, deck: Deck) -> None:
        self.deck = deck
        self.proxy_url = deck.proxy_url
        self.admin_url = deck.admin_url
        self.url = deck.url

    mode = _in_thread(Deck.mode)
    insert = _in_thread(Deck.insert)
    point = _in_thread(Deck.point)
    faults = _in_thread(Deck.faults)
    rewind = _in_thread(Deck.rewind)
    eject = _in_thread(Deck.eject)
    report = _in_thread(Deck.report)
    requests = _in_thread(Deck.requests)
    journal = _in_thread(Deck.journal)


class ServingDeck:
    """A tapeway that runs inside `with` (a Deck) or `async with` (an AsyncDeck)."""

    def __init__(self, options: dict[str, object]) -> None:
        self._options = options
        self._process: ServerProcess | None = None

    def __enter__(self) -> Deck:
        if self._process is not None:
            raise DeckError("this tapeway runs already: call serve again for another", "running")
        # The certificate may name a host other than loopback.
        self._process = process = ServerProcess({"admin_tls": False, **self._options})
        ready = process.wait()
        if ready["admin"] is None:
            self.__exit__(None, None, None)
            raise DeckError(
                "tapeway.serve needs the admin API: leave out admin_listen='off'", "no_admin"
            )
        admin = AdminClient(ready["admin"], process.token, certificate=process.certificate)
        return Deck(ready["proxy"], admin, clients=process.clients)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    async def __aenter__(self) -> AsyncDeck:
        try:
            return AsyncDeck(await _to_end(self.__enter__))
        except asyncio.CancelledError:
            await _to_end(lambda: self.__exit__(None, None, None))
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await _to_end(lambda: self.__exit__(kind, exc, trace))


def serve(
    *,
    mode: DeckMode | None = None,
    cassette: str | None = None,
    store: str | None = None,
    upstream: str | None = None,
    route: Sequence[str] = (),
    **options: object,
) -> ServingDeck:
    """A proxy inside `with` or `async with`, on free ports.

    The options are those of `tapeway serve`, with `_` for `-`; tapeway.toml and `TAPEWAY_…` count as
    they do there. Entering raises DeckError if it cannot start.
    """
    given = {"mode": mode, "cassette": cassette, "store": store, "upstream": upstream}
    return ServingDeck({**given, "route": list(route), **options})


async def _to_end(work: Callable[[], T]) -> T:
    """Run the work in a thread to the end: a cancellation leaves no process behind."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
