"""The route table of the admin API. Routing, 404, 405 and the OpenAPI document derive from it."""

from functools import partial

from tapeway.admin.handlers.bodies import BODY_TYPES, get_body, put_body
from tapeway.admin.handlers.cassettes import list_cassettes
from tapeway.admin.handlers.control import (
    eject,
    get_eject,
    get_faults,
    get_mode,
    insert,
    put_faults,
    put_mode,
    report,
    rewind,
)
from tapeway.admin.handlers.copies import COPY_TYPES, get_copy, put_copy
from tapeway.admin.handlers.import_export import (
    IMPORT_FORMATS,
    delete_cassette,
    get_cassette,
    put_cassette,
)
from tapeway.admin.handlers.inspection.comparison import comparison_events, get_comparison
from tapeway.admin.handlers.inspection.entry import get_call, get_entry
from tapeway.admin.handlers.inspection.exchange import get_view, list_titles
from tapeway.admin.handlers.inspection.live import (
    ask_live,
    get_live,
    get_record,
    record_missed,
)
from tapeway.admin.handlers.inspection.recordings import list_recordings, recording_events
from tapeway.admin.handlers.inspection.rules import delete_rule, get_rules
from tapeway.admin.handlers.inspection.turns import list_messages, list_turns
from tapeway.admin.handlers.interactions import (
    append_interactions,
    delete_interaction,
    get_interaction,
    list_interactions,
    put_interaction,
    release,
)
from tapeway.admin.handlers.journal import accept, delete_journal, events, get_journal
from tapeway.admin.handlers.run_report import notes_of_run, report_of_run
from tapeway.admin.handlers.slots import check, delete_slot, get_slot, list_slot_requests, put_slot
from tapeway.admin.handlers.status import clients, healthz, index, metrics, openapi, readyz, status
from tapeway.admin.models.cassettes import Imported
from tapeway.admin.models.control import Index, Report
from tapeway.admin.models.inspection import WholeEntry
from tapeway.admin.models.interactions import Additions, InteractionPage, MessagePage
from tapeway.admin.models.run_report import EndedRun, RunReport
from tapeway.admin.operation import Media, Operation, RawBody, route
from tapeway.admin.request_body import JSON_TYPES

_OPENAPI = Media("application/json", "This document")
_METRICS = Media("text/plain", "Prometheus text format, version 0.0.4")
_EVENTS = Media("text/event-stream", "Events named `request`; the data of each is a journal entry")
_CASSETTE = Media("application/json", "AgentTape's cassette schema, version 1")
_INTERACTION = Media("application/json", "An interaction of AgentTape's cassette schema")
_COPY = Media(
    "application/jsonl", "The cassette line by line; the last line has a digest of the whole"
)
_FOR_PAGE = Media("application/json", "What the web page shows")
_EVENTS_FOR_PAGE = Media("text/event-stream", "Events for the web page")
_BODY = Media("application/octet-stream", "The bytes of the body")

_RUN_REPORT = Media("text/plain", "The report for people; or else for a build server or a browser")

_SENT_CASSETTE = RawBody(tuple(IMPORT_FORMATS), "A cassette in a supported format")
_SENT_INTERACTION = RawBody(tuple(JSON_TYPES), "An interaction of AgentTape's cassette schema")
_SENT_ADDITIONS = RawBody(tuple(JSON_TYPES), "Interactions, and those they replace", Additions)
_SENT_REPORTS = RawBody(tuple(JSON_TYPES), "Reports of ejected cassettes", RunReport)
_SENT_RUN = RawBody(tuple(JSON_TYPES), "The same, and what the runner knows of the run", EndedRun)
_SENT_COPY = RawBody(tuple(COPY_TYPES), "What GET of the same path returns")
_SENT_BODY = RawBody(tuple(BODY_TYPES), "The bytes of the body")
_CHANGE_ERRORS = (404, 409, 412, 422, 500, 503, 507)

_API = "/api/v1"
_SLOT = f"{_API}/slots/{{slot}}"
_NAMED = f"{_API}/cassettes/{{name}}"

_page = partial(route, for_page=True)

