"""An object store on loopback: like S3, with lists by prefix and conditional writes."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from xml.sax.saxutils import escape

from aiohttp import web

PAGE = 50
"""S3 has pages of 1000."""

Spoil = Callable[[Callable[[], web.Response]], web.Response]


@dataclass(slots=True)
class ObjectServer:
    """The objects of a bucket by key. `calls` lists all calls, such as `PUT log/x!…`."""

    url: str = ""
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    faults: list[tuple[str, Spoil]] = field(default_factory=list)

    def spoil(self, call: str, fault: Spoil) -> None:
        """Spoil the next call that begins like this."""
        self.faults.append((call, fault))

    def contents(self, prefix: str = "") -> list[bytes]:
        """The objects with this prefix, by key."""
        return [
            content for key, (content, _) in sorted(self.objects.items()) if key.startswith(prefix)
        ]

    async def answer(self, request: web.BaseRequest) -> web.Response:
        key = request.path.removeprefix("/bucket").removeprefix("/")
        content = await request.content.read()
        self.calls.append(f"{request.method} {key}")
        for place, (call, fault) in enumerate(self.faults):
            if self.calls[-1].startswith(call):
                del self.faults[place]
                return fault(lambda: self._answer(request, key, content))
        return self._answer(request, key, content)

    def _answer(self, request: web.BaseRequest, key: str, content: bytes) -> web.Response:
        if request.method == "PUT":
            if key in self.objects and request.headers.get("If-None-Match") == "*":
                return web.Response(status=412)
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            self.objects[key] = content, at
            return web.Response()
        if request.method == "DELETE":
            self.objects.pop(key, None)
            return web.Response(status=204)
        if not key:
            return self._list(request.query["prefix"], request.query["start-after"])
        if (found := self.objects.get(key)) is None:
            return web.Response(status=404)
        return web.Response(body=found[0])

    def _list(self, prefix: str, after: str) -> web.Response:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        items = [
            f"<Contents><Key>{escape(key)}</Key><LastModified>{self.objects[key][1]}</LastModified>"
            f"<Size>{len(self.objects[key][0])}</Size></Contents>"
            for key in keys[:PAGE]
        ]
        more = "true" if len(keys) > PAGE else "false"
        text = f"<IsTruncated>{more}</IsTruncated>{''.join(items)}"
        name = "http://s3.amazonaws.com/doc/2006-03-01/"
        page = f'<ListBucketResult xmlns="{name}">{text}</ListBucketResult>'
        return web.Response(text=page, content_type="application/xml")


@asynccontextmanager
async def object_server() -> AsyncIterator[ObjectServer]:
    """A server with an empty bucket."""
    server = ObjectServer()
    runner = web.ServerRunner(web.Server(server.answer), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"objects://127.0.0.1:{runner.addresses[0][1]}/bucket"
        yield server
    finally:
        await runner.cleanup()
