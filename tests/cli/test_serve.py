import json
import logging
from collections.abc import Callable

import pytest
from click import Command, Option

from tapeway.cli.main import main
from tapeway.cli.serve import serve
from tapeway.server import lifecycle
from tapeway.settings.options import Settings
from tapeway.settings.parsers import HostPort, RouteChoice
from tapeway.settings.sources import OPTIONS

log = logging.getLogger("tapeway.test")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Settings]:
    def served(*arguments: str, within: Callable[[], None] = lambda: None) -> Settings:
        seen: list[Settings] = []

        def record(settings: Settings) -> None:
            seen.append(settings)
            within()

        monkeypatch.setattr(lifecycle, "serve", record)
        with pytest.raises(SystemExit) as ended:
            main(["serve", *arguments])
        assert ended.value.code == 0
        (settings,) = seen
        return settings

    return served


def test_flags_arrive_as_settings(served: Callable[..., Settings]) -> None:
    settings = served(
        *("--listen", "127.0.0.1:0", "--admin-listen", "off", "--mode", "replay"),
        *("--route", "a=http://one", "--route", "openai=off", "--record-statuses", "200,404"),
        *("--no-rewrite", "--insecure-upstream", "--allow-address", "10.0.0.0/8"),
        *("--allow-origin", "https://a.example/", "--allow-origin", "null"),
        *("--allow-host", "tunnel.example"),
    )

    assert settings.listen == HostPort("127.0.0.1", 0)
    assert settings.admin_listen is None
    assert settings.mode == "replay"
    assert settings.route == (RouteChoice("a", "http://one"), RouteChoice("openai", off=True))
    assert settings.record_statuses == frozenset({200, 404})
    assert not settings.rewrite
    assert settings.insecure_upstream
    assert len(settings.allow_address) == 1
    assert settings.allow_origin == ("https://a.example", "null")
    assert settings.allow_host == ("tunnel.example",)


@pytest.mark.parametrize(
    ("address", "listen"),
    [
        (":9000", HostPort("127.0.0.1", 9000)),
        (":0", HostPort("127.0.0.1", 0)),
        ("localhost:9000", HostPort("localhost", 9000)),
    ],
)
def test_the_address_may_come_without_its_flag(
    served: Callable[..., Settings], address: str, listen: HostPort
) -> None:
    assert served(address).listen == listen
    assert served("--mode", "replay", address).listen == listen
    assert served("--listen", address).listen == listen


def test_without_flags_the_settings_are_the_defaults(served: Callable[..., Settings]) -> None:
    assert served() == Settings()


def test_a_flag_wins_over_its_variable(
    served: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPEWAY_MODE", "record")
    monkeypatch.setenv("TAPEWAY_REWRITE", "false")

    settings = served("--rewrite")

    assert settings.mode == "record"
    assert settings.rewrite


def test_every_option_is_a_flag() -> None:
    assert isinstance(serve, Command)
    flags = {p.name for p in serve.params if isinstance(p, Option) and not p.hidden}

    assert flags == set(OPTIONS)


def test_an_unknown_variable_is_logged_and_nothing_is_printed(
    served: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TAPEWAY_LISTN", "x")

    served()

    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert json.loads(line)["level"] == "warning"
    assert json.loads(line)["message"].startswith("unknown variable TAPEWAY_LISTN is ignored")


def test_secrets_of_settings_and_environment_are_kept_out_of_the_log(
    served: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary-environment")
    monkeypatch.setenv("TAPEWAY_ADMIN_TOKEN", "canary-token")
    texts = ["canary-environment", "canary-token", "canary-user:canary-pass"]

    served(
        *("--upstream", "https://canary-user:canary-pass@host"),
        within=lambda: log.warning("seen: %s", texts),
    )

    err = capsys.readouterr().err
    assert "seen" in err
    assert "canary" not in err


def test_the_log_is_as_asked_for(
    served: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    served("--log-format", "human", "--log-level", "debug", within=lambda: log.debug("told"))

    assert capsys.readouterr().err.endswith("debug   told\n")
