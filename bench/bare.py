"""The baseline: aiohttp's low-level server, sending bytes that it has in memory."""

import asyncio
import json
import sys

import uvloop
from aiohttp import web

from bench.answers import EVENTS, JSON_BODY, STREAM_PATH


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    await request.read()
    if request.path != STREAM_PATH:
        return web.Response(body=JSON_BODY, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in EVENTS:
        await response.write(event)
    await response.write_eof()
    return response


async def main() -> None:
    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    sys.stdout.write(json.dumps({"event": "ready", "proxy": f"http://{host}:{port}"}) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
