"""A name service that says what a test tells it to."""

import socket
from collections.abc import Sequence

from aiohttp.abc import AbstractResolver, ResolveResult


class Names(AbstractResolver):
    """Gives the answers it is told in turn, the last one for ever."""

    def __init__(self, *answers: str | Sequence[str]) -> None:
        self._answers = [[answer] if isinstance(answer, str) else [*answer] for answer in answers]
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        found = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in found
        ]

    async def close(self) -> None: ...
