"""Each recipe of docs/architecture.md, followed once from outside: a dummy of each kind is added."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from aiohttp.test_utils import TestClient, TestServer

from tapeway.admin.app import make_application
from tapeway.admin.context import HandlerContext
from tapeway.admin.models.schema import ResponseModel
from tapeway.admin.operation import PlainCall, route
from tapeway.admin.routes import TABLE
from tapeway.cli.command_classes import LazyCommand
from tapeway.cli.main import tapeway
from tapeway.core.http.routing import BaseUrlFault, RouteTable, resolve
from tapeway.core.json_text import Json
from tapeway.core.model.cassette import CassetteHead, Recording, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response, ResponseHead
from tapeway.core.model.request_fields import RequestFields
from tapeway.core.streams.documents import placed_documents
from tapeway.core.streams.events import Event, LineEvents
from tapeway.core.streams.framings import FRAMINGS, Framing
from tapeway.engine.broker import Broker
from tapeway.engine.journal import RequestJournal
from tapeway.engine.recording.selection import Policy
from tapeway.formats import registry
from tapeway.formats.conversion_loss import Loss
from tapeway.formats.native.text_lines import spread
from tapeway.inspection.asking import credential
from tapeway.providers.base_urls import base_url_fault
from tapeway.providers.catalogue import PROVIDERS, Prefix, Provider
from tapeway.providers.paths import owner
from tapeway.providers.stream_end import end_detector
from tapeway.settings.options import Settings, resolve_routes
from tapeway.stores import opening
from tapeway.stores.memory import MemoryStore
from tests.cli.invocation import run, run_tapeway
from tests.support.fakes.live_service import FakeResponder

ITEM = Interaction(0, Request("", "GET", "/x", base="https://up"), Response(ResponseHead(200)))
HEAD = CassetteHead("2026-01-01T00:00:00+00:00", "run")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_a_store_is_a_class_and_a_row_of_openers(monkeypatch: pytest.MonkeyPatch) -> None:
    class DummyStore(MemoryStore):
        url = "dummy:"

    monkeypatch.setitem(opening.OPENERS, "dummy", lambda address: DummyStore())

    store = opening.open_store("dummy:anything")
    await store.open()
    await store.append("c", HEAD, Recording(ITEM))
    assert (store.url, await store.names()) == ("dummy:", ["c"])
    await store.close()


def test_a_format_is_a_module_and_a_row_of_the_registry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def recognises(value: Json) -> bool:
        return isinstance(value, dict) and "dummy" in value

    def read(value: Json, fresh: CassetteHead) -> tuple[StoredCassette, list[Loss]]:
        return StoredCassette(fresh, (ITEM,)), []

    # A command that is imported from now on would keep the row.
    import tapeway.cli.cassette.convert  # noqa: F401

    dummy = registry.Format("dummy", (".dummy",), recognises, registry.loader(read), None)
    monkeypatch.setattr(registry, "FORMATS", (*registry.FORMATS, dummy))
    Path("calls.dummy").write_text('{"dummy": 1}')

    assert run(capsys, "convert", "calls.dummy", "imported")[0] == 0
    assert run(capsys, "show", "imported")[1].count("GET https://up/x") == 1


def test_a_framing_is_a_reader_and_a_row_of_framings(monkeypatch: pytest.MonkeyPatch) -> None:
    class WordEvents(LineEvents):
        def feed(self, data: bytes) -> Sequence[Event]:
            return super().feed(data.replace(b" ", b"\n"))

    framing = Framing(WordEvents, re.compile(r"[^ ]+ ?"))
    monkeypatch.setitem(cast("dict[bytes, Framing]", FRAMINGS), b"text/words", framing)
    head = ResponseHead(200, headers=((b"content-type", b"text/words"),), framing="chunked")
    said = Response(head, b"a bc d")

    assert [*placed_documents(said)] == [(2, b"a"), (5, b"bc"), (6, b"d")]
    stored: Json = {"headers": {"Content-Type": "text/words"}, "text": "a bc d"}
    spread_out = spread({"response": stored})["response"]
    assert isinstance(spread_out, dict)
    assert spread_out["text_lines"] == ["a ", "bc ", "d"]
    assert end_detector(None, head).finish() == "complete"


def test_a_provider_is_a_row_of_the_catalogue(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dummy = Provider(
        "dummy",
        "https://dummy.example",
        variables=(("DUMMY_BASE_URL", "/v9"),),
        keys=(("DUMMY_KEY",),),
        prefixes=(Prefix("/v9", frozenset({"chat"})),),
        key_header=b"x-dummy",
    )
    monkeypatch.setitem(cast("dict[str, Provider]", PROVIDERS), "dummy", dummy)

    out = run_tapeway(capsys, "env", "--provider", "dummy", "--listen", "127.0.0.1:8080")

    assert out == (0, "export DUMMY_BASE_URL=http://127.0.0.1:8080/dummy/v9\n", "")
    table = resolve_routes(Settings(), {})
    assert table.routes["dummy"].url == "https://dummy.example"
    assert base_url_fault(resolve(table, owner, "/dummy/chat", RequestFields(()))) == BaseUrlFault(
        "missing", "/v9"
    )
    asked = Request("dummy", "POST", "/v9/chat")
    assert credential(asked, {"DUMMY_KEY": "k"}, table) == ("DUMMY_KEY", (b"x-dummy", b"k"))


async def test_an_admin_route_is_a_handler_and_a_row_of_the_table() -> None:
    class Greeting(ResponseModel):
        message: str

    async def greet(context: HandlerContext, call: PlainCall) -> Greeting:
        """Greet the caller."""
        return Greeting(message=f"in mode {context.broker.mode}")

    operations = (*TABLE, route("GET", "/api/v1/greeting", greet))
    broker = Broker(
        MemoryStore(),
        FakeResponder(),
        mode="replay",
        cassette="default",
        routes=RouteTable({}),
        policy=Policy(),
        new_head=lambda: HEAD,
    )
    async with broker:
        application = make_application(
            broker,
            RequestJournal(1),
            token=None,
            listener=("127.0.0.1", 8081),
            version="1",
            operations=operations,
        )
        async with TestClient(TestServer(application)) as client:
            answer = await client.get("/api/v1/greeting")
            described = await (await client.get("/openapi.json")).json()

            assert await answer.json() == {"message": "in mode replay"}
            assert described["paths"]["/api/v1/greeting"]["get"]["summary"] == "Greet the caller."


def test_a_command_is_a_module_and_a_row_of_its_group(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = {
        **tapeway.modules,
        "dummy": LazyCommand("Say that it was added.", "tests.docs.dummy_command"),
    }
    monkeypatch.setattr(tapeway, "modules", modules)

    assert run_tapeway(capsys, "dummy") == (0, "added from outside\n", "")
    assert "Say that it was added." in run_tapeway(capsys, "--help")[1]
