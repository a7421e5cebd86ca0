"""The real client packages take the stand-in for the service they were made for."""

from collections.abc import Iterator

import pytest

from tapeway.testing import ThreadedStandIn
from tests.clients.programs import (
    anthropic_agents,
    anthropic_sdk,
    bedrock_sdk,
    gemini_agents,
    gemini_sdk,
    ollama_sdk,
    openai_agents,
    openai_media,
    openai_sdk,
)
from tests.clients.programs.target import Run, Target
from tests.support.stand_in_extras import WiderStandIn

# google-genai subclasses aiohttp's session, which warns at the first asynchronous call.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")

PACKAGES = (
    openai_sdk,
    openai_media,
    anthropic_sdk,
    gemini_sdk,
    bedrock_sdk,
    ollama_sdk,
    openai_agents,
    anthropic_agents,
    gemini_agents,
)
RUNS = {
    f"{package.__name__.rpartition('.')[2]}-{name}": run
    for package in PACKAGES
    for name, run in package.RUNS.items()
}


@pytest.fixture(scope="module")
def upstream(one_certificate: None) -> Iterator[ThreadedStandIn]:
    with ThreadedStandIn(WiderStandIn(require_credential=True)) as stand_in:
        yield stand_in


@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS.keys())
async def test_the_client_understands_the_answers(upstream: ThreadedStandIn, run: Run) -> None:
    assert await run(Target(upstream.url))
