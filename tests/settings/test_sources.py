from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, Unpack

import pytest

from tapeway.core.matching.rules import Rules
from tapeway.core.model.faults import Fault
from tapeway.errors import ConfigError
from tapeway.settings.parsers import RouteChoice
from tapeway.settings.sources import OPTIONS, LoadedSettings, flag_of, load_settings, variable_of

FILE = "tapeway.toml"


class Given(TypedDict, total=False):
    flags: Mapping[str, object]
    environ: Mapping[str, str]
    toml: str


def load_from(folder: Path, **given: Unpack[Given]) -> LoadedSettings:
    if "toml" in given:
        (folder / FILE).write_text(given["toml"], encoding="utf-8")
    return load_settings(given.get("flags", {}), given.get("environ", {}), folder)


def test_with_nothing_given_the_defaults_hold(tmp_path: Path) -> None:
    loaded = load_from(tmp_path, flags={"mode": None, "route": ()})

    assert loaded.settings.mode == "auto"
    assert loaded.warnings == ()


def test_a_flag_comes_before_a_variable_before_the_file(tmp_path: Path) -> None:
    sources: list[Given] = [
        {"toml": 'cassette = "from-file"'},
        {"environ": {"TAPEWAY_CASSETTE": "from-environment"}},
        {"flags": {"cassette": "from-flag"}},
    ]
    expected = ["from-file", "from-environment", "from-flag"]
    given: Given = {}
    for source, name in zip(sources, expected, strict=True):
        given.update(source)
        loaded = load_from(tmp_path, **given)
        assert loaded.settings.cassette == name


def test_a_list_from_a_higher_source_replaces_the_lower_one_whole(tmp_path: Path) -> None:
    loaded = load_from(
        tmp_path,
        environ={"TAPEWAY_ROUTE": "a=http://one, b=http://two"},
        toml='route = ["c=http://three"]',
    )

    assert loaded.settings.route == (RouteChoice("a", "http://one"), RouteChoice("b", "http://two"))


def test_a_repeated_flag_is_a_list_and_its_commas_are_kept(tmp_path: Path) -> None:
    loaded = load_from(tmp_path, flags={"route": ("a=http://h/x,y", "b=http://two")})

    assert [choice.url for choice in loaded.settings.route] == ["http://h/x,y", "http://two"]


def test_the_file_holds_toml_s_own_kinds_and_either_spelling(tmp_path: Path) -> None:
    loaded = load_from(
        tmp_path,
        toml=(
            "miss_status = 404\nmax-body = 1024\ndrain_timeout = 0.5\nrewrite = false\n"
            'record-statuses = [200, "400-404"]\nadmin_listen = "off"\n'
        ),
    )

    settings = loaded.settings
    assert (settings.miss_status, settings.max_body, settings.drain_timeout) == (404, 1024, 0.5)
    assert not settings.rewrite
    assert settings.record_statuses == frozenset({200, 400, 401, 402, 403, 404})
    assert settings.admin_listen is None


@pytest.mark.parametrize(
    ("given", "presets"),
    [
        ({}, True),
        ({"flags": {"presets": False}}, False),
        ({"environ": {"TAPEWAY_PRESETS": "false"}}, False),
        ({"environ": {"TAPEWAY_NO_PRESETS": "1"}}, False),
        ({"environ": {"TAPEWAY_NO_PRESETS": "no"}}, True),
        ({"toml": "presets = false"}, False),
        ({"toml": "no-presets = true"}, False),
        ({"toml": "no_presets = true", "environ": {"TAPEWAY_PRESETS": "yes"}}, True),
        ({"flags": {"presets": True}, "environ": {"TAPEWAY_NO_PRESETS": "1"}}, True),
    ],
)
def test_a_switch_is_turned_off_by_either_name(tmp_path: Path, given: Given, presets: bool) -> None:
    loaded = load_from(tmp_path, **given)

    assert (loaded.settings.presets, loaded.warnings) == (presets, ())


