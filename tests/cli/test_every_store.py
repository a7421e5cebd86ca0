"""Every command on every store: what it says of a cassette there is what it says of the file."""

import asyncio
import io
import json
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from tapeway.cli.main import main
from tapeway.core.model.interaction import Interaction, fingerprint
from tests.cli.full_cassette import NAME, STORES, everything, interactions, store_of
from tests.cli.invocation import KEY, findings, run, written
from tests.cli.test_doctor import write
from tests.core.requests import asked, chat
from tests.stores.recordings import recording


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cassette in a file."""
    return asyncio.run(everything(tmp_path_factory.mktemp("original")))


@pytest.fixture(scope="module", params=STORES)
def store(
    request: pytest.FixtureRequest, original: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A store of each sort that holds the same cassette."""
    postgres = request.getfixturevalue("postgres_dsn") if request.param == "postgresql" else ""
    with store_of(request.param, tmp_path_factory.mktemp("store"), postgres) as url:
        with redirect_stdout(io.StringIO()), pytest.raises(SystemExit) as ended:
            main(["cassette", "convert", str(original), f"{url}#{NAME}"])
        assert ended.value.code == 0
        yield url


def copied(capsys: pytest.CaptureFixture[str], file: Path, there: str) -> None:
    assert run(capsys, "convert", "--no-redact", str(file), there)[::2] == (0, "")


def says_what_is_left(err: str) -> bool:
    """Whether a command says that its store keeps what it removed; it says nothing else."""
    assert err == "" or ("PostgreSQL keeps what was removed" in err and err.count("\n") == 1)
    return err != ""


def test_ls(capsys: pytest.CaptureFixture[str], store: str) -> None:
    code, out, err = run(capsys, "ls", "--store", store)
    assert (code, err) == (0, "")
    assert [NAME, "7"] in [line.split()[:2] for line in out.splitlines()]

    (listed,) = [
        item
        for item in json.loads(run(capsys, "ls", "--store", store, "--format=json")[1])
        if item["name"] == NAME
    ]
    assert (listed["interactions"], listed["unfinished"], listed["error"]) == (7, False, None)
    assert listed["size_bytes"] > 0
    assert listed["modified_at"]


@pytest.mark.parametrize(
    "arguments", [(), ("--format=json",), ("--messages",), ("1",), ("3", "--format=json")]
)
def test_show(
    capsys: pytest.CaptureFixture[str], store: str, original: Path, arguments: tuple[str, ...]
) -> None:
    here = run(capsys, "show", str(original), *arguments)

    assert here[0] == 0
    assert run(capsys, "show", NAME, "--store", store, *arguments) == here


def test_mv(capsys: pytest.CaptureFixture[str], store: str) -> None:
    before = run(capsys, "show", NAME, "--store", store)
    there = run(capsys, "mv", NAME, "moved/to", "--store", store)

    assert there == (0, f"{NAME} is now moved/to\n", "")
    assert run(capsys, "show", "moved/to", "--store", store) == before
    names = [line.split()[0] for line in run(capsys, "ls", "--store", store)[1].splitlines()]
    assert "moved/to" in names
    assert NAME not in names
    assert run(capsys, "verify", "--store", store)[0] == 0

    copied(capsys, written("taken", *interactions()[:1]), f"{store}#taken")
    code, _, err = run(capsys, "mv", "moved/to", "taken", "--store", store)
    assert code == 2
    assert "already" in err
    # Into another store and back.
    assert run(capsys, "mv", f"{store}#moved/to", "file:./cassettes#here")[0] == 0
    assert run(capsys, "mv", "file:./cassettes#here", f"{store}#{NAME}")[0] == 0
    assert run(capsys, "show", NAME, "--store", store) == before


def test_diff(capsys: pytest.CaptureFixture[str], store: str, original: Path) -> None:
    there = f"{store}#{NAME}"
    code, out, err = run(capsys, "diff", str(original), there, "--headers")
    assert (code, out.partition(",")[0], err) == (0, "7 equal", "")

    other = written("other", *interactions()[:5])
    code, out, err = run(capsys, "diff", there, str(other), "--format=json")
    found = json.loads(out)
    assert (code, err, found["equal"], len(found["only_first"])) == (1, "", 4, 2)


def test_verify(capsys: pytest.CaptureFixture[str], store: str) -> None:
    code, out, err = run(capsys, "verify", f"{store}#{NAME}")
    assert (code, err) == (0, "")
    assert out.endswith(f"#{NAME}: 7 interactions, 1 large body, whole\n")

    code, out, err = run(capsys, "verify", "--store", store)
    assert (code, err) == (0, "")
    assert f"{NAME}: 7 interactions, 1 large body, whole\n" in out


