"""The environment of programs that are to use a proxy: base URLs, dummy keys, and no proxy before it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

URL_VARIABLE, ADMIN_URL_VARIABLE = "TAPEWAY_URL", "TAPEWAY_ADMIN_URL"
"""Tell a program where the proxy and its admin API are; they set no option."""

COMMAND_VARIABLE = "TAPEWAY_BIN"
"""Names the command of tapeway for test runners."""

DUMMY_KEY = "replay-needs-no-key"
LOOPBACK = ("127.0.0.1", "localhost")
NO_PROXY = ("NO_PROXY", "no_proxy")


@dataclass(frozen=True, slots=True)
class ClientSetup:
    """How clients reach a proxy: suffixes of its URL, by variable and by route.

    `keys` are the names of each provider's key: an SDK refuses to start without a value.
    `record_command` records what was missed, None where the proxy names a switch of its mode.
    """

    variables: Mapping[str, str]
    routes: Mapping[str, str]
    keys: Sequence[Sequence[str]]
    record_command: str | None = None

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """What `GET /api/v1/clients` answered."""
        proxy: str = answer["proxy"]
        variables, routes = (
            {name: str(url).removeprefix(proxy) for name, url in answer[kind].items()}
            for kind in ("base_urls", "routes")
        )
        return cls(variables, routes, answer["keys"], answer.get("record_command"))


def client_variables(
    clients: ClientSetup,
    url: str,
    admin_url: str | None,
    environ: Mapping[str, str],
    *,
    dummies: bool,
) -> dict[str, str]:
    """The variables to set or change in `environ` for programs whose SDKs are to use the proxy at `url`.

    With `dummies` each provider's key without a value gets a dummy.
    """
    variables = {URL_VARIABLE: url, **{name: url + end for name, end in clients.variables.items()}}
    if admin_url is not None:
        variables[ADMIN_URL_VARIABLE] = admin_url
    if dummies:
        variables |= dummy_keys(clients.keys, environ)
    return variables | dict(_without_proxy(environ))


def dummy_keys(keys: Sequence[Sequence[str]], environ: Mapping[str, str]) -> dict[str, str]:
    """A dummy under the first name of each key without a value."""
    return {names[0]: DUMMY_KEY for names in keys if not any(map(environ.get, names))}


def _without_proxy(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in NO_PROXY:
        known = [part.strip() for part in environ.get(name, "").split(",") if part.strip()]
        yield name, ",".join(dict.fromkeys([*known, *LOOPBACK]))
