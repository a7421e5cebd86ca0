"""Cassettes line by line, and their large bodies in pieces."""

import hashlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tapeway.core.model.cassette import CassetteHead
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.formats.jsonl import CopyWriter
from tapeway.ports import CassetteStore
from tapeway.stores.opening import open_store
from tests.admin.admin_and_proxy import World, world
from tests.admin.handlers.test_import_export import SECRET, cassette, put, said
from tests.support.memory import measured_memory

HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run")
ONE = "/api/v1/cassettes/one"
LINES = {"Content-Type": "application/jsonl"}
JSON = {"Content-Type": "application/json"}
OCTETS = {"Content-Type": "application/octet-stream"}
LARGE = b"a large body " * 200_000
DIGEST = hashlib.sha256(LARGE).hexdigest()


def referring(digest: str = DIGEST, size: int = len(LARGE)) -> dict[str, object]:
    body = {"sha256": digest, "size": size}
    answer = {"status_code": 200, "headers": {}, "body_file": body}
    return {**said(""), "response": answer}


async def keep(found: World, body: bytes = LARGE, digest: str = DIGEST) -> tuple[int, str]:
    path = f"{ONE}/bodies/{digest}"
    response = await found.call("PUT", path, data=io.BytesIO(body), headers=OCTETS)
    return response.status, await response.text()


async def test_a_copy_put_elsewhere_is_the_same_cassette(store: CassetteStore) -> None:
    async with world(store=store) as found:
        await put(found, cassette(said("a", "/a"), {"kind": "tool", "request": {}, "response": 1}))
        copy = await found.octets(f"{ONE}/copy")
        other = "/api/v1/cassettes/other"
        response = await found.call("PUT", f"{other}/copy", data=copy, headers=LINES)

        assert response.status == 200, await response.text()
        assert await found.octets(other) == await found.octets(ONE)
        tags = [(await found.call("GET", address)).headers["ETag"] for address in (ONE, other)]
        assert [response.headers["ETag"]] * 2 == tags
        assert json.loads(copy.splitlines()[-1])["end"]["sha256"] == tags[0].strip('"')


@pytest.mark.parametrize("count", [1, 64, 65, 130])
async def test_a_copy_has_all_interactions_in_order(store: CassetteStore, count: int) -> None:
    async with world(store=store) as found:
        await put(found, cassette(*[said(f"{number}", f"/{number}") for number in range(count)]))

        lines = (await found.octets(f"{ONE}/copy")).splitlines()[1:-1]

        assert [json.loads(line)["index"] for line in lines] == list(range(count))


