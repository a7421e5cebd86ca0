"""The clients: what the schedule says is done, and what came of it goes into the history."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any
from urllib.parse import quote

from soak.clusters import Cluster
from soak.history import Asked, Edited, History, Recovered, Steered
from soak.network import ID
from soak.schedule import Ask, Edit, Steer
from tests.process.serving import DEADLINE_S, request
from tests.support.canary import canary
from tests.support.raw_client import Answer, RawClient

_ANSWER = re.compile(rb'"answer": ?"((?:answer|edit)-\d+)"')
_TYPED = ("Content-Type", "application/json")
_BROKEN = (OSError, asyncio.IncompleteReadError)
_AGAIN_S = 0.2


@dataclass(slots=True)
class Clients:
    """All clients of one run, and the one who steers."""

    cluster: Cluster
    history: History
    now: Callable[[], float]
    number: int = 0
    """The round, whose cassette `repeats` are recorded in and replayed from."""
    afterwards: bool = False
    """Whether nothing is asked live any more."""
    field_secret: str = field(default_factory=lambda: canary("field"))
    _ids: Iterator[int] = field(default_factory=itertools.count)
    _edits: Iterator[int] = field(default_factory=itertools.count)

    @asynccontextmanager
    async def working(self, *work: Iterator[Ask | Edit]) -> AsyncIterator[None]:
        """Each does what it draws, while the block runs; at its end each finishes what it does."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for each in work:
                tasks.create_task(self._client(each, over))
            try:
                yield
            finally:
                over.set()

    async def _client(self, work: Iterator[Ask | Edit], over: asyncio.Event) -> None:
        for each in work:
            if over.is_set():
                return
            if isinstance(each, Edit):
                await self.edit(each)
            else:
                await self.ask(each)
            await asyncio.sleep(each.pause_s)

    # Requests.

    async def ask(self, what: Ask) -> Answer | None:
        """Ask one question; None where no whole answer came."""
        number, began = f"{next(self._ids)}", self.now()
        cassette, question = what.cassette, what.question
        if cassette == "repeats":
            cassette = f"repeats-{self.number}"
            question = f"{cassette}/{question}"
        answer, outcome = None, "none"
        try:
            async with asyncio.timeout(DEADLINE_S):
                answer = await self._answer(what, cassette, question, number)
            outcome = "left" if answer is None else answer.outcome.decode() or "error"
        except _BROKEN:
            pass
        if answer is not None and not answer.complete:
            answer, outcome = None, "none"
        found = None if answer is None else _ANSWER.search(answer.body)
        # Nobody knows when a request is served whose client has left.
        ended = inf if outcome == "left" else self.now()
        if answer is not None and self.afterwards:
            self._search(answer, number)
        self.history.asked.append(
            Asked(
                *(number, what.instance, cassette, question, began, ended, outcome),
                status=0 if answer is None else answer.status,
                code=_code(answer),
                answer="" if found is None else found[1].decode(),
                served_from="" if answer is None else answer.value(b"Tapeway-Cassette").decode(),
            )
        )
        return answer

    def _search(self, answer: Answer, number: str) -> None:
        # Before, whoever waits for a live answer gets its own bytes as well.
        for name, secret in self.secrets.items():
            if secret.encode() in answer.head + answer.body:
                self.history.complaints.append(f"secret: {name} in the answer to {number}")

    @property
    def secrets(self) -> dict[str, str]:
        """What must be seen nowhere but in live answers."""
        return {"in a header": self.cluster.key, "in a field": self.field_secret}

    async def _answer(self, what: Ask, cassette: str, question: str, number: str) -> Answer | None:
        named = f"/@{cassette}" if cassette else ""
        body = json.dumps({"question": question, "api_key": self.field_secret}).encode()
        login = ("Authorization", f"Bearer {self.cluster.key}")
        sent = request(f"{named}/{question}", body, _TYPED, login, (ID, number))
        async with RawClient(self.cluster.proxy(what.instance)) as client:
            await client.send(sent)
            if what.leaves:
                await asyncio.sleep(what.pause_s)
                return None
            # Others come before it to let loops of proxies be seen.
            while (answer := await client.answer(b"POST")).status < 200:
                pass
            return answer

    # The admin API.

    async def steer(self, what: Steer) -> None:
        """Call again until it is in force on all processes."""
        body: dict[str, str] = {"cassette": what.cassette}
        if what.mode is not None:
            body["mode"] = what.mode
        method, path = ("PUT", "mode") if what.what == "mode" else ("POST", what.what)
        done = (200, 409) if what.what == "eject" else (200,)
        instances = itertools.count(what.instance)
        first = self.now()
        while self.now() - first < DEADLINE_S:
            began = self.now()
            status, _, said = await self.admin(
                next(instances), method, f"/api/v1/{path}", json.dumps(body).encode()
            )
            self.history.steered.append(
                Steered(what.what, what.cassette, what.mode, began, self.now(), status)
            )
            if status in done:
                return
            await asyncio.sleep(_AGAIN_S)
        self.history.complaints.append(
            f"trouble: {what} for {DEADLINE_S:.0f} s, at last {status} {said[:300].decode()}"
        )

    async def edit(self, what: Edit) -> None:
        """Ask, and put another answer in the place of the one that came."""
        asked = await self.ask(Ask(what.cassette, what.question, what.instance, 0))
        index = b"" if asked is None else asked.value(b"Tapeway-Interaction")
        if not index:
            return
        path = f"/api/v1/cassettes/{what.cassette}/interactions/{index.decode()}"
        status, tag, text = await self.admin(what.instance, "GET", path)
        found = _ANSWER.search(text)
        if status != 200 or found is None:
            return
        expected, new = found[1], f"edit-{next(self._edits)}"
        began = self.now()
        changed = text.replace(b'"%b"' % expected, json.dumps(new).encode())
        status, _, _ = await self.admin(what.instance + 1, "PUT", path, changed, ("If-Match", tag))
        self.history.edited.append(
            Edited(what.cassette, expected.decode(), new, began, self.now(), status)
        )

    async def admin(
        self, instance: int, method: str, path: str, body: bytes = b"", *fields: tuple[str, str]
    ) -> tuple[int, str, bytes]:
        """Status, ETag and body of an admin call; status 0 where no whole answer came."""
        url = str(self.cluster.member(instance).ready["admin"])
        host = url.removeprefix("http://")
        try:
            async with asyncio.timeout(DEADLINE_S), RawClient(url) as client:
                answer = await client.ask(
                    request(path, body, _TYPED, *fields, method=method, host=host)
                )
        except _BROKEN:
            return 0, "", b""
        if not answer.complete:
            return 0, "", b""
        return answer.status, answer.value(b"ETag").decode(), answer.body

    # Afterwards.

    async def replay_all(self) -> None:
        """Ask for all that was ever asked, in mode `replay` and in a take of its own."""
        questions: dict[tuple[str, str], int] = {}
        self.afterwards = True
        for recovered in self.history.recovered:
            place = (recovered.cassette, recovered.question)
            questions[place] = questions.get(place, 0) + 1
        for cassette in sorted({cassette for cassette, _ in questions}):
            await self.steer(Steer("mode", cassette, "replay", 0, 0))
            await self.steer(Steer("rewind", cassette, None, 1, 0))
        by_question = [
            [Ask(cassette, question, at, 0)] * count
            for at, ((cassette, question), count) in enumerate(questions.items())
        ]
        for some in _batches(by_question, 32):
            await asyncio.gather(*[self._ask_in_turn(question) for question in some])

    async def _ask_in_turn(self, asks: list[Ask]) -> None:
        for at, each in enumerate(asks):
            await self.ask(Ask(each.cassette, each.question, each.instance + at, 0))

    async def recover(self) -> None:
        """Export every cassette; what is in it goes into the history."""
        _, _, listed = await self.admin(0, "GET", "/api/v1/cassettes?limit=1000")
        for cassette in json.loads(listed)["cassettes"]:
            if not cassette["interactions"]:
                # It was inserted or asked for, and nothing was recorded into it.
                continue
            name = str(cassette["name"])
            path = f"/api/v1/cassettes/{quote(name, safe='')}"
            status, _, text = await self.admin(1, "GET", path)
            if status != 200:
                self.history.complaints.append(f"export of {name}: {status} {text[:300]!r}")
                continue
            for item in json.loads(text)["interactions"]:
                self.history.recovered.append(Recovered(name, *_told(item)))


def _batches(items: list[Any], size: int) -> Iterator[list[Any]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _told(item: dict[str, Any]) -> tuple[str, str]:
    """Question and answer of a recording."""
    found = _ANSWER.search(json.dumps(item["response"]).replace("\\", "").encode())
    question = re.search(r'"question": ?"([^"]+)"', json.dumps(item["request"]).replace("\\", ""))
    return question[1] if question else "", found[1].decode() if found else ""


def _code(answer: Answer | None) -> str:
    if answer is None or answer.status < 400:
        return ""
    try:
        return str(json.loads(answer.body)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""
