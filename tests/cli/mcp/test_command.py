"""What `tapeway mcp` refuses before it serves."""

import sys

import pytest

from tests.cli.invocation import run_tapeway


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--store", "calls", "--admin", "http://127.0.0.1:1"], "leave out --admin"),
        (["--store", "calls", "--allow-writes"], "leave out --allow-writes"),
        (["--http", "nowhere"], "--http: 'nowhere' is not"),
        (["--http", "0.0.0.0:0"], "other machines could call the tools: set --admin-token"),
        (
            ["--admin", "ftp://host"],
            "--admin: this address of a tapeway cannot be used, it is no http",
        ),
    ],
)
def test_what_cannot_be_served_is_said(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run_tapeway(capsys, "mcp", *arguments)

    assert (code, out) == (2, "")
    assert message in err


def test_without_the_package_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*sys.modules]:
        if name.startswith("tapeway.cli.mcp.") and name != "tapeway.cli.mcp.command":
            monkeypatch.delitem(sys.modules, name)
    for name in ("mcp.server.mcpserver", "uvicorn"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [_NotInstalled(), *sys.meta_path])

    code, _, err = run_tapeway(capsys, "mcp")

    assert code == 2
    assert "pip install 'tapeway[mcp]'" in err


class _NotInstalled:
    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name in ("mcp.server.mcpserver", "uvicorn"):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
