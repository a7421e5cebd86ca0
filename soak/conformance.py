"""Autobahn's WebSocket cases through the proxy, in front of an echo: results as on the echo itself.

python -m soak.conformance [CASE ...]

Needs the package kosoku, which `make conformance` installs. Without CASE, which may have `*`, the cases
of Autobahn's groups 1 to 7, 10, 12 and 13 run. The run names each result that differs, and ends with 1
where a result is worse: NON-STRICT, which is as allowed as OK, depends on time.
"""

import importlib
import importlib.util
import sys
from collections import Counter
from typing import Any

import uvloop
from aiohttp import WSMsgType, web

from tapeway.core.model.control import Mode
from tapeway.server.proxy import ProxyOptions
from tests.server.in_process_proxy import MIB, running_proxy
from tests.server.websocket.websocket_service import serving

GROUPS = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*", "12.*", "13.*")
MODES: tuple[Mode, ...] = ("passthrough", "record")
_MAX_MESSAGE = 64 * MIB


async def _echo(socket: web.WebSocketResponse) -> None:
    """Send messages back, and keep none: some cases send a thousand long ones."""
    while (message := await socket.receive()).type is not WSMsgType.CLOSE:
        if message.type is WSMsgType.TEXT:
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
        else:
            return
    await socket.close(code=message.data or 1000)


async def _results(url: str, cases: list[str]) -> dict[str, str]:
    """The result of each case, message exchange and closing handshake."""
    kosoku: Any = importlib.import_module("kosoku")
    try:
        found = await kosoku.run_fuzzingclient(url.replace("http", "ws", 1), cases)
    except kosoku.FailureError as failure:
        found = failure.results
    return {
        result.case_id: f"{result.behavior.value}, close {result.behavior_close.value}"
        for result in found
    }


async def _run(cases: list[str]) -> int:
    differences = 0
    options = ProxyOptions(max_body=_MAX_MESSAGE, body_idle_s=60)
    async with serving(_echo) as service:
        direct = await _results(service.url, cases)
        _say(f"direct: {len(direct)} cases: {_counted(direct)}")
        for mode in MODES:
            async with running_proxy(service.url, mode=mode, options=options) as proxy:
                through = await _results(proxy.url, cases)
            other = [case for case in direct if through.get(case) != direct[case]]
            worse = [case for case in other if not _is_as_good(through.get(case), direct[case])]
            _say(f"{mode}: {len(through)} cases: {_counted(through)}; {len(worse)} worse")
            for case in other:
                _say(f"  {case}: {direct[case]}; through the proxy {through.get(case)}")
            differences += len(worse)
    return 1 if differences else 0


def _is_as_good(through: str | None, direct: str) -> bool:
    # Where a client breaks the rules, the echo of the message before may be under way still: on a
    # busy machine the connection then fails before that echo comes through a second connection.
    return through is not None and through.replace("NON-STRICT", "OK") == direct


def _counted(results: dict[str, str]) -> str:
    counts = Counter([result.partition(",")[0] for result in results.values()])
    return ", ".join([f"{count} {name}" for name, count in counts.most_common()])


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    if importlib.util.find_spec("kosoku") is None:
        sys.exit("soak.conformance: the package kosoku is missing: run make conformance")
    sys.exit(uvloop.run(_run(sys.argv[1:] or [*GROUPS])))
