"""The tapeway of a test run: a server for all processes of the run, and the environment of the
processes.

The process that starts the run starts the server and sets the variables before any test module is
imported. The workers of pytest-xdist inherit the variables, and replace the slot.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest

from ..embedded.admin_client import AdminClient, DeckError, segment
from ..embedded.client_variables import (
    ADMIN_URL_VARIABLE,
    URL_VARIABLE,
    ClientSetup,
    client_variables,
)
from ..embedded.deck import Deck, DeckMode
from ..embedded.last import last_url
from ..embedded.server_process import ServerProcess

_CONTROLLER = "_TAPEWAY_PYTEST"
_TOKEN = "TAPEWAY_ADMIN_TOKEN"  # noqa: S105 - the name of a variable
_WORKER = "PYTEST_XDIST_WORKER"
_MAIN = "main"
"""The slot of the process that starts the run."""
_FILES_LOOKED_AT = 50
_HEAD = 4096
_JOURNAL_SIZE = 100_000


class OuterVariables:
    """The variables that tapeway changed, with their values from before the run."""

    def __init__(self, before: Mapping[str, str | None]) -> None:
        self.before = before
        self._others: Mapping[str, str | None] = before
        """The values that are not in the environment now."""
        self._in_force = False

    @contextmanager
    def in_force(self, wanted: bool) -> Iterator[None]:
        """Have the values from before the run in the environment, or else those of tapeway."""
        if wanted == self._in_force:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        now = {name: os.environ.get(name) for name in self._others}
        _put(self._others)
        self._others = now
        self._in_force = not self._in_force


@dataclass(frozen=True, slots=True)
class Connection:
    """A process of a test run and its tapeway: `slot` is that process's own."""

    deck: Deck
    slot: str
    mode: DeckMode
    outer: OuterVariables
    is_worker: bool
    server: ServerProcess | None = None
    """The server that this process started; perhaps it does not serve yet."""
    record_command: str | None = None
    """The command that tapeway has been told to name for what was missed."""
    starts_server: bool = False
    """Whether this run started the tapeway, here or in the process above."""

    def wait(self) -> None:
        """Wait until the server serves. Raises UsageError if it does not start."""
        try:
            if self.server is not None:
                self.server.wait()
        except DeckError as exc:
            raise pytest.UsageError(f"--tapeway: {exc}") from exc


def connect(config: pytest.Config, given: str | None) -> Connection | None:
    """Connect this process, or None where the run does without tapeway. Raises UsageError."""
    if (inherited := _inherited()) is not None:
        return _join(config, inherited)
    if given == "off":
        return None
    try:
        mode = _mode(given, config.rootpath)
        return None if mode is None else _start(config, mode)
    except DeckError as exc:
        raise pytest.UsageError(f"--tapeway: {exc}") from exc


def _inherited() -> Mapping[str, Any] | None:
    """What the controller tells this worker; None outside of a worker."""
    text = os.environ.get(_CONTROLLER)
    if text is None or _WORKER not in os.environ:
        return None
    values: dict[str, Any] = json.loads(text)
    # A test may run pytest itself, which inherits the variables too.
    return values if values["pid"] == str(os.getppid()) else None


def _mode(given: str | None, root: Path) -> DeckMode | None:
    mode = given or os.environ.get("TAPEWAY_MODE")
    if mode is None and (running := _running()) is not None:
        mode = _mode_of(running)
        if mode is None:
            return None
    if mode is None:
        if not ((root / "tapeway.toml").exists() or _holds_cassettes(root / "cassettes")):
            return None
        mode = "replay"
    if mode == "auto" and os.environ.get("CI", "").lower() in ("true", "1"):
        mode = "replay"
    return cast("DeckMode", mode)


def _running() -> AdminClient | None:
    """The admin API of a tapeway that runs, as around `tapeway run -- pytest`."""
    admin = os.environ.get(ADMIN_URL_VARIABLE)
    # Build servers set a variable without a value to an empty text.
    return AdminClient(admin, _admin_token()) if admin else None


