"""docs/testing.md: its arguments and codings are those there are, its model names do what it says."""

import inspect
import re
from typing import get_args

from tapeway.testing import StandIn
from tapeway.testing.answer import End, fault_of
from tapeway.testing.content_codings import CODINGS
from tapeway.testing.request import StandInRequest
from tests.support.markdown import ROOT
from tests.testing.wires import chat, post

TEXT = (ROOT / "docs/testing.md").read_text("utf-8")
ARGUMENTS = TEXT.partition("| Argument | |\n")[2].partition("\n\n")[0]
MODELS = re.findall(r"^\| (`.+?) \|", TEXT.partition("| Model |")[2], re.MULTILINE)
ANSWERED = ("error-429", "unmarked", "stream-error", "reflect")
"""Those whose answers end as HTTP wants it; the others are `fault_of`'s."""


def test_its_arguments_are_those_of_the_stand_in() -> None:
    shown = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in ARGUMENTS.splitlines()))

    # `state` fixes ids and times in the tests of the stand-in itself.
    assert {*shown} == {*inspect.signature(StandIn).parameters} - {"state"}
    assert {coding for coding in CODINGS if f"`{coding}`" in ARGUMENTS} == {*CODINGS}


def test_it_names_every_fault() -> None:
    named = {name for row in MODELS for name in re.findall(r"`([\w-]+)`", row)}

    assert {*ANSWERED} < named
    for name in named - {*ANSWERED}:
        call = StandInRequest("POST", "/", json={"model": name})
        assert fault_of(call) is not None, name
    assert {*get_args(End)} < named


async def test_a_model_that_it_names_does_what_it_says() -> None:
    async with StandIn() as upstream:

        async def asked(model: str, **more: object) -> tuple[int, bytes]:
            body = chat("x", model=model, **more)
            wire = await post(upstream.url, "/v1/chat/completions", body)
            return wire.status, wire.body

        assert (await asked("gpt-4o", stream=True))[1].endswith(b"[DONE]\n\n")
        assert b"[DONE]" not in (await asked("unmarked", stream=True))[1]
        status, body = await asked("stream-error", stream=True)
        assert (status, b"server_error" in body) == (200, True)
        assert (await asked("error-429"))[0] == 429
        assert b"Your key" in (await asked("reflect"))[1]
