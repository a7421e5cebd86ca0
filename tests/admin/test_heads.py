"""What a cassette says of itself: read without its interactions, and put anew."""

import pytest

from tapeway.ports import CassetteStore
from tests.admin.test_imports import SECRET, cassette, put, said
from tests.admin.world import world

ONE = "/api/v1/cassettes/one"
HEAD = {"created_at": "then", "run_id": "a-run", "meta": {"who": "me"}}


async def test_an_outline_tells_all_but_the_interactions(store: CassetteStore) -> None:
    async with world(store=store) as found:
        assert (await found.call("GET", f"{ONE}/outline")).status == 404
        await put(found, cassette(said("a"), said("b", "/b")))

        told = await found.done("GET", f"{ONE}/outline")

        assert told["interactions"] == 2
        assert set(told["head"]) == {"created_at", "run_id", "meta"}
        assert len(told["sources"]) == 1


async def test_another_head_leaves_the_interactions_as_they_are(store: CassetteStore) -> None:
    async with world(store=store) as found:
        assert (await found.call("PUT", f"{ONE}/head", HEAD)).status == 404
        await put(found, cassette(said("a"), said("b", "/b")))
        before = (await found.done("GET", f"{ONE}/interactions"))["interactions"]

        await found.done("PUT", f"{ONE}/head", HEAD)

        assert (await found.done("GET", f"{ONE}/outline"))["head"] == HEAD
        assert (await found.done("GET", f"{ONE}/interactions"))["interactions"] == before


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"rules": {"nonsense": 1}}, "bad_cassette"),
        ({"rules": []}, "bad_cassette"),
        ({"repeats": "always"}, "bad_cassette"),
        ({"note": SECRET}, "shows_secrets"),
    ],
)
async def test_a_head_that_no_store_could_read_is_refused(
    store: CassetteStore, meta: dict[str, object], code: str
) -> None:
    async with world(store=store) as found:
        await put(found, cassette(said("a")))
        before = await found.octets(f"{ONE}/copy")
        head = {**HEAD, "meta": meta}

        response = await found.call("PUT", f"{ONE}/head", head)

        assert (response.status, (await response.json())["error"]["code"]) == (422, code)
        assert SECRET not in await response.text()
        assert await found.octets(f"{ONE}/copy") == before
        if code == "bad_cassette":
            sent = {"interactions": [said("b")], "head": head}
            new = await found.call("POST", "/api/v1/cassettes/new/interactions", sent)
            assert new.status == 422, await new.text()
            assert (await found.call("GET", "/api/v1/cassettes/new")).status == 404
