"""`tapeway cassette branch`: a cassette on another one, compared and made one of again."""

from pathlib import Path

import pytest

from tapeway.core.json_text import Json
from tapeway.core.matching.rules import Rules, meta_with_rules
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.formats.native import document
from tests.cli.invocation import run, written
from tests.support.exchanges import interaction


def recorded(name: str, *paths: str, meta: dict[str, Json] | None = None) -> Path:
    items = [
        interaction(index=at, target=f"/v1/{path}", body=f"{name} {path}".encode())
        for at, path in enumerate(paths)
    ]
    file = Path("cassettes") / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = CassetteHead("2026-01-01T00:00:00Z", "run", meta or {})
    file.write_bytes(document.save(StoredCassette(head, items)))
    return file


def read(name: str) -> StoredCassette:
    return document.load(Path(f"cassettes/{name}.json").read_bytes())


def test_a_branch_has_the_run_id_the_rules_and_the_base(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded("run", "a", "b", meta=meta_with_rules({"repeats": "miss"}, Rules(ignore=("body.x",))))

    code, out, err = run(
        capsys,
        *("branch", "run", "fix", "--at", "1", "--positional"),
        *("--set", "body.model=gpt-5", "--set", "body.n=2"),
    )

    assert (code, out, err) == (0, "fix stands on the first 1 of the 2 recordings of run\n", "")
    made = read("fix")
    assert (made.head.run_id, len(made.interactions)) == ("run", 0)
    assert made.head.meta["repeats"] == "miss"
    assert made.head.meta["rules"] == {"ignore": ["body.x"]}
    assert made.head.meta["base"] == {
        **{"cassette": "run", "until": 1, "positional": True},
        "set": {"body.model": "gpt-5", "body.n": 2},
    }


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "fix", "--at", "3"), "run has 2 recordings: give a smaller --at"),
        (("run", "run"), "run exists already: give another name"),
        (("runn", "fix"), "there is no cassette runn"),
        (("run", "fix", "--positional"), "--positional needs --at N"),
        (("run", "fix", "--set", "model"), "write PATH=VALUE"),
        (("run", "fix", "--set", "body.**=1"), "it leads to no single value of the body"),
        (("run", "sqlite:x.db#fix"), "is in another store than run: use one store"),
    ],
)
def test_what_cannot_be_branched_is_refused_and_nothing_is_made(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str
) -> None:
    recorded("run", "a", "b")

    code, _, err = run(capsys, "branch", *arguments)

    assert code == 2
    assert named in err
    assert [path.name for path in Path("cassettes").iterdir()] == ["run.json"]


def test_a_flattened_branch_has_what_counts_of_its_bases(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded("run", "a", "b", "c")
    recorded("fix", "b", "d", meta={"base": {"cassette": "run", "until": 2}})

    code, out, _ = run(capsys, "convert", "--flatten", "fix", "one")

    assert (code, out.partition(",")[0]) == (0, "one: 3 of 3 interactions")
    made = read("one")
    assert [item.response.body for item in made.interactions] == [b"run a", b"fix b", b"fix d"]  # type: ignore[union-attr] # all are HTTP
    assert "base" not in made.head.meta


def test_a_branch_is_compared_with_what_it_has_from_its_base(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded("run", "a", "b")
    recorded("fix", "c", meta={"base": {"cassette": "run", "until": 1}})

    code, out, _ = run(capsys, "diff", "run", "fix")

    assert code == 1
    assert "/v1/a" not in out
    assert "/v1/b" in out
    assert "/v1/c" in out


def test_a_missing_base_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    written("run", interaction())
    recorded("fix", "c", meta={"base": {"cassette": "gone"}})

    code, _, err = run(capsys, "diff", "run", "fix")

    assert code == 2
    assert "cassette 'fix' stands on 'gone', which does not exist" in err
