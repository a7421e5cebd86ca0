"""Endpoints that the tests need beside the stand-in's own: batches, images and moderations."""

from tapeway.testing import StandIn
from tapeway.testing.answer import StandInAnswer
from tapeway.testing.reply import StandInState
from tapeway.testing.request import StandInRequest
from tapeway.testing.routes import anthropic_route, openai_route, respond
from tests.support.stand_in_extras import (
    anthropic_batches,
    openai_batches,
    openai_images,
    openai_moderations,
)


def _retrieve_batch(call: StandInRequest, state: StandInState) -> StandInAnswer:
    # The stand-in's own routes answer the calls of a batch.
    return openai_batches.retrieve(call, state, respond)


def _retrieve_message_batch(call: StandInRequest, state: StandInState) -> StandInAnswer:
    return anthropic_batches.retrieve(call, state, respond)


_ROUTES = (
    anthropic_route("POST", "/v1/messages/batches", anthropic_batches.create),
    anthropic_route("GET", "/v1/messages/batches", anthropic_batches.list_batches),
    anthropic_route("GET", "/v1/messages/batches/(?P<id>[^/]+)", _retrieve_message_batch),
    anthropic_route("GET", "/v1/messages/batches/(?P<id>[^/]+)/results", anthropic_batches.results),
    anthropic_route("POST", "/v1/messages/batches/(?P<id>[^/]+)/cancel", anthropic_batches.cancel),
    openai_route("POST", "/images/generations", openai_images.generate),
    openai_route("POST", "/images/edits", openai_images.edit),
    openai_route("POST", "/moderations", openai_moderations.moderate),
    openai_route("POST", "/batches", openai_batches.create),
    openai_route("GET", "/batches", openai_batches.list_batches),
    openai_route("GET", "/batches/(?P<id>[^/]+)", _retrieve_batch),
    openai_route("POST", "/batches/(?P<id>[^/]+)/cancel", openai_batches.cancel),
)


class WiderStandIn(StandIn):
    """The stand-in with these endpoints too."""

    routes = (*_ROUTES, *StandIn.routes)
