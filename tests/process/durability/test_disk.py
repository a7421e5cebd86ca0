"""A disk that is full, read-only or forbids large files: an error to the client, nothing lost."""

import json
import resource
from pathlib import Path

from tests.process.counting_upstream import Upstream
from tests.process.serving import FAILURE, Tapeway, refused, request
from tests.stores.small_disks import read_only, small_disk
from tests.support.raw_client import Answer, RawClient
from tests.support.reuse import reuse_all


def error_of(answer: Answer) -> dict[str, str]:
    error: dict[str, str] = json.loads(answer.body)["error"]
    return error


def error_id_of(answer: Answer) -> str:
    return answer.value(b"x-request-id").decode()


async def test_a_full_disk_is_told_to_the_client_and_works_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    reuse_all(tmp_path)
    store = tmp_path / "cassettes"
    with small_disk(store, kib=256):
        ballast = store / "ballast"
        ballast.write_bytes(b"x" * 100 * 1024)
        async with Upstream(size=8 * 1024) as upstream:
            options = ("--upstream", upstream.url)
            async with Tapeway(tmp_path, *options) as tapeway:
                kept, failed = await _record_until_refused(tapeway)
                assert failed.status == 507
                assert error_of(failed)["code"] == "recording_failed"
                assert "no room to write the recording" in error_of(failed)["message"]
                assert "free some" in error_of(failed)["message"]
                [told] = [line for line in tapeway.log if line.get("code") == "recording_failed"]
                assert (told["level"], told["id"]) == ("warning", error_id_of(failed))
                assert (await tapeway.admin("GET", "/healthz"))[0] == 200
                for target, body in kept.items():
                    assert (await tapeway.ask(target)).body == body

                ballast.unlink()
                again = await tapeway.ask("/again")
                assert again.outcome == b"recorded"
                kept["/again"] = again.body
                await tapeway.kill()

            async with Tapeway(tmp_path, *options, "--mode", "replay") as tapeway:
                for target, body in kept.items():
                    assert (await tapeway.ask(target)).body == body


async def test_a_stop_on_a_full_disk_says_so_and_keeps_everything(tmp_path: Path) -> None:
    store = tmp_path / "cassettes"
    with small_disk(store, kib=256):
        async with Upstream(size=8 * 1024) as upstream:
            options = ("--upstream", upstream.url)
            tapeway = await Tapeway(tmp_path, *options).start()
            try:
                kept, _ = await _record_until_refused(tapeway)
                assert await tapeway.stopped() == FAILURE
            finally:
                await tapeway.kill()
            *logged, said = tapeway.stderr.splitlines()
            assert said.startswith(f"tapeway: {store}/default.json: no room to write the cassette")
            assert "all that was acknowledged is kept" in said
            assert all(json.loads(line) for line in logged)
            assert list(store.glob(".*.tmp")) == []

            async with Tapeway(tmp_path, *options, "--mode", "replay") as tapeway:
                for target, body in kept.items():
                    assert (await tapeway.ask(target)).body == body


async def test_a_start_on_a_full_disk_records_nothing_and_replays_everything(
    tmp_path: Path,
) -> None:
    store = tmp_path / "cassettes"
    with small_disk(store, kib=256):
        async with Upstream() as upstream:
            async with Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
                known = (await tapeway.ask("/known")).body
            _fill(store)
            async with Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
                assert (await tapeway.ask("/known")).body == known
                assert (await tapeway.ask("/new")).status == 507
                (store / "ballast").unlink()
                assert (await tapeway.ask("/new")).status == 200


async def test_a_limit_on_the_size_of_files_is_like_a_full_disk(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))

    async with Upstream(size=8 * 1024) as upstream:
        tapeway = await Tapeway(tmp_path, "--upstream", upstream.url, limit=limit).start()
        try:
            kept, failed = await _record_until_refused(tapeway)
            assert failed.status == 507
            # Room for itself is what the next one does have, so it is kept.
            assert (await tapeway.ask("/@another/one")).outcome == b"recorded"
            await tapeway.stopped()
        finally:
            await tapeway.kill()
        async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
            for target, body in kept.items():
                assert (await tapeway.ask(target)).body == body


async def test_a_crowd_that_takes_the_descriptors_has_nothing_asked_that_is_not_recorded(
    tmp_path: Path,
) -> None:
    reuse_all(tmp_path)

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    async with Upstream() as upstream:
        options = ("--upstream", upstream.url)
        async with (
            Tapeway(tmp_path, *options, limit=few) as tapeway,
            RawClient(tapeway.proxy) as early,
        ):
            await early.ask(request("/known"))
            crowd = [RawClient(tapeway.proxy) for _ in range(64)]
            for client in crowd:
                await client.__aenter__()
            assert (await early.ask(request("/known"))).outcome == b"replayed"
            answer = await early.ask(request("/@another/x"))
            # Of those that are kept back, some may be free for a recording, and some not.
            if answer.status != 200:
                assert error_of(answer)["code"] == "recording_failed"
                assert "Too many open files" in error_of(answer)["message"]
            assert upstream.asks["/x"] == (answer.outcome == b"recorded")
            for client in crowd:
                client.leave()
            await tapeway.until(lambda: _descriptors(tapeway) < 40, "the crowd had left")
            assert (await early.ask(request("/@another/y"))).outcome == b"recorded"


async def test_a_read_only_disk_stops_recording_at_the_start_and_serves_replay(
    tmp_path: Path,
) -> None:
    store = tmp_path / "cassettes"
    async with Upstream() as upstream:
        async with Tapeway(tmp_path, "--upstream", upstream.url) as tapeway:
            known = (await tapeway.ask("/known")).body
        with read_only(store):
            code, message = await refused(tmp_path, "--mode", "record")
            async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
                assert (await tapeway.ask("/known")).body == known

    assert code == FAILURE
    assert f"{store}/.default.lock: could not take the lock to record" in message
    assert "(Read-only file system); mount it for writing" in message


def _descriptors(tapeway: Tapeway) -> int:
    return len(list(Path(f"/proc/{tapeway.pid}/fd").iterdir()))


async def _record_until_refused(tapeway: Tapeway) -> tuple[dict[str, bytes], Answer]:
    kept: dict[str, bytes] = {}
    for number in range(1000):
        answer = await tapeway.ask(f"/{number}")
        if answer.outcome != b"recorded":
            assert kept, "not even one fitted"
            return kept, answer
        kept[f"/{number}"] = answer.body
    raise AssertionError("it was never full")


def _fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(b"x" * 4096):
                pass
        except OSError:
            return
