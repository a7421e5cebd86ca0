"""An operation of the API: a method on a path, the handler, and the types of the two bodies."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar, get_args, get_type_hints

from aiohttp import web
from pydantic import BaseModel

from tapeway.admin.context import HandlerContext
from tapeway.admin.models.schema import MAX_INDEX, Nothing
from tapeway.admin.request_body import read_body, read_query
from tapeway.admin.responses import json_response
from tapeway.core.http.routing import check_cassette_name, check_slot_name
from tapeway.errors import AdminError, StoreError

Query = TypeVar("Query", bound=BaseModel)
Body = TypeVar("Body", bound=BaseModel)

Serve = Callable[[HandlerContext, web.Request], Awaitable[web.StreamResponse]]

_SAFE_METHODS = frozenset({"GET", "HEAD"})


@dataclass(frozen=True, slots=True)
class OperationCall(Generic[Query, Body]):
    """A call that passed the guard, with its query and body parsed."""

    request: web.Request
    query: Query
    body: Body

    @property
    def cassette(self) -> str:
        """The cassette name in the path, decoded once. Raises RequestError if it is invalid."""
        return check_cassette_name(self.request.match_info["name"])

    @property
    def slot(self) -> str:
        """The slot's name in the path. Raises RequestError if it is invalid."""
        return check_slot_name(self.request.match_info["slot"])

    @property
    def index(self) -> int:
        """The index in the path. Raises AdminError (400) if it is invalid."""
        text = self.request.match_info["index"]
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(MAX_INDEX))):
            raise AdminError(
                f"the index of an interaction is a number from 0 to {MAX_INDEX}", code="bad_index"
            )
        return int(text)


PlainCall = OperationCall[Nothing, Nothing]


@dataclass(frozen=True, slots=True)
class Media:
    """A response that is not a model: its media type and a description."""

    type: str
    description: str


@dataclass(frozen=True, slots=True)
class RawBody:
    """A body that the handler reads itself: its media types and a description.

    `json` is the model of what is JSON; without one it is any object. All else is text.
    """

    types: tuple[str, ...]
    description: str
    json: type[BaseModel] | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """A row of the route table.

    A `public` operation needs no token. `errors` are the statuses of the handler itself, besides
    those that every operation has.
    """

    method: str
    path: str
    name: str
    summary: str
    query: type[BaseModel]
    body: type[BaseModel]
    response: type[BaseModel] | Media
    errors: tuple[int, ...]
    public: bool
    serve: Serve
    raw_body: RawBody | None = None
    other_types: tuple[str, ...] = ()
    """Media types of the response besides that of `response`: the query chooses."""
    for_page: bool = False
    """Whether only the web page calls it: the OpenAPI document that is served leaves it out."""

    @property
    def takes_body(self) -> bool:
        return self.method not in _SAFE_METHODS


def route(
    method: str,
    path: str,
    handler: Callable[
        [HandlerContext, OperationCall[Query, Body]], Awaitable[BaseModel | web.StreamResponse]
    ],
    response: type[BaseModel] | Media | None = None,
    *,
    errors: tuple[int, ...] = (),
    public: bool = False,
    raw_body: RawBody | None = None,
    other_types: tuple[str, ...] = (),
    for_page: bool = False,
) -> Operation:
    """A row of the table; query, body and response have the types of the handler's annotations.

    `response` is for a handler that writes its response itself.
    """
    hints = get_type_hints(handler)
    query, body = get_args(hints["call"])

    async def serve(context: HandlerContext, request: web.Request) -> web.StreamResponse:
        if not public:
            # Where nobody can know, the handler shows what this instance knows.
            with suppress(StoreError):
                await context.broker.confirm()
        reads = method not in _SAFE_METHODS and raw_body is None
        sent = await read_body(request, body) if reads else body()
        answer = await handler(context, OperationCall(request, read_query(request, query), sent))
        return _response(answer)

    return Operation(
        method=method,
        path=path,
        name=handler.__name__,
        summary=(handler.__doc__ or "").partition("\n")[0],
        query=query,
        body=body,
        response=hints["return"] if response is None else response,
        errors=errors,
        public=public,
        serve=serve,
        raw_body=raw_body,
        other_types=other_types,
        for_page=for_page,
    )


def _response(answer: BaseModel | web.StreamResponse) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    return json_response(answer)