TABLE: tuple[Operation, ...] = (
    route("GET", "/", index, Index, other_types=("text/html",)),
    route("GET", "/healthz", healthz, public=True),
    route("GET", "/readyz", readyz, errors=(503,), public=True),
    route("GET", "/metrics", metrics, _METRICS),
    route("GET", "/openapi.json", openapi, _OPENAPI),
    route("GET", f"{_API}/status", status),
    route("GET", f"{_API}/clients", clients),
    # What only the web page calls, up to `comparison/events`.
    _page("GET", f"{_API}/eject", get_eject, errors=(503,)),
    _page("GET", f"{_API}/journal/{{id}}/call", get_call, _FOR_PAGE, errors=(404, 500)),
    _page("GET", f"{_API}/journal/{{id}}/record", get_record, errors=(404, 409)),
    _page(
        "POST",
        f"{_API}/journal/{{id}}/record",
        record_missed,
        errors=(404, 409, 500, 502, 503, 504, 507),
    ),
    _page("GET", f"{_API}/recordings", list_recordings, errors=(409,)),
    _page(
        "GET",
        f"{_API}/recordings/{{number}}/events",
        recording_events,
        _EVENTS_FOR_PAGE,
        errors=(404, 409),
    ),
    _page("GET", f"{_NAMED}/titles", list_titles, _FOR_PAGE, errors=(404, 500)),
    _page("GET", f"{_NAMED}/interactions/{{index}}/view", get_view, _FOR_PAGE, errors=(404, 500)),
    _page("GET", f"{_NAMED}/interactions/{{index}}/live", get_live, errors=(404, 409, 500)),
    _page(
        "POST",
        f"{_NAMED}/interactions/{{index}}/live",
        ask_live,
        _FOR_PAGE,
        errors=(404, 409, 500, 502, 503, 504),
    ),
    _page("GET", f"{_NAMED}/rules", get_rules, errors=(404, 409, 500)),
    _page("DELETE", f"{_NAMED}/rules", delete_rule, errors=_CHANGE_ERRORS),
    _page("GET", f"{_NAMED}/turns", list_turns, _FOR_PAGE, errors=(404, 500)),
    _page("GET", f"{_NAMED}/comparison", get_comparison, _FOR_PAGE, errors=(404, 409, 413, 500)),
    _page(
        "GET",
        f"{_NAMED}/comparison/events",
        comparison_events,
        _EVENTS_FOR_PAGE,
        errors=(404, 409, 413, 500),
    ),
    route("GET", f"{_API}/mode", get_mode),
    route("PUT", f"{_API}/mode", put_mode),
    route("POST", f"{_API}/insert", insert, errors=(500, 503)),
    route("POST", f"{_API}/eject", eject, errors=(409, 503, 507)),
    route("POST", f"{_API}/rewind", rewind),
    route("GET", f"{_API}/faults", get_faults),
    route("PUT", f"{_API}/faults", put_faults),
    route("POST", f"{_API}/check", check),
    route("GET", _SLOT, get_slot, errors=(404,)),
    route("PUT", _SLOT, put_slot, errors=_CHANGE_ERRORS),
    route("GET", f"{_SLOT}/requests", list_slot_requests, errors=(404, 409)),
    route("DELETE", _SLOT, delete_slot, errors=(404,)),
    route("GET", f"{_API}/cassettes", list_cassettes),
    route(
        "GET",
        _NAMED,
        get_cassette,
        _CASSETTE,
        errors=(404, 422, 500),
        other_types=("application/yaml", "application/jsonl"),
    ),
    route("PUT", _NAMED, put_cassette, Imported, errors=_CHANGE_ERRORS, raw_body=_SENT_CASSETTE),
    route("DELETE", _NAMED, delete_cassette, errors=_CHANGE_ERRORS),
    route("POST", f"{_NAMED}/release", release, errors=_CHANGE_ERRORS),
    route("GET", f"{_NAMED}/copy", get_copy, _COPY, errors=(404, 409, 500)),
    route("PUT", f"{_NAMED}/copy", put_copy, Imported, errors=_CHANGE_ERRORS, raw_body=_SENT_COPY),
    route("GET", f"{_NAMED}/bodies/{{sha256}}", get_body, _BODY, errors=(404,)),
    route(
        "PUT", f"{_NAMED}/bodies/{{sha256}}", put_body, errors=(422, 503, 507), raw_body=_SENT_BODY
    ),
    route("GET", f"{_NAMED}/interactions", list_interactions, InteractionPage, errors=(404, 500)),
    route(
        "POST",
        f"{_NAMED}/interactions",
        append_interactions,
        errors=_CHANGE_ERRORS,
        raw_body=_SENT_ADDITIONS,
    ),
    route(
        "GET", f"{_NAMED}/interactions/{{index}}", get_interaction, _INTERACTION, errors=(404, 500)
    ),
    route(
        "PUT",
        f"{_NAMED}/interactions/{{index}}",
        put_interaction,
        errors=_CHANGE_ERRORS,
        raw_body=_SENT_INTERACTION,
    ),
    route("DELETE", f"{_NAMED}/interactions/{{index}}", delete_interaction, errors=_CHANGE_ERRORS),
    route("GET", f"{_NAMED}/messages", list_messages, MessagePage, errors=(404, 500)),
    route("GET", f"{_API}/journal", get_journal),
    route("GET", f"{_API}/journal/{{id}}", get_entry, WholeEntry, errors=(404,)),
    route("DELETE", f"{_API}/journal", delete_journal),
    route("POST", f"{_API}/journal/{{id}}/accept", accept, errors=(404, 409, 503, 507)),
    route("GET", f"{_API}/report", report, Report, other_types=("application/xml", "text/plain")),
    route(
        "POST",
        f"{_API}/report",
        report_of_run,
        _RUN_REPORT,
        raw_body=_SENT_REPORTS,
        other_types=("application/xml", "text/html", "text/markdown"),
    ),
    route("POST", f"{_API}/report/notes", notes_of_run, raw_body=_SENT_RUN),
    route("GET", f"{_API}/events", events, _EVENTS),
)