def test_scan_and_redact(capsys: pytest.CaptureFixture[str], store: str) -> None:
    assert findings(capsys, "scan", f"{store}#{NAME}") == (0, "", "")
    leaky = recording(1, body=b'{"said": "%b"}' % KEY.encode()).interaction
    copied(capsys, written("leaky", recording(0).interaction, leaky), f"{store}#leaky")

    for deed, code, after in (("scan", 1, 1), ("redact", 0, 0)):
        found, out, err = run(capsys, deed, "leaky", "--store", store)
        assert (found, KEY in out) == (code, False)
        assert says_what_is_left(err) == (deed == "redact" and "postgresql" in store)
        assert "interactions[1].response" in out
        assert run(capsys, "scan", "leaky", "--store", store)[0] == after
    assert run(capsys, "verify", f"{store}#leaky")[0] == 0
    assert KEY not in run(capsys, "show", f"{store}#leaky", "1")[1]


def test_prune(capsys: pytest.CaptureFixture[str], store: str, original: Path) -> None:
    there = f"{store}#pruned"
    copied(capsys, original, there)
    wanted = run(capsys, "prune", there, "--keep-last=1", "--dry-run")[1].splitlines()
    assert wanted[-1].endswith("3 of 7 interactions would go, 4 left")

    code, out, err = run(capsys, "prune", there, "--keep-last=1")
    assert (code, says_what_is_left(err)) == (0, "postgresql" in store)
    assert out.splitlines() == [line.replace("would go", "dropped") for line in wanted]
    left = json.loads(run(capsys, "show", there, "--format=json")[1])
    assert [interaction["kind"] for interaction in left] == ["tool", "http", "http", "retrieval"]
    assert run(capsys, "verify", there)[0] == 0


def test_prune_by_report(capsys: pytest.CaptureFixture[str], store: str, original: Path) -> None:
    there = f"{store}#reported"
    copied(capsys, original, there)
    unused = interactions()[3]
    assert isinstance(unused, Interaction)
    named = {"index": 9, "method": "POST", "path": "/v1/é?a=1&at=2", "mark": fingerprint(unused)}
    report = {"cassettes": [{"name": "reported", "unused": [named]}]}
    Path("run.json").write_text(json.dumps(report))

    code, out, err = run(capsys, "prune", "--report=run.json", "--store", store)

    assert (code, says_what_is_left(err)) == (0, "postgresql" in store)
    assert out.endswith("1 of 7 interactions dropped, 6 left\n")
    assert "/v1/%C3%A9" not in run(capsys, "show", there)[1]
    assert run(capsys, "prune", "--report=run.json", there)[0] == 2


def test_convert(capsys: pytest.CaptureFixture[str], store: str, original: Path) -> None:
    there, copy = f"{store}#{NAME}", f"{store}#copy"
    first = run(capsys, "convert", there, copy)
    assert (first[0], ": 7 of 7 interactions, sha256:" in first[1], first[2]) == (0, True, "")
    assert run(capsys, "convert", there, copy) == first

    other = written("other", *interactions()[:1])
    code, out, err = run(capsys, "convert", str(other), copy)
    assert (code, out, "already exists" in err) == (2, "", True)
    assert run(capsys, "convert", str(other), copy, "--force")[0] == 0
    *again, err = run(capsys, "convert", there, copy, "--force")
    assert (*again, says_what_is_left(err)) == (*first[:2], "postgresql" in store)

    assert run(capsys, "convert", copy, f"back/{NAME}.json")[0] == 0
    back = Path(f"back/{NAME}.json")
    assert back.read_bytes() == original.read_bytes()
    (body,) = back.with_suffix(".assets").iterdir()
    assert body.read_bytes() == (original.with_suffix(".assets") / body.name).read_bytes()


def test_doctor_writes_rules(capsys: pytest.CaptureFixture[str], store: str) -> None:
    for name, seed in (("one", 1), ("two", 2)):
        file = write(name, asked(chat("a", seed=seed)), asked(chat("b")))
        copied(capsys, file, f"{store}#doctor/{name}")
    one, two = f"{store}#doctor/one", f"{store}#doctor/two"
    assert run(capsys, "diff", one, two)[0] == 1

    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--write", one, two])
    said = capsys.readouterr().err
    assert (ended.value.code, said.endswith("#doctor/one.\n")) == (0, True)

    # Each is found under the keys that the rules give it now.
    assert run(capsys, "verify", one)[::2] == (0, "")
    code, out, err = run(capsys, "diff", one, two)
    assert (code, out, err) == (0, "2 equal, 0 different, " + out.partition("different, ")[2], "")


@pytest.mark.parametrize(
    "command",
    ["show", "diff", "verify", "scan", "redact", "convert", "prune"],
)
def test_no_such_cassette(capsys: pytest.CaptureFixture[str], store: str, command: str) -> None:
    rest = {"diff": (f"{store}#{NAME}",), "convert": ("x",), "prune": ("--keep-last=1",)}

    code, out, err = run(capsys, command, f"{store}#none", *rest.get(command, ()))

    assert (code, out if command != "verify" else "", err.count("\n")) == (2, "", 1)
    assert "none" in err
    assert "synthetic-pass" not in err