def test_a_variable_may_name_a_file_that_holds_the_value(tmp_path: Path) -> None:
    for name, text in (("a", "t0ken\n"), ("b", "postgresql://u:pw@h/d\r\n"), ("c", "other")):
        (tmp_path / name).write_text(text)
    environ = {
        f"TAPEWAY_{option}_FILE": str(tmp_path / name)
        for option, name in (("ADMIN_TOKEN", "a"), ("STORE", "b"), ("STORE_TOKEN", "c"))
    }
    loaded = load_from(tmp_path, environ=environ)

    settings = loaded.settings
    assert (settings.admin_token, settings.store_token) == ("t0ken", "other")
    assert settings.store == "postgresql://u:pw@h/d"
    assert loaded.warnings == ()
    overridden = load_from(tmp_path, environ=environ, flags={"store": "memory:"})
    assert overridden.settings.store == "memory:"


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TAPEWAY_STORE_FILE": "/nowhere/at-all"}, "TAPEWAY_STORE_FILE: /nowhere/at-all cannot"),
        (
            {"TAPEWAY_ADMIN_TOKEN_FILE": "/dev/null"},
            "TAPEWAY_ADMIN_TOKEN_FILE: the token must be",
        ),
        (
            {"TAPEWAY_STORE_FILE": "/dev/null", "TAPEWAY_STORE": "memory:"},
            "TAPEWAY_STORE_FILE and TAPEWAY_STORE are both set",
        ),
    ],
)
def test_a_file_of_a_value_that_cannot_be_used_is_named(
    tmp_path: Path, environ: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_from(tmp_path, environ=environ)


def test_rules_are_a_table_of_the_file(tmp_path: Path) -> None:
    toml = '[rules]\nignore = ["body.seed"]\nrewrite = { "/v1beta/" = "/v1/" }\n'

    loaded = load_from(tmp_path, toml=toml, environ={"TAPEWAY_RULES": "x"})

    assert loaded.settings.rules == Rules(ignore=("body.seed",), rewrite=(("/v1beta/", "/v1/"),))
    assert loaded.warnings == (
        "unknown variable TAPEWAY_RULES is ignored, [rules] can be set in the file only",
    )


def test_faults_are_tables_of_the_file(tmp_path: Path) -> None:
    toml = (
        '[[fault]]\nname = "a"\ndo = 429\nretry_after = 1\n'
        '[[fault]]\nname = "b"\ndo = "end"\nafter = "3 events"\ntimes = 2\nmatch = { index = 4 }\n'
    )

    loaded = load_from(tmp_path, toml=toml)

    assert loaded.settings.fault == (
        Fault("a", "429", retry_after=1),
        Fault("b", "end", {"index": 4}, 2, "3 events"),
    )


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load_from(tmp_path, environ={"TAPEWAY_UPSTREAM": ""}).settings.upstream is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"flags": {"listen": "x"}}, "--listen: 'x' is not an address"),
        ({"flags": {"admin_listen": "x"}}, "--admin-listen: 'x' is not an address"),
        ({"environ": {"TAPEWAY_LISTEN": "x"}}, "TAPEWAY_LISTEN: 'x' is not an address"),
        ({"toml": 'listen = "x"'}, "tapeway.toml, line 1: listen: 'x' is not an address"),
        ({"toml": "max-body = true"}, "tapeway.toml, line 1: max-body: 'True' is not a size"),
        ({"environ": {"TAPEWAY_NO_PRESETS": "x"}}, "TAPEWAY_NO_PRESETS: 'x' is not accepted"),
        (
            {"toml": "no_presets = 3"},
            "tapeway.toml, line 1: no_presets: '3' is not accepted; give true",
        ),
        (
            {"toml": "presets = true\nno_presets = true"},
            "tapeway.toml, line 1: presets is also given as no_presets",
        ),
        ({"toml": 'lisen = "x"'}, "tapeway.toml, line 1: unknown key lisen, did you mean listen?"),
        ({"toml": "zzz = 1"}, "tapeway.toml, line 1: unknown key zzz"),
        ({"toml": "[serve]\nmode = 1"}, "tapeway.toml, line 1: unknown key serve"),
        ({"toml": "fault = 1"}, "tapeway.toml, line 1: fault: must be a list of up to 1000 faults"),
        (
            {"toml": 'mode = "auto"\n[[fault]]\nname = "a"\ndo = "boom"'},
            "tapeway.toml, line 2: fault: [0] ('a').do: must be one of 429, 500",
        ),
        ({"toml": "[rule]"}, "tapeway.toml, line 1: unknown key rule, did you mean rules?"),
        (
            {"toml": "rules = 1"},
            "tapeway.toml, line 1: rules: must be a table; its keys are ignore",
        ),
        (
            {"toml": '[rules]\nignore = ["body.a", "body..b"]'},
            "tapeway.toml, line 1: rules: ignore[1]: 'body..b' cannot be parsed from '..b'; write it like",
        ),
        (
            {"toml": "[rules]\ningore = []"},
            "tapeway.toml, line 1: rules: ingore: there is no such rule; did you mean 'ignore'?",
        ),
        (
            {"toml": '[rules.patterns]\nx = "(?=a)"'},
            "tapeway.toml, line 1: rules: patterns.x: the pattern cannot be used: invalid perl operator",
        ),
        (
            {"toml": "[rules]\nnormalise = [1979-05-27]"},
            "tapeway.toml, line 1: rules: normalise[0]: must",
        ),
        (
            {"toml": 'mode = "auto"\nnot-secret = [\n  "bld-*",\n  "*k*",\n]'},
            "tapeway.toml, line 2: not-secret: '*k*' would allow too much; write 4 characters or more",
        ),
        (
            {"toml": "not_secret = [true]"},
            "tapeway.toml, line 1: not_secret: 'True' is no text; write",
        ),
        (
            {"environ": {"TAPEWAY_NOT_SECRET": "bld-*,***"}},
            "TAPEWAY_NOT_SECRET: '***' would allow too",
        ),
        ({"flags": {"not_secret": ("abc",)}}, "--not-secret: 'abc' would allow too much"),
        ({"toml": '# mode\n\n"mode" = "x"'}, "tapeway.toml, line 3: mode: 'x' is not"),
        ({"toml": 'mode = "auto"\n[[rules.scope]]'}, "tapeway.toml, line 2: rules: "),
        ({"toml": 'config = "x"'}, "tapeway.toml, line 1: unknown key config"),
        (
            {"toml": "max_body = 1\nmax-body = 2"},
            "tapeway.toml, line 1: max_body is also given as max-body",
        ),
        ({"toml": "mode = "}, "tapeway.toml is not TOML: Invalid value (at end of document)"),
        ({"flags": {"config": "no.toml"}}, "--config: there is no file no.toml"),
        ({"environ": {"TAPEWAY_CONFIG": "no.toml"}}, "TAPEWAY_CONFIG: there is no file no.toml"),
        ({"environ": {"TAPEWAY_DEFAULTS": "no.toml"}}, "TAPEWAY_DEFAULTS: there is no file no"),
        ({"flags": {"config": "."}}, ". cannot be read: Is a directory"),
        ({"flags": {"admin_listen": "0.0.0.0:1"}}, "other machines could reach the admin API"),
    ],
)
def test_an_error_names_where_the_value_came_from(
    tmp_path: Path, given: Given, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_from(tmp_path, **given)

    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'mode = "\xff"')

    with pytest.raises(ConfigError, match=r"^tapeway\.toml is not UTF-8 at byte 8$"):
        load_from(tmp_path)


