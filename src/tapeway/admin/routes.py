"""The whole API as one table; routing, 404, 405 and the OpenAPI document derive from it."""

from tapeway.admin.acceptance import accept
from tapeway.admin.cassettes import get_cassette, list_cassettes
from tapeway.admin.entrance import index, metrics, openapi
from tapeway.admin.events import events
from tapeway.admin.health import healthz, readyz
from tapeway.admin.interactions import get_interaction, list_interactions
from tapeway.admin.journal_entries import delete_journal, get_journal
from tapeway.admin.messages import list_messages
from tapeway.admin.mode import get_mode, put_mode
from tapeway.admin.payloads import (
    Acceptance,
    Accepted,
    CassettePage,
    CassetteQuery,
    Cleared,
    Ejection,
    ExportQuery,
    Health,
    Index,
    Inserted,
    Insertion,
    InteractionPage,
    InteractionQuery,
    JournalPage,
    JournalQuery,
    MessagePage,
    MessageQuery,
    ModeChange,
    ModeInForce,
    ModeQuery,
    Nothing,
    Readiness,
    Report,
    ReportQuery,
    Rewinding,
    Status,
    Takes,
)
from tapeway.admin.reports import report
from tapeway.admin.route import Media, Route, route
from tapeway.admin.status import status
from tapeway.admin.takes import eject, insert, rewind

_OPENAPI = Media("application/json", "This document")
_METRICS = Media("text/plain", "Prometheus' text format, version 0.0.4")
_EVENTS = Media("text/event-stream", "Events named `request`, each with a journal entry as data")
_CASSETTE = Media("application/json", "AgentTape's cassette schema, version 1")
_INTERACTION = Media("application/json", "An interaction of AgentTape's cassette schema")

_API = "/api/v1"
_NAMED = f"{_API}/cassettes/{{name}}"

TABLE: tuple[Route, ...] = (
    route("GET", "/", index, Nothing, Nothing, Index),
    route("GET", "/healthz", healthz, Nothing, Nothing, Health, public=True),
    route("GET", "/readyz", readyz, Nothing, Nothing, Readiness, errors=(503,), public=True),
    route("GET", "/metrics", metrics, Nothing, Nothing, _METRICS),
    route("GET", "/openapi.json", openapi, Nothing, Nothing, _OPENAPI),
    route("GET", f"{_API}/status", status, Nothing, Nothing, Status),
    route("GET", f"{_API}/mode", get_mode, ModeQuery, Nothing, ModeInForce),
    route("PUT", f"{_API}/mode", put_mode, Nothing, ModeChange, ModeInForce),
    route("POST", f"{_API}/insert", insert, Nothing, Insertion, Inserted, errors=(500, 503)),
    route("POST", f"{_API}/eject", eject, Nothing, Ejection, Report, errors=(409, 503, 507)),
    route("POST", f"{_API}/rewind", rewind, Nothing, Rewinding, Takes),
    route("GET", f"{_API}/cassettes", list_cassettes, CassetteQuery, Nothing, CassettePage),
    route("GET", _NAMED, get_cassette, ExportQuery, Nothing, _CASSETTE, errors=(404, 500)),
    route(
        "GET",
        f"{_NAMED}/interactions",
        list_interactions,
        InteractionQuery,
        Nothing,
        InteractionPage,
        errors=(404, 500),
    ),
    route(
        "GET",
        f"{_NAMED}/interactions/{{index}}",
        get_interaction,
        Nothing,
        Nothing,
        _INTERACTION,
        errors=(404, 500),
    ),
    route(
        "GET",
        f"{_NAMED}/messages",
        list_messages,
        MessageQuery,
        Nothing,
        MessagePage,
        errors=(404, 500),
    ),
    route("GET", f"{_API}/journal", get_journal, JournalQuery, Nothing, JournalPage),
    route("DELETE", f"{_API}/journal", delete_journal, Nothing, Nothing, Cleared),
    route(
        "POST",
        f"{_API}/journal/{{id}}/accept",
        accept,
        Nothing,
        Acceptance,
        Accepted,
        errors=(404, 409, 503, 507),
    ),
    route("GET", f"{_API}/report", report, ReportQuery, Nothing, Report),
    route("GET", f"{_API}/events", events, Nothing, Nothing, _EVENTS),
)
