"""The whole API, called with what its OpenAPI document allows and with what it does not."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.openapi.checks import RejectedPositiveData

from bench.heartbeat import Server
from tapeway.admin.openapi import document
from tapeway.admin.operation import Operation
from tapeway.admin.routes import TABLE
from tests.support.thoroughness import examples, step

EXAMPLES = 2
DOCUMENT = document(TABLE, "1.2.3", locked=False)


@cache
def schema() -> Any:
    """Read when it is first used: this takes longer than many a test."""
    return schemathesis.openapi.from_dict(DOCUMENT)


def sends_something(operation: Operation) -> bool:
    """Whether there is anything that may be wrong."""
    paths: Any = DOCUMENT["paths"]
    return not {"parameters", "requestBody"}.isdisjoint(
        paths[operation.path][operation.method.lower()]
    )


schemathesis.serializer("application/jsonl", "application/x-ndjson")(
    lambda _, value: str(value).encode()
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    found = Server(str(tmp_path_factory.mktemp("cassettes")), "http://127.0.0.1:9")
    yield found
    found.stop()


@pytest.mark.parametrize("name", [operation.name for operation in TABLE][:: step(2)])
def test_a_call_that_the_document_allows_is_answered_as_it_says(name: str, server: Server) -> None:
    run(name, GenerationMode.POSITIVE, server)


@pytest.mark.parametrize(
    "name", [operation.name for operation in TABLE if sends_something(operation)][:: step(2)]
)
def test_a_call_that_the_document_does_not_allow_is_refused(name: str, server: Server) -> None:
    run(name, GenerationMode.NEGATIVE, server)


def run(name: str, mode: GenerationMode, server: Server) -> None:
    operation = schema().find_operation_by_id(name)

    @settings(max_examples=examples(EXAMPLES), phases=(Phase.generate,))
    @given(case=operation.as_strategy(generation_mode=mode))
    def call(case: schemathesis.Case[Any]) -> None:
        response = answered(case, server.admin)
        try:
            case.validate_response(response)
        except* RejectedPositiveData:
            # No schema says what a cassette is: its content may be invalid, or have another digest.
            # And no schema says what a rule or a difference is.
            assert name.startswith(
                ("put_", "append_", "check", "report_", "notes_", "delete_rule")
            ), response.text
            assert response.status_code in (400, 412, 422), response.text

    call()


def answered(case: schemathesis.Case[Any], base: str) -> schemathesis.Response:
    """The response; of events, which do not end, what comes first."""
    asked = case.as_transport_kwargs(base_url=base)
    with requests.request(**asked, stream=True, timeout=60) as response:
        if response.headers.get("Content-Type", "").startswith("text/event-stream"):
            response._content = response.raw.read1()
        return schemathesis.Response.from_requests(response, verify=True)