@pytest.mark.parametrize(
    ("url", "secrets"), [("file:{}", "redact"), ("sqlite:{}/x.db", "keep")], ids=["file", "sqlite"]
)
async def test_a_copy_goes_to_the_disk_as_it_comes(url: str, secrets: str, tmp_path: Path) -> None:
    # What is on its way takes 8 to 11 MB, more of it where threads take turns on a busy machine.
    many, size = 200, 200_000

    async def lines() -> AsyncIterator[bytes]:
        for start in range(0, len(copy), 65536):
            yield copy[start : start + 65536]

    writer = CopyWriter(HEAD)
    answer = Response(ResponseHead(200), b"word " * (size // 5))
    request = Request("default", "GET", "/x", base="http://h")
    items = [Interaction(number, request, answer) for number in range(many)]
    copy = writer.first() + writer.lines(items) + writer.last()
    async with world(store=open_store(url.format(tmp_path))) as found:
        await put(found, cassette(said("before")))
        with measured_memory() as memory:
            response = await found.call(
                "PUT", f"{ONE}/copy?secrets={secrets}", data=lines(), headers=LINES
            )

        assert response.status == 200, await response.text()
        assert (await response.json())["interactions"] == many
        assert memory.peak < len(copy) / 2
        again = await found.octets(f"{ONE}/copy")
        assert again == copy


async def test_a_secret_in_a_later_batch_of_a_copy_is_named_with_its_place(
    open_world: World,
) -> None:
    many = [said(f"text {number}", f"/{number}") for number in range(200)]
    sent = json.dumps(cassette(*many, said(SECRET, "/secret")))
    await open_world.call("PUT", f"{ONE}?secrets=keep", data=sent, headers=JSON)
    copy = await open_world.octets(f"{ONE}/copy")

    response = await open_world.call("PUT", f"{ONE}/copy", data=copy, headers=LINES)

    assert response.status == 422
    assert "interactions[200]" in await response.text()


@pytest.mark.parametrize(
    "change",
    [
        lambda copy: b"",
        lambda copy: copy[:-1],
        lambda copy: b"".join(copy.splitlines(keepends=True)[:-1]),
        lambda copy: copy.replace(b'"a"', b'"b"'),
        lambda copy: copy.replace(b'"interactions":1', b'"interactions":2'),
        lambda copy: copy + copy.splitlines(keepends=True)[1],
        lambda copy: copy.splitlines(keepends=True)[-1],
        lambda copy: copy.replace(b'"kind":"http"', b'"kind":"htp"'),
        lambda copy: b"[]\n" + copy,
        lambda copy: b"\n" + copy,
    ],
)
async def test_what_is_not_all_of_a_copy_changes_nothing(open_world: World, change: object) -> None:
    assert callable(change)
    await put(open_world, cassette(said("a")))
    before = await open_world.octets(f"{ONE}/copy")

    response = await open_world.call("PUT", f"{ONE}/copy", data=change(before), headers=LINES)

    assert response.status == 422, await response.text()
    assert (await response.json())["error"]["code"] in ("cut_copy", "bad_cassette")
    assert await open_world.octets(f"{ONE}/copy") == before


async def test_a_copy_is_looked_at_for_secrets_unless_that_is_said(open_world: World) -> None:
    await open_world.call("PUT", f"{ONE}?secrets=keep", cassette(said(SECRET)))
    copy = await open_world.octets(f"{ONE}/copy")

    refused = await open_world.call("PUT", f"{ONE}/copy", data=copy, headers=LINES)
    kept = await open_world.call("PUT", f"{ONE}/copy?secrets=keep", data=copy, headers=LINES)

    assert (refused.status, kept.status) == (422, 200)
    assert await open_world.octets(f"{ONE}/copy") == copy


async def test_a_large_body_goes_in_and_out_in_pieces(store: CassetteStore) -> None:
    async with world(store=store) as found:
        assert (await keep(found))[0] == 200
        await found.done("POST", f"{ONE}/interactions", {"interactions": [referring()]})
        assert await found.octets(f"{ONE}/bodies/{DIGEST}") == LARGE
        shown = await found.call("GET", f"{ONE}/bodies/{DIGEST}")
        assert shown.headers["Content-Disposition"] == f'attachment; filename="{DIGEST}"'
        await found.done("POST", f"{ONE}/release")
        assert await found.octets(f"{ONE}/bodies/{DIGEST}") == LARGE
        answer = await found.ask(cassette="one")
        assert answer.headers["Tapeway-Outcome"] == "replayed"
        assert (await answer.text()).encode() == LARGE
        # What is there already need not be sent again.
        copy = await found.octets(f"{ONE}/copy")
        assert len(copy) < 10_000
        again = await found.call("PUT", f"{ONE}/copy", data=copy, headers=LINES)
        assert again.status == 200, await again.text()
        assert await found.octets(f"{ONE}/bodies/{DIGEST}") == LARGE


async def test_a_body_under_another_digest_is_refused(open_world: World) -> None:
    status, text = await keep(open_world, LARGE[:-1])

    assert (status, json.loads(text)["error"]["code"]) == (422, "wrong_digest")


@pytest.mark.parametrize(("digest", "status"), [("0" * 64, 404), ("0" * 63, 400), ("A" * 64, 400)])
async def test_a_body_that_is_not_there_is_not_found(
    open_world: World, digest: str, status: int
) -> None:
    await put(open_world, cassette(said("a")))

    assert (await open_world.call("GET", f"{ONE}/bodies/{digest}")).status == status
    nowhere = await open_world.call("GET", f"/api/v1/cassettes/none/bodies/{'0' * 64}")
    assert (nowhere.status, (await nowhere.json())["error"]["code"]) == (404, "no_cassette")


async def test_another_size_than_the_body_has_is_refused(open_world: World) -> None:
    await keep(open_world)

    sent = {"interactions": [referring(size=len(LARGE) - 1)]}
    response = await open_world.call("POST", f"{ONE}/interactions", sent)

    assert (response.status, (await response.json())["error"]["code"]) == (422, "body_missing")


async def test_a_large_body_is_looked_into_for_secrets(open_world: World) -> None:
    shown = LARGE + SECRET.encode()
    digest = hashlib.sha256(shown).hexdigest()
    await keep(open_world, shown, digest)
    sent = {"interactions": [referring(digest, len(shown))]}

    refused = await open_world.call("POST", f"{ONE}/interactions", sent)
    kept = await open_world.call("POST", f"{ONE}/interactions?secrets=keep", sent)

    assert (refused.status, kept.status) == (422, 200)
    assert "response.body_file" in (await refused.json())["message"]


async def test_a_large_body_that_came_inside_a_document_is_moved_out_and_exported_again(
    store: CassetteStore,
) -> None:
    asked, answered = "a long question " * 100_000, "an answer " * 200_000
    question = said("short", "/v1/question")
    question["request"] |= {"method": "POST", "text": asked}
    sent = json.dumps(cassette(said(answered), question)).encode()
    async with world(store=store, mode="replay") as found:
        first = await found.call("PUT", ONE, data=io.BytesIO(sent), headers=JSON)
        exported = await found.octets(ONE)
        shown = (await found.got(f"{ONE}/interactions"))["interactions"]
        answer = await found.ask(cassette="one")
        again = await found.call("PUT", ONE, data=io.BytesIO(exported), headers=JSON)

        assert (first.status, again.status) == (200, 200)
        assert shown[0]["response"]["body_file"]["size"] == len(answered)
        digest = hashlib.sha256(asked.encode()).hexdigest()
        assert shown[1]["request"]["body_file"]["sha256"] == digest
        assert await answer.text() == answered
        assert await found.octets(ONE) == exported
