"""A store in YAML, served by the real process: recorded, killed, edited by hand, replayed."""

from pathlib import Path

import yaml

from tests.process.counting_upstream import Upstream
from tests.process.serving import Tapeway


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

    assert [path.name for path in file.parent.glob("default.*")] == [file.name]
    assert len(yaml.safe_load(file.read_text())["interactions"]) == 2
    text = file.read_text().replace("status_code: 200", "status_code: 299", 1)
    file.write_text("# by hand\n" + text)

    # It is YAML because it is there, not because it is asked for.
    async with Tapeway(tmp_path, "--mode", "replay") as tapeway:
        replayed = await tapeway.ask("/one")
        assert replayed.outcome == b"replayed"
        assert (replayed.status, replayed.body) == (299, first.body)
    assert file.read_text() == "# by hand\n" + text
