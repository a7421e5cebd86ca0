"""The command that records a missed request: the place for all that name one."""

import shlex
from dataclasses import replace

from tapeway.core.json_text import dump
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.misses.miss import Miss
from tapeway.engine.broker import Broker


class RecordCommands:
    """Tells for each miss the command that fits where the request came from.

    That is the command of the slot that the request came through, or else `configured`, or else a
    switch of the cassette's mode by the admin API at the URL `admin`. `salt` is for placeholders of
    secrets.
    """

    def __init__(
        self, broker: Broker, salt: str, *, configured: str | None, admin: str | None, token: bool
    ) -> None:
        """`token` says whether the admin API asks for one."""
        self._broker = broker
        self._salt = salt
        self._configured = configured
        self._admin = admin
        self._token = token

    def told(self, miss: Miss, slot: str | None) -> Miss:
        """The miss with its command; the request came through `slot`."""
        return replace(miss, record_command=self._of(miss.cassette, slot))

    def _of(self, cassette: str, slot: str | None) -> str | None:
        pointed = self._broker.source.control.slots.get(slot) if slot is not None else None
        command = (pointed and pointed.record_command) or self._configured
        if command is None:
            return None if self._admin is None else self._switch(self._admin, cassette)
        return without_secrets(command, self._broker.redaction, self._salt)

    def _switch(self, admin: str, cassette: str) -> str:
        body = dump({"mode": "auto", "cassette": cassette}).decode()
        # The shell puts the token in.
        token = ['-H "Authorization: Bearer $TAPEWAY_ADMIN_TOKEN"'] if self._token else []
        return " ".join(
            [
                *("curl -X PUT", shlex.quote(f"{admin}/api/v1/mode")),
                *("-H 'Content-Type: application/json'", *token),
                *("-d", shlex.quote(body)),
            ]
        )


def without_secrets(command: str, redaction: RequestRedaction, salt: str = "") -> str:
    """A command with placeholders for secrets: everybody may see where it is shown."""
    redactor = redaction.redactor_of(salt, ())
    return redactor.value(command.encode(errors="replace")).decode(errors="replace")
