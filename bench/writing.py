"""How long cassettes of many shapes take to write, and 16 times as much of each: about 16 times as long.

python -m bench.writing
"""

import random
import time
from collections.abc import Callable

from tapeway.core.json_text import Json, dump
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.native import document

JSON, FORM = b"application/json", b"application/x-www-form-urlencoded"
TIMES = 16
MOST = 5 * TIMES
"""A writer that compares all with all takes 256 times; fresh memory alone makes some machines take 50."""
TRIES = 5


def asked(body: bytes, media: bytes = JSON) -> Request:
    return Request("openai", "POST", "/m", ((b"content-type", media),), body)


def bodies(*values: Json) -> list[Request]:
    return [asked(dump(value)) for value in values]


def objects(count: int) -> list[Json]:
    return [{"a": number} for number in range(count)]


def both(first: list[Json], second: list[Json]) -> list[Request]:
    return bodies({"p": first}, {"p": second})


def shuffled(count: int) -> list[Request]:
    items = objects(count)
    return both(items, random.Random(1).sample(items, count))


def interleaved(count: int) -> list[Request]:
    items: list[Json] = [{name: number} for number in range(count // 2) for name in "ab"]
    return both(objects(count), items)


def nested(count: int) -> list[Request]:
    value: Json = {"k": "x"}
    for _ in range(50):
        value = {"k": [value, "y" * (count // 5)]}
    return bodies(value)


SHAPES: dict[str, Callable[[int], list[Request]]] = {
    "objects": lambda count: bodies({"p": [{"a": f"b{number}"} for number in range(count)]}),
    "lists": lambda count: bodies({"p": [[number] for number in range(count)]}),
    "numbers": lambda count: bodies({"p": [*range(count)]}),
    "members": lambda count: bodies({f"k{number}": {"a": number} for number in range(count)}),
    "equal items": lambda count: bodies({"p": [{}] * count}, {"p": [{"a": 1}, *[{}] * count]}),
    "items in another order": shuffled,
    "items backwards": lambda count: bodies({"p": objects(count)}, {"p": objects(count)[::-1]}),
    "items with others between": interleaved,
    "a text in levels": nested,
    "pairs": lambda count: [asked(b"&".join(b"a%d=%d" % (at, at) for at in range(count)), FORM)],
    "lines": lambda count: [asked(b"line\n" * count, b"text/plain")],
    "octets": lambda count: [asked(bytes(range(256)) * (count // 50), b"application/octet-stream")],
    "recordings": lambda count: [asked(dump({"p": number})) for number in range(count // 20)],
    "turns": lambda count: [
        asked(dump({"messages": objects(turn)})) for turn in range(int(count**0.5) // 2)
    ],
}
LARGE = 80_000
"""So many items show what is quick for the first ten thousand alone."""


def cassette_of(requests: list[Request]) -> StoredCassette:
    answer = Response(ResponseHead(200), b"{}")
    items = tuple(Interaction(at, request, answer) for at, request in enumerate(requests))
    return StoredCassette(CassetteHead("2026-01-01T00:00:00+00:00", "run"), items)


def seconds(cassette: StoredCassette) -> float:
    began = time.process_time()
    document.save(cassette)
    return time.process_time() - began


def main() -> None:
    """Print a row for each shape; break where the time grows with the square."""
    for shape, make in SHAPES.items():
        small, large = (cassette_of(make(count)) for count in (LARGE // TIMES, LARGE))
        # In turns, and the least of each: what else the machine does is no difference between them.
        tries = [(seconds(small), seconds(large)) for _ in range(TRIES)]
        fewer, more = (min(times) for times in zip(*tries, strict=True))
        print(f"{shape:30} {fewer:7.3f} s {more:7.3f} s")
        assert more <= MOST * fewer + 0.1, "the time grows with the square"


if __name__ == "__main__":
    main()