@pytest.mark.parametrize("key", ["flags", "environ", "toml"])
def test_a_token_that_cannot_be_used_is_not_shown(tmp_path: Path, key: str) -> None:
    bad = "canary with spaces"
    given: dict[str, Given] = {
        "flags": {"flags": {"admin_token": bad}},
        "environ": {"environ": {"TAPEWAY_ADMIN_TOKEN": bad}},
        "toml": {"toml": f'admin_token = "{bad}"'},
    }

    with pytest.raises(ConfigError) as caught:
        load_from(tmp_path, **given[key])

    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_file_named_by_flag_takes_the_place_of_the_one_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text('mode = "record"')

    loaded = load_from(tmp_path, flags={"config": "other.toml"}, toml='cassette = "unread"')

    assert (loaded.settings.mode, loaded.settings.cassette) == ("record", "default")


def test_an_unknown_variable_is_a_warning_that_names_the_nearest(tmp_path: Path) -> None:
    loaded = load_from(
        tmp_path,
        environ={"TAPEWAY_LISTN": "x", "TAPEWAY_QQQ": "secret-value", "OTHER": "x", "TAPEWAY": "x"},
    )

    assert loaded.warnings == (
        "unknown variable TAPEWAY_LISTN is ignored, did you mean TAPEWAY_LISTEN?",
        "unknown variable TAPEWAY_QQQ is ignored",
    )


def test_every_other_source_comes_before_the_file_of_defaults(tmp_path: Path) -> None:
    defaults = tmp_path / "defaults.toml"
    defaults.write_text('cassette = "from-defaults"\nmode = "replay"\n', encoding="utf-8")
    named = {"TAPEWAY_DEFAULTS": str(defaults)}

    alone = load_from(tmp_path, environ=named)
    under_a_file = load_from(tmp_path, toml='cassette = "from-file"', environ=named)
    under_a_variable = load_from(tmp_path, environ=named | {"TAPEWAY_CASSETTE": "from-variable"})

    assert (alone.settings.cassette, alone.warnings) == ("from-defaults", ())
    assert under_a_file.settings.cassette == "from-file"
    assert under_a_file.settings.mode == "replay"
    assert under_a_variable.settings.cassette == "from-variable"


def test_the_variables_that_tell_programs_of_tapeway_are_known(tmp_path: Path) -> None:
    names = ("TAPEWAY_URL", "TAPEWAY_ADMIN_URL", "TAPEWAY_BIN")

    assert load_from(tmp_path, environ=dict.fromkeys(names, "x")).warnings == ()


def test_every_option_has_a_flag_and_a_variable() -> None:
    assert flag_of("admin_listen") == "--admin-listen"
    assert variable_of("admin_listen") == "TAPEWAY_ADMIN_LISTEN"
    assert len(OPTIONS) == len(set(map(flag_of, OPTIONS)))
