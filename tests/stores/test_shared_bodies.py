"""Large bodies of stores that several processes use at once."""

import asyncio

from tapeway.body_files import pieces
from tapeway.ports import BodyFinder, BodyKeeper, SharedStore
from tests.stores.large_bodies import body, large
from tests.stores.recordings import HEAD, recording


async def test_a_body_is_found_by_its_digest_in_the_cassette_that_has_it(
    pair: list[SharedStore],
) -> None:
    one, other = pair
    assert isinstance(one, BodyKeeper)
    assert isinstance(other, BodyFinder)
    file = await one.keep("x", [body(1), body(2)])
    assert await other.body("x", file.digest) is None
    await one.append("x", HEAD, recording(0))
    await one.append("x", HEAD, large(1, file))
    await one.append("y", HEAD, recording(0))

    found = await other.body("x", file.digest)

    assert found is not None
    assert (found.size, found.digest) == (file.size, file.digest)
    assert await asyncio.to_thread(lambda: b"".join(pieces(found))) == body(1) + body(2)
    assert await other.body("y", file.digest) is None
    assert await other.body("x", "0" * 64) is None