def _mode_of(running: AdminClient) -> str | None:
    """The mode of a tapeway whose store holds cassettes of single tests; None for cassettes of
    whole runs.

    Without the plugin's options a run keeps the form of the first recording: either the active
    cassette for all tests, or a cassette for each test. Raises DeckError for a tapeway that does not
    answer or refuses: tests without it would go to the network.
    """
    try:
        active = running.call("GET", "status")["cassette"]
        listed = running.call("GET", "cassettes", limit=2, counts=False)["cassettes"]
        if all(row["name"] == active for row in listed):
            return None
        if running.call("GET", f"cassettes/{segment(active)}/interactions", limit=1)[
            "interactions"
        ]:
            return None
    except DeckError as exc:
        # The active cassette does not exist: the store holds others.
        if exc.status != 404:
            raise
    mode: str = running.call("GET", "mode")["mode"]
    return mode


def _holds_cassettes(folder: Path) -> bool:
    """Whether a folder holds cassettes that tapeway recorded; other tools use the same name."""
    return any(map(_is_own, islice(folder.rglob("*.json"), _FILES_LOOKED_AT)))


def _is_own(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return b'"tapeway_version"' in opened.read(_HEAD)
    except OSError:
        return False


def _start(config: pytest.Config, mode: DeckMode) -> Connection:
    server = None
    if (admin := _running()) is not None:
        answer = admin.call("GET", "clients")
        clients = ClientSetup.of(answer)
        proxy = os.environ.get(URL_VARIABLE) or str(answer["proxy"])
        token = _admin_token()
    else:
        server = _own_server(config)
        clients, token = server.clients, server.token
        proxy, admin_url = server.urls
        if server.certificate is not None:
            proxy = proxy.replace("http:", "https:", 1)
        admin = AdminClient(admin_url, token)
    deck = Deck(proxy, admin, _MAIN, clients)
    url, dummies = deck.url(slot=_MAIN), mode == "replay"
    changed = client_variables(clients, url, admin.url, os.environ, dummies=dummies)
    values: dict[str, Any] = {
        "pid": str(os.getpid()),
        "proxy": proxy,
        "admin": admin.url,
        "mode": mode,
        "own": "" if server is None else "1",
        "record_command": clients.record_command or "",
    }
    # Around `tapeway run`, they lead to the proxy already.
    outer = {
        name: None if value is not None and _is_below(proxy, value) else value
        for name, value in ((name, os.environ.get(name)) for name in changed)
    }
    values["outer"] = outer
    if token is not None:
        changed[_TOKEN] = token
    changed[_CONTROLLER] = json.dumps(values)
    _set(config, changed)
    return Connection(
        *(deck, _MAIN, mode, OuterVariables(outer)),
        is_worker=False,
        server=server,
        record_command=clients.record_command,
        starts_server=server is not None,
    )


def _own_server(config: pytest.Config) -> ServerProcess:
    """A server for this run. The server may still be starting, and its settings are known."""
    server = ServerProcess(
        {
            # Requests past the slots are never asked live.
            "mode": "replay",
            "journal_size": _JOURNAL_SIZE,
            "admin_tls": False,
            "page_url": last_url(config.rootpath),
        },
        folder=config.rootpath,
        waits=False,
    )
    config.add_cleanup(server.stop)
    return server


def _join(config: pytest.Config, inherited: Mapping[str, Any]) -> Connection:
    slot = os.environ[_WORKER]
    deck = Deck(inherited["proxy"], AdminClient(inherited["admin"], _admin_token()), slot)
    old, new = deck.url(slot=_MAIN), deck.url(slot=slot)
    _set(config, dict(_moved_variables(old, new)))
    mode = cast("DeckMode", inherited["mode"])
    return Connection(
        *(deck, slot, mode, OuterVariables(inherited["outer"])),
        is_worker=True,
        record_command=inherited["record_command"] or None,
        starts_server=bool(inherited["own"]),
    )


def _admin_token() -> str | None:
    token, file = os.environ.get(_TOKEN), os.environ.get(f"{_TOKEN}_FILE")
    return token if token or not file else Path(file).read_text(encoding="utf-8").rstrip("\r\n")


def _moved_variables(old: str, new: str) -> Iterator[tuple[str, str]]:
    for name, value in os.environ.items():
        if _is_below(old, value):
            yield name, new + value.removeprefix(old)


def _is_below(root: str, url: str) -> bool:
    return url == root or url.startswith(f"{root}/")


def _set(config: pytest.Config, variables: Mapping[str, str]) -> None:
    """Set variables until the run ends."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)

    config.add_cleanup(lambda: _put(before))


def _put(variables: Mapping[str, str | None]) -> None:
    """Set variables, or remove those that are None."""
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
