"""`tapeway cassette convert`: every format to every other, verified, with what is lost named."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from tapeway.cli.transfer import batches
from tapeway.core.agenttape import key
from tapeway.core.model.interaction import ForeignInteraction, Interaction
from tapeway.formats import registry
from tapeway.formats.native.document import load, save
from tests.cli.invocation import KEY, cassette_text, run_tapeway
from tests.formats.other_tools.example_files import text
from tests.support.canary import sightings

FORMATS = [kind.name for kind in registry.WRITTEN]
TOOL = ForeignInteraction(1, {"kind": "tool", "request": {"name": "f"}, "response": 1})


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    return run_tapeway(capsys, "cassette", "convert", *arguments)


@pytest.fixture
def smoke() -> Path:
    """A cassette in the default store, without secrets."""
    folder = Path("cassettes")
    folder.mkdir()
    file = folder / "smoke.json"
    file.write_bytes(cassette_text("hello", "é\n", ""))
    return file


@pytest.mark.parametrize(
    ("name", "options"),
    [("a.har.gz", ()), ("a.json.gz", ()), ("a.gz", ("--to", "har")), ("A.YAML.GZ", ())],
)
def test_a_file_that_ends_in_gz_is_written_compressed_and_read_again(
    capsys: pytest.CaptureFixture[str], smoke: Path, name: str, options: tuple[str, ...]
) -> None:
    assert run(capsys, "smoke", name, *options)[0] == 0

    assert gzip.decompress(Path(name).read_bytes()).strip()
    first = Path(name).read_bytes()
    assert run(capsys, "smoke", name, *options, "--force")[0] == 0
    assert Path(name).read_bytes() == first
    assert run(capsys, name, "again")[0] == 0
    again = load(Path("cassettes/again.json").read_bytes())
    assert again.interactions == load(smoke.read_bytes()).interactions


@pytest.mark.usefixtures("smoke")
def test_a_compressed_file_without_a_format_is_no_cassette_of_the_store(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, "smoke", "a.gz")

    assert (code, out) == (2, "")
    assert "a.gz: no format is known for this suffix; give --to" in err
    assert [path.name for path in Path("cassettes").glob("*.json")] == ["smoke.json"]


@pytest.mark.parametrize("name", FORMATS)
def test_a_cassette_goes_to_a_format_and_comes_back_byte_for_byte(
    capsys: pytest.CaptureFixture[str], smoke: Path, name: str
) -> None:
    there = run(capsys, "smoke", "there.json", "--to", name)
    back = run(capsys, "there.json", "back")

    assert (there[0], back[0]) == (0, 0)
    assert there[1].startswith("there.json: 3 of 3 interactions, sha256:")
    assert there[1].partition("sha256")[2] == back[1].partition("sha256")[2]
    assert Path("cassettes/back.json").read_bytes() == save(load(smoke.read_bytes()))
    assert Path("there.json").stat().st_mode & 0o777 == 0o600


def test_the_suffix_decides_what_is_written_and_the_text_what_is_read(
    capsys: pytest.CaptureFixture[str], smoke: Path
) -> None:
    assert run(capsys, "smoke", "a.har")[0] == 0
    assert run(capsys, "a.har", "b.jsonl")[0] == 0
    Path("b.jsonl").rename("b.txt")
    assert run(capsys, "b.txt", "c.json")[0] == 0

    assert "log" in json.loads(Path("a.har").read_text())
    assert load(Path("c.json").read_bytes()) == load(smoke.read_bytes())


def test_yaml_is_read_as_a_cassette_or_vcr_by_its_content(
    capsys: pytest.CaptureFixture[str], smoke: Path
) -> None:
    Path("v.yaml").write_bytes(text("vcr_requests.yaml"))

    assert run(capsys, "smoke", "ours.yaml")[0] == 0
    assert run(capsys, "ours.yaml", "again")[0] == 0
    assert run(capsys, "v.yaml", "theirs.yml")[0] == 0

    assert Path("ours.yaml").read_text().startswith("version: '1'\n")
    assert Path("cassettes/again.json").read_bytes() == save(load(smoke.read_bytes()))
    assert Path("theirs.yaml").read_text().startswith("version: '1'\n")
    Path("odd.yaml").write_text("a: [")
    assert "odd.yaml line 2: " in run(capsys, "odd.yaml", "b")[2]


def test_secrets_in_another_tools_file_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(text("vcr_httpx.json"))
    document["interactions"][0]["request"]["headers"]["authorization"] = [f"Bearer {KEY}"]
    document["interactions"][0]["request"]["body"] = json.dumps({"q": KEY})
    document["interactions"][0]["response"]["body"]["string"] = f"your key: {KEY}"
    Path("v.json").write_text(json.dumps(document))

    code, out, err = run(capsys, "v.json", "v")

    written = Path("cassettes/v.json").read_bytes()
    assert code == 0
    assert "v.json: replaced: interactions[0].request.headers.authorization: " in out
    said = {"file": written, "out": out.encode(), "err": err.encode()}
    assert sightings({"key": KEY}, said) == []
    # Nor in a hash: the key AgentTape's tools look for is that of what is written.
    assert run(capsys, "v.json", "plain", "--no-redact")[0] == 0
    keys = [
        json.loads(Path(f"cassettes/{name}.json").read_text())["interactions"][0]["match_key"]
        for name in ("v", "plain")
    ]
    assert keys[0] != keys[1]
    assert keys[0] == _key_of(written)
    assert KEY in Path("cassettes/plain.json").read_text()


def _key_of(written: bytes) -> str:
    first = load(written).interactions[0]
    assert isinstance(first, Interaction)
    return key.http_key(first.request)


def test_losses_are_named_and_change_the_exit_code(
    capsys: pytest.CaptureFixture[str], smoke: Path
) -> None:
    found = load(smoke.read_bytes())
    smoke.write_bytes(save(type(found)(found.head, (*found.interactions, TOOL))))

    code, out, err = run(capsys, "smoke", "a.har")

    assert code == 1
    assert out.startswith("a.har: 3 of 4 interactions")
    assert (
        "tapeway: interactions[3]: is a recording of kind 'tool', and an archive holds only "
        "requests and their answers: left out\n"
    ) in err


def test_an_existing_target_is_replaced_only_with_force(
    capsys: pytest.CaptureFixture[str], smoke: Path
) -> None:
    before = smoke.read_bytes()
    Path("a.har").write_bytes(text("browser.har"))

    assert run(capsys, "a.har", "smoke") == (
        2,
        "",
        "tapeway: smoke already exists: give another name, or --force to replace it\n",
    )
    assert run(capsys, "smoke", "a.har")[0] == 2
    assert (smoke.read_bytes(), Path("a.har").read_bytes()) == (before, text("browser.har"))

    assert run(capsys, "a.har", "smoke", "--force")[1].startswith("smoke: 3 of 6 interactions")
    assert run(capsys, "smoke", "a.har", "--force")[0] == 0


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("nix", "b", "there is no cassette nix in file:cassettes"),
        ("broken.har", "b", "broken.har line 3: log.entries[0]: is no method name"),
        ("odd.txt", "b", "odd.txt: its format is not recognised; give --from one of"),
        ("odd.json", "b", "odd.json: its format is not recognised; give --from one of"),
        ("odd.yaml", "b", "odd.yaml: its format is not recognised; give --from one of"),
        ("half.json", "b", "half.json line 1: the field 'version' is missing; the file was left"),
        ("smoke", "b/c.odd?", "b/c.odd?: no format is known for this suffix; give --to one of"),
        (
            "smoke",
            "a.mitm",
            "tapeway reads the format 'mitmproxy' and does not write it; give --to",
        ),
        ("smoke", "none/a.har", "none/a.har: could not write the file"),
    ],
)
def test_a_conversion_that_cannot_be_done_writes_nothing(
    capsys: pytest.CaptureFixture[str], smoke: Path, source: str, target: str, said: str
) -> None:
    entry = '{"request": {"method": "G T", "url": "http://h/"}, "response": {"status": 200}}'
    Path("broken.har").write_text('{"log":\n{"entries": [\n' + entry + "]}}")
    Path("odd.txt").write_text("hello")
    Path("odd.json").write_text('{"name": "package"}')
    Path("odd.yaml").write_text("services: []")
    Path("half.json").write_text('{"interactions": [{"kind": "http"}]}')
    before = sorted(Path().rglob("[!.]*.*"))

    code, out, err = run(capsys, source, target)

    assert (code, out) == (2, "")
    assert err.startswith(f"tapeway: {said}")
    assert sorted(Path().rglob("[!.]*.*")) == before


@pytest.mark.usefixtures("smoke")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        *[
            (name, f"tapeway reads the format '{name}' and does not write it; give --to one of")
            for name in ("vcr", "interposition", "dspy", "wiremock")
        ],
        ("vcr-json", "there is no format 'vcr-json': known are"),
    ],
)
def test_the_error_for_a_format_that_is_only_read_names_those_that_are_written(
    capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    code, out, err = run(capsys, "smoke", "there.json", "--to", name)

    assert (code, out, err) == (2, "", f"tapeway: {said} tapeway, har, jsonl\n")
    assert not Path("there.json").exists()


@pytest.mark.parametrize("name", ["browser.har", "vcr_httpx.json", "vcr_requests.yaml"])
def test_another_tools_file_may_begin_with_a_byte_order_mark(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for file, mark in (("plain", b""), ("marked", b"\xef\xbb\xbf")):
        Path(f"{file}{Path(name).suffix}").write_bytes(mark + text(name))

    found = [
        run(capsys, f"{word}{Path(name).suffix}", word, "--no-redact")[1].partition("sha256")[2]
        for word in ("plain", "marked")
    ]

    assert found[0] == found[1] != ""


def test_agenttapes_yaml_with_numbers_that_are_not_finite_is_converted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    written = (
        "version: '1'\ninteractions:\n- kind: tool\n  request: {name: f}\n"
        "  response: [.nan, -.inf]\n"
    )
    Path("tools.yaml").write_text(written)

    assert run(capsys, "tools.yaml", "found.json")[:1] == (0,)
    assert run(capsys, "found.json", "again.yaml")[:1] == (0,)

    assert (
        '"response": [\n        NaN,\n        -Infinity\n      ]' in Path("found.json").read_text()
    )
    assert "- .nan\n" in Path("again.yaml").read_text()


@pytest.mark.parametrize("name", ["session.har", "session.json", "session.yaml"])
def test_a_link_is_read_and_written_as_its_file_in_every_format(
    capsys: pytest.CaptureFixture[str], smoke: Path, name: str
) -> None:
    Path("data").mkdir()
    file, link = Path("data") / f"real{Path(name).suffix}", Path(name)
    assert run(capsys, "smoke", str(file))[0] == 0
    link.symlink_to(file)

    assert run(capsys, name, "back")[0] == 0
    before = file.stat().st_size
    (smoke.parent / "more.json").write_bytes(cassette_text(*"abcdefghijkl"))
    assert run(capsys, "more", name, "--force")[0] == 0

    assert link.is_symlink()
    assert file.stat().st_size > before
    assert load(Path("cassettes/back.json").read_bytes()) == load(smoke.read_bytes())


def test_large_bodies_are_copied(capsys: pytest.CaptureFixture[str], smoke: Path) -> None:
    body = b"large " * 200_000
    digest = hashlib.sha256(body).hexdigest()
    assets = smoke.parent / "smoke.assets"
    assets.mkdir()
    (assets / f"sha256-{digest}").write_bytes(body)
    document = json.loads(smoke.read_text())
    reference = {"sha256": digest, "size": len(body)}
    document["interactions"][0]["response"] = {"status_code": 200, "body_file": reference}
    smoke.write_text(json.dumps(document))

    assert run(capsys, "smoke", "copy")[0] == 0
    assert Path(f"cassettes/copy.assets/sha256-{digest}").read_bytes() == body
    assert run(capsys, "smoke", "a.har")[0] == 0
    content = json.loads(Path("a.har").read_text())["log"]["entries"][0]["response"]["content"]
    assert content["text"].encode() == body


def test_a_target_that_reads_back_differently_is_an_error(
    capsys: pytest.CaptureFixture[str], smoke: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = iter(range(100))
    monkeypatch.setattr(batches, "digest_of", lambda item: f"{next(digests):02x}" * 32)

    code, out, err = run(capsys, "smoke", "a.har")

    assert (code, out) == (2, "")
    assert "a.har: interactions[0] does not read back as it was written" in err
    assert not Path("a.har").exists()
    assert list(Path().glob(".a.har*")) == []
