"""One row of the API: a method on a path, who handles it, what it takes and answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from aiohttp import web
from pydantic import BaseModel

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.control import InForce
from tapeway.admin.models.schema import MAX_INDEX, Nothing
from tapeway.admin.request_body import read_body, read_query
from tapeway.core.http.routing import check_cassette_name
from tapeway.errors import AdminError

Query = TypeVar("Query", bound=BaseModel)
Body = TypeVar("Body", bound=BaseModel)

Answer = BaseModel | web.StreamResponse
Serve = Callable[[HandlerContext, web.Request], Awaitable[web.StreamResponse]]

_SAFE = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class OperationCall(Generic[Query, Body]):
    """A call that may be made and could be read."""

    request: web.Request
    query: Query
    body: Body

    @property
    def cassette(self) -> str:
        """The name in the path, decoded once. Raises RequestError for one that is none."""
        return check_cassette_name(self.request.match_info["name"])

    @property
    def index(self) -> int:
        """The index in the path. Raises AdminError (400) for one that is none."""
        text = self.request.match_info["index"]
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INDEX))):
            raise AdminError(
                f"the index of an interaction is a number from 0 to {MAX_INDEX}", code="bad_index"
            )
        return int(text)


Plain = OperationCall[Nothing, Nothing]


@dataclass(frozen=True, slots=True)
class Media:
    """An answer that is no model: its type and what it is."""

    type: str
    description: str


@dataclass(frozen=True, slots=True)
class Octets:
    """A body that the handler reads itself: its types and what it is."""

    types: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the table. `public` needs no token; `errors` are those of the handler itself."""

    method: str
    path: str
    name: str
    summary: str
    query: type[BaseModel]
    body: type[BaseModel]
    answer: type[BaseModel] | Media
    errors: tuple[int, ...]
    public: bool
    serve: Serve
    octets: Octets | None = None

    @property
    def takes_body(self) -> bool:
        return self.method not in _SAFE


def route(
    method: str,
    path: str,
    handler: Callable[[HandlerContext, OperationCall[Query, Body]], Awaitable[Answer]],
    query: type[Query],
    body: type[Body],
    answer: type[BaseModel] | Media,
    *,
    errors: tuple[int, ...] = (),
    public: bool = False,
    octets: Octets | None = None,
) -> Operation:
    """A row whose handler takes just what the row says."""

    async def serve(console: HandlerContext, request: web.Request) -> web.StreamResponse:
        reads = method not in _SAFE and octets is None
        sent = await read_body(request, body) if reads else body()
        found = await handler(console, OperationCall(request, read_query(request, query), sent))
        if isinstance(found, web.StreamResponse):
            return found
        return _answered(found)

    summary = (handler.__doc__ or "").partition("\n")[0]
    return Operation(
        *(method, path, handler.__name__, summary, query, body, answer, errors, public, serve),
        octets,
    )


def _answered(found: BaseModel) -> web.Response:
    late = isinstance(found, InForce) and bool(found.laggards)
    body = found.model_dump_json(exclude=None if late else {"laggards"})
    return web.Response(
        status=202 if late else 200, body=body.encode(), content_type="application/json"
    )
