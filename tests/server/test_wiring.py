"""How the process is tuned, and what stops its start."""

import gc
import socket
from contextlib import closing
from unittest.mock import MagicMock

import pytest

from tapeway.engine.journal import RequestJournal
from tapeway.errors import ConfigError
from tapeway.server import wiring
from tapeway.server.listeners import Listener
from tapeway.settings.options import Settings


def test_what_a_full_collection_left_is_not_collected_again() -> None:
    before = gc.get_freeze_count()
    # Only the collector calls the function, and when is up to the collector.
    freeze = wiring._freeze
    freeze("stop", {"generation": 1})
    freeze("start", {"generation": 2})
    assert gc.get_freeze_count() == before

    # It stays so: each collection of later tests would pass over all that is imported.
    freeze("stop", {"generation": 2})
    assert gc.get_freeze_count() > before


def test_an_admin_api_that_others_could_call_without_a_token_stops_the_start() -> None:
    open_to_all = Listener(socket.socket(), "10.0.0.1", 8081)
    with closing(open_to_all.socket), pytest.raises(ConfigError, match="set --admin-token"):
        wiring.make_admin(Settings(), MagicMock(), RequestJournal(1), open_to_all, proxy="")
