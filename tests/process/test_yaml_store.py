"""A store in YAML, served by the real process: recorded, killed, edited by hand, replayed."""

from pathlib import Path

import yaml

from tests.process.counting_upstream import Upstream
from tests.process.serving import USAGE, Tapeway, refused


async def test_a_yaml_cassette_lives_through_a_kill_and_an_edit(tmp_path: Path) -> None:
    file = tmp_path / "cassettes" / "default.yaml"
    options = ("--store", f"file:{file.parent}?format=yaml")
    async with Upstream() as upstream:
        live = ("--upstream", upstream.url, *options)
        async with Tapeway(tmp_path, *live) as tapeway:
            first = await tapeway.ask("/one")
            assert first.outcome == b"recorded"
            await tapeway.kill()
        assert not file.exists()
        async with Tapeway(tmp_path, *live) as tapeway:
            assert (await tapeway.ask("/one")).outcome == b"replayed"
            assert (await tapeway.ask("/two")).outcome == b"recorded"

    assert [each.name for each in file.parent.glob("default.*")] == [file.name]
    assert len(yaml.safe_load(file.read_text())["interactions"]) == 2
    text = file.read_text().replace("status_code: 200", "status_code: 299", 1)
    file.write_text("# by hand\n" + text)

    # It is YAML because it is there, not because it is asked for.
    async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
        replayed = await tapeway.ask("/one")
        assert replayed.outcome == b"replayed"
        assert (replayed.status, replayed.body) == (299, first.body)
    assert file.read_text() == "# by hand\n" + text


async def test_one_that_cannot_be_read_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "cassettes" / "default.yaml"
    file.parent.mkdir()
    file.write_text("version: '1'\ninteractions:\n  - &x {kind: tool, response: *x}\n")

    code, message = await refused(tmp_path, "--mode", "replay")

    assert code == USAGE
    assert message.startswith(f"{file} line 3: an alias is not read here")


async def test_two_files_of_one_cassette_stop_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "cassettes"
    folder.mkdir()
    (folder / "default.json").write_text('{"version": "1", "interactions": []}')
    (folder / "default.yaml").write_text("version: '1'\ninteractions: []\n")

    code, message = await refused(tmp_path, "--mode", "auto")

    assert code == USAGE
    assert "default.json and default.yaml are both there" in message
