"""Loads the settings from flags, `TAPEWAY_…` variables and tapeway.toml, in that precedence."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tapeway.core.text import nearest_names
from tapeway.embedded.client_variables import ADMIN_URL_VARIABLE, COMMAND_VARIABLE, URL_VARIABLE
from tapeway.errors import ConfigError
from tapeway.settings import parsers
from tapeway.settings.options import OPTION_OF, OptionFault, Settings
from tapeway.stores.opening import set_credentials

PREFIX = "TAPEWAY_"
DEFAULTS_VARIABLE = "TAPEWAY_DEFAULTS"
"""Names a file of options of the lowest precedence, such as the file of an image."""
DEFAULT_FILE = "tapeway.toml"
IN_FILES = ("admin_token", "store", "store_token", "upstream_proxy")
"""`TAPEWAY_STORE_FILE` names a file with the value of `TAPEWAY_STORE`; so for every variable."""
TABLES = tuple(name for name, option in OPTION_OF.items() if option.table)
OPTIONS = tuple(name for name in OPTION_OF if name not in TABLES)
SWITCHES_OFF = {f"no_{name}": name for name, option in OPTION_OF.items() if option.flag}
"""`--no-presets` is `TAPEWAY_NO_PRESETS=true` or `no_presets = true` too."""

REMOVED = {
    "workers": "tapeway has no workers any more, leave this out; to serve with several processes, start "
    "several instances with the same --store postgresql://…",
}
"""Options that tapeway does not have any more, and what to do instead: giving one is an error."""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and warnings about their sources."""

    settings: Settings
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _SourcedValue:
    value: object
    source: str


def flag_of(option: str) -> str:
    """`admin_listen` -> `--admin-listen`."""
    return f"--{option.replace('_', '-')}"


def variable_of(option: str) -> str:
    """`admin_listen` -> `TAPEWAY_ADMIN_LISTEN`."""
    return PREFIX + option.upper()


def file_variable_of(option: str) -> str:
    """`store` -> `TAPEWAY_STORE_FILE`."""
    return f"{variable_of(option)}_FILE"


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], directory: Path
) -> LoadedSettings:
    """The settings from all sources; None and empty tuples in `flags` count as not given.

    An empty variable counts as not set, because compose files pass unset variables that way. Stores
    opened from now on use the store token and certificates. Raises ConfigError that names the flag,
    the variable or the file and key that cannot be used.
    """
    given = dict([*_of_environment(environ), *_of_flags(flags)])
    given = _of_file(given.get("config"), directory) | given
    if defaults := environ.get(DEFAULTS_VARIABLE):
        given = _of_file(_SourcedValue(defaults, DEFAULTS_VARIABLE), directory) | given
    for option, instead in REMOVED.items():
        if option in given:
            raise ConfigError(f"{given[option].source}: {instead}")
    try:
        settings = Settings.parse({option: one.value for option, one in given.items()})
    except OptionFault as exc:
        source = f"{given[exc.option].source}: " if exc.option else ""
        raise ConfigError(f"{source}{exc}") from None
    set_credentials(settings.store, settings.store_token, settings.store_ca)
    return LoadedSettings(settings, tuple(_unknown_variables(environ)))


def _of_flags(flags: Mapping[str, object]) -> Iterator[tuple[str, _SourcedValue]]:
    for option, value in flags.items():
        if value is not None and value != ():
            yield option, _SourcedValue(value, flag_of(option))


def _of_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, _SourcedValue]]:
    for option in (*OPTIONS, *REMOVED):
        if value := environ.get(variable_of(option)):
            yield option, _SourcedValue(value, variable_of(option))
    for option in IN_FILES:
        if path := environ.get(variable := file_variable_of(option)):
            if environ.get(variable_of(option)):
                raise ConfigError(
                    f"{variable} and {variable_of(option)} are both set: leave out one of them"
                )
            yield option, _SourcedValue(_value_in(path, variable), variable)
    for off, option in SWITCHES_OFF.items():
        if value := environ.get(variable_of(off)):
            yield option, _switched_off(value, variable_of(off))


def _value_in(path: str, variable: str) -> str:
    """The text of a file without the end of its last line. Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as exc:
        raise ConfigError(f"{variable}: {path} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{variable}: {path} is not UTF-8 at byte {exc.start}") from None


def _switched_off(value: object, source: str) -> _SourcedValue:
    try:
        return _SourcedValue(not parsers.boolean(value), source)
    except ValueError as exc:
        raise ConfigError(f"{source}: {exc}") from None


def _of_file(config: _SourcedValue | None, directory: Path) -> dict[str, _SourcedValue]:
    path = directory / (DEFAULT_FILE if config is None else str(config.value))
    shown = DEFAULT_FILE if config is None else str(config.value)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if config is None:
            return {}
        raise ConfigError(f"{config.source}: there is no file {shown}") from None
    except OSError as exc:
        raise ConfigError(f"{shown} cannot be read: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{shown} is not UTF-8 at byte {exc.start}") from None
    # Only here: most programs start without a file.
    import tomllib

    try:
        keys = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{shown} is not TOML: {exc}") from None
    given: dict[str, _SourcedValue] = {}
    for key, value in keys.items():
        name = key.replace("-", "_")
        option, place = SWITCHES_OFF.get(name, name), f"{shown}{_line_of(key, text)}"
        source = f"{place}: {key}"
        if option not in (*OPTIONS, *TABLES, *REMOVED) or option == "config":
            raise ConfigError(f"{place}: unknown key {key}{_nearest(option)}")
        if option in given:
            raise ConfigError(f"{given[option].source} is also given as {key}")
        sourced = _switched_off(value, source) if name != option else _SourcedValue(value, source)
        given[option] = sourced
    return given


def _line_of(key: str, text: str) -> str:
    """The line that begins a key or a table of the file, which the parser does not say."""
    begins = re.compile(rf"[ \t\[]*[\"']?{re.escape(key)}[\"']?[ \t]*[=.\]]")
    for number, line in enumerate(text.splitlines(), 1):
        if begins.match(line):
            return f", line {number}"
    return ""


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    known = {*map(variable_of, (*OPTIONS, *SWITCHES_OFF)), *map(file_variable_of, IN_FILES)}
    known |= {URL_VARIABLE, ADMIN_URL_VARIABLE, COMMAND_VARIABLE, DEFAULTS_VARIABLE}
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            option = name.removeprefix(PREFIX).lower()
            hint = f", [{option}] can be set in the file only" if option in TABLES else ""
            yield f"unknown variable {name} is ignored{hint or _nearest(option, variable_of)}"


def _nearest(option: str, shown: Callable[[str], str] = str) -> str:
    known = OPTIONS if shown is variable_of else (*OPTIONS, *TABLES)
    matches = nearest_names(option, known)
    return f", did you mean {shown(matches[0])}?" if matches else ""
