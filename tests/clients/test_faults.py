"""What the SDKs' own retries do with faults laid over recordings, and what the report says of it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import anthropic
import boto3  # type: ignore[import-untyped]
import openai
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EventStreamError
from google import genai
from google.genai import errors

import tapeway
from tapeway.embedded.deck import Deck
from tapeway.testing import ThreadedStandIn

pytestmark = pytest.mark.slow

HELLO: Any = {"role": "user", "content": "hello"}
SAID: Any = [{"role": "user", "content": [{"text": "hello"}]}]
CASSETTES = ("openai", "anthropic", "gemini", "bedrock")


@pytest.fixture(scope="module")
def recorded() -> Iterator[Deck]:
    """A tapeway that replays a call and a stream of each SDK."""
    with ThreadedStandIn() as service, pytest.MonkeyPatch.context() as environment:
        # tapeway signs what is recorded.
        environment.setenv("AWS_ACCESS_KEY_ID", "AKIDNOBODYSKEY")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "nobody")
        routes = [f"{name}={service.url}" for name in CASSETTES]
        with tapeway.serve(route=routes, store="memory:", mode="record") as deck:
            ask_openai(deck)
            stream_openai(deck)
            ask_anthropic(deck)
            stream_anthropic(deck)
            ask_gemini(deck)
            stream_gemini(deck)
            ask_bedrock(deck)
            stream_bedrock(deck)
            deck.mode("replay")
            yield deck


@pytest.fixture
def deck(recorded: Deck) -> Deck:
    """The same in a new take without faults, whose report begins anew."""
    recorded.faults([])
    recorded.eject()
    return recorded


def openai_client(deck: Deck) -> openai.OpenAI:
    return openai.OpenAI(base_url=deck.url("openai"), api_key="none")


def ask_openai(deck: Deck) -> Any:
    with openai_client(deck) as client:
        return client.chat.completions.create(model="m", messages=[HELLO])


def stream_openai(deck: Deck, *more: Any) -> list[Any]:
    messages = [HELLO, *more]
    with (
        openai_client(deck) as client,
        client.chat.completions.create(model="m", messages=messages, stream=True) as stream,
    ):
        return list(stream)


def anthropic_client(deck: Deck) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=deck.url("anthropic"), api_key="none")


def ask_anthropic(deck: Deck) -> Any:
    with anthropic_client(deck) as client:
        return client.messages.create(model="m", max_tokens=9, messages=[HELLO])


def stream_anthropic(deck: Deck) -> list[Any]:
    with (
        anthropic_client(deck) as client,
        client.messages.create(model="m", max_tokens=9, messages=[HELLO], stream=True) as stream,
    ):
        return list(stream)


def gemini_client(deck: Deck) -> genai.Client:
    options = genai.types.HttpOptions(base_url=deck.url("gemini"))
    return genai.Client(api_key="none", http_options=options)


def ask_gemini(deck: Deck) -> Any:
    with gemini_client(deck) as client:
        return client.models.generate_content(model="gemini-2.5-flash", contents="hello")


def stream_gemini(deck: Deck) -> list[Any]:
    with gemini_client(deck) as client:
        stream = client.models.generate_content_stream
        return list(stream(model="gemini-2.5-flash", contents="hello"))


def bedrock_client(deck: Deck, attempts: int) -> Any:
    made = boto3.client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=deck.url("bedrock"),
        aws_access_key_id="AKIDNOBODYSKEY",
        aws_secret_access_key="nobody",
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
    )
    return closing(made)


def ask_bedrock(deck: Deck, attempts: int = 2) -> Any:
    with bedrock_client(deck, attempts) as client:
        return client.converse(modelId="m", messages=SAID)


def stream_bedrock(deck: Deck) -> list[Any]:
    with (
        bedrock_client(deck, 2) as client,
        closing(client.converse_stream(modelId="m", messages=SAID)["stream"]) as stream,
    ):
        return list(stream)


def lay(deck: Deck, **fault: object) -> None:
    deck.faults([{"name": "f", **fault}])


def faulted(deck: Deck) -> list[tuple[str, str]]:
    """What was done, and what the client did next."""
    (report,) = deck.report()["cassettes"]
    return [(each["do"], each["next"]) for each in report["faulted"]]


@pytest.mark.parametrize("ask", [ask_openai, ask_anthropic, ask_bedrock])
@pytest.mark.parametrize("do", ["429", "500", "503"])
def test_a_client_asks_again_after_an_error(deck: Deck, ask: Any, do: str) -> None:
    lay(deck, do=do, retry_after=0.05)

    ask(deck)

    (report,) = deck.report()["cassettes"]
    [each] = report["faulted"]
    assert (each["do"], each["next"]) == (do, "retried")
    # boto3 draws the time of its wait, whatever the service asks for.
    assert each["kept_retry_after"] or ask is ask_bedrock
    assert report["misses"] == []


@pytest.mark.parametrize("ask", [ask_openai, ask_anthropic])
def test_a_client_asks_again_after_a_reset_and_after_overload(deck: Deck, ask: Any) -> None:
    deck.faults([{"name": "a", "do": "reset"}, {"name": "b", "do": "529", "retry_after": 0.01}])

    ask(deck)

    assert faulted(deck) == [("reset", "retried"), ("529", "retried")]


def test_a_client_gives_up_after_its_last_try(deck: Deck) -> None:
    lay(deck, do="429", retry_after=0.01, times=3)

    with pytest.raises(openai.RateLimitError):
        ask_openai(deck)

    assert faulted(deck) == [("429", "retried"), ("429", "retried"), ("429", "gave_up")]


def test_a_client_without_retries_gives_up(deck: Deck) -> None:
    lay(deck, do="503")
    with pytest.raises(errors.ServerError) as gemini:
        ask_gemini(deck)
    lay(deck, do="429")
    with pytest.raises(ClientError) as bedrock:
        ask_bedrock(deck, attempts=1)

    assert (gemini.value.code, gemini.value.status) == (503, "UNAVAILABLE")
    assert bedrock.value.response["Error"]["Code"] == "ThrottlingException"
    assert faulted(deck) == [("503", "gave_up"), ("429", "gave_up")]


@pytest.mark.parametrize(
    ("stream", "error"),
    [
        (stream_openai, openai.APIError),
        (stream_anthropic, anthropic.APIStatusError),
        (stream_gemini, errors.ServerError),
        (stream_bedrock, EventStreamError),
    ],
)
def test_a_client_raises_the_error_that_a_stream_reports(
    deck: Deck, stream: Any, error: type[Exception]
) -> None:
    lay(deck, do="error_event", after="1 event")

    with pytest.raises(error):
        stream(deck)

    assert faulted(deck) == [("error_event", "gave_up")]
    assert stream(deck)


@pytest.mark.parametrize("stream", [stream_openai, stream_anthropic, stream_gemini, stream_bedrock])
def test_a_client_raises_where_a_stream_is_reset(deck: Deck, stream: Any) -> None:
    whole = len(stream(deck))
    lay(deck, do="reset", after="2 events")

    with pytest.raises(Exception, match=r"(?i)connection|read|protocol|terminated|broken"):
        stream(deck)

    assert len(stream(deck)) == whole


@pytest.mark.parametrize("stream", [stream_openai, stream_anthropic, stream_gemini])
def test_a_client_raises_where_the_json_of_an_event_is_broken(deck: Deck, stream: Any) -> None:
    lay(deck, do="corrupt", after="1 event")

    with pytest.raises(Exception, match=r"(?i)json|unterminated|expecting|decode|parse"):
        stream(deck)

    assert faulted(deck) == [("corrupt", "gave_up")]


def test_a_client_takes_a_stream_that_ends_early_for_whole(deck: Deck) -> None:
    whole = stream_openai(deck)
    lay(deck, do="end", after="2 events")

    cut = stream_openai(deck)
    text = "".join(choice.delta.content or "" for chunk in cut for choice in chunk.choices)
    with pytest.raises(openai.BadRequestError):
        # What was cut is no part of any recording: the agent goes astray, and misses.
        stream_openai(deck, {"role": "assistant", "content": text}, HELLO)

    assert len(cut) == 2 < len(whole)
    assert faulted(deck) == [("end", "took_for_whole")]
