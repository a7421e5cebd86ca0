"""Anthropic's message batches: their requests, answered while the batch is asked about."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import orjson

from tapeway.testing.answer import StandInAnswer, compact, with_length
from tapeway.testing.anthropic import envelope
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest, at, objects_at, text_at

Respond = Callable[[StandInRequest, StandInState], StandInAnswer]
_PATH = "/v1/messages/batches"
_OUTCOMES = ("succeeded", "errored", "canceled", "expired")
_POLLED = "/polled"
_REQUESTS = "/requests"


def create(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/messages/batches."""
    requests = list(objects_at(call.json, "requests"))
    names = [text_at(request, "custom_id") for request in requests]
    if not requests:
        message = "requests: List should have at least 1 item after validation, not 0"
        return envelope.failure(400, call, state, message)
    if len({*names}) < len(names):
        return envelope.failure(400, call, state, "requests: custom_id must be unique")
    now = state.now()
    batch: JsonObject = {
        "id": state.new_id("msgbatch_01", 22),
        "type": "message_batch",
        "processing_status": "in_progress",
        "request_counts": {"processing": len(requests), **dict.fromkeys(_OUTCOMES, 0)},
        "ended_at": None,
        "created_at": _time(now),
        "expires_at": _time(now + timedelta(days=1)),
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": None,
    }
    state.documents[text_at(batch, "id") + _REQUESTS] = {"requests": [*requests]}
    return _stored_batch(batch, state)


def retrieve(call: StandInRequest, state: StandInState, respond: Respond) -> StandInAnswer:
    """GET /v1/messages/batches/{id}: in progress at the first time, ended at the next."""
    batch = state.documents.get(call.params["id"])
    if batch is None:
        return _no_batch(call, state)
    polled = call.params["id"] + _POLLED
    match batch["processing_status"]:
        case "in_progress" if polled in state.documents:
            batch |= _ended(call, state, respond)
        case "canceling":
            batch |= _ended(call, state, None)
    state.documents[polled] = {}
    return _stored_batch(batch, state)


def cancel(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/messages/batches/{id}/cancel: no request of it is answered."""
    batch = state.documents.get(call.params["id"])
    if batch is None:
        return _no_batch(call, state)
    if batch["processing_status"] == "ended":
        message = f"Batch {call.params['id']} cannot be canceled because it has already ended."
        return envelope.failure(400, call, state, message)
    started = {"processing_status": "canceling", "cancel_initiated_at": _time(state.now())}
    return _stored_batch(batch | started, state)


def list_batches(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/messages/batches, the last one first."""
    batches = [
        document for document in state.documents.values() if at(document, "type") == "message_batch"
    ]
    batches.reverse()
    first, last = (batches[0]["id"], batches[-1]["id"]) if batches else (None, None)
    page: JsonObject = {"data": [*batches], "has_more": False, "first_id": first, "last_id": last}
    return envelope.answer(page, state)


def results(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/messages/batches/{id}/results: a line for each request."""
    batch = state.documents.get(call.params["id"])
    if batch is None or batch["results_url"] is None:
        return _no_batch(call, state)
    fields = envelope.headers(state, "application/x-jsonl")
    return with_length(200, fields, state.files[call.params["id"]])


def _ended(call: StandInRequest, state: StandInState, respond: Respond | None) -> JsonObject:
    """The fields of a batch that has ended, its requests answered or else canceled."""
    asked = objects_at(state.documents[call.params["id"] + _REQUESTS], "requests")
    counts = dict.fromkeys(("processing", *_OUTCOMES), 0)
    lines = []
    for request in asked:
        result = _result(request, call, state, respond) if respond else {"type": "canceled"}
        counts[text_at(result, "type")] += 1
        lines.append(compact({"custom_id": at(request, "custom_id"), "result": result}) + b"\n")
    state.files[call.params["id"]] = b"".join(lines)
    return {
        "processing_status": "ended",
        "request_counts": counts,
        "ended_at": _time(state.now()),
        # Whole, as the service gives it: a client that follows it leaves a proxy.
        "results_url": f"http://{call.headers.get('host', '')}{_PATH}/{call.params['id']}/results",
    }


def _result(
    asked: JsonObject, call: StandInRequest, state: StandInState, respond: Respond
) -> JsonObject:
    params = at(asked, "params")
    body = {name: member for name, member in _members(params) if name != "stream"}
    answer = respond(
        StandInRequest(
            method="POST",
            path="/v1/messages",
            headers=call.headers,
            body=orjson.dumps(body),
            json=body,
        ),
        state,
    )
    value = orjson.loads(answer.body)
    if answer.status >= 400:
        return {"type": "errored", "error": value}
    return {"type": "succeeded", "message": value}


def _members(value: object) -> Iterator[tuple[str, object]]:
    yield from value.items() if isinstance(value, dict) else ()


def _time(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def _no_batch(call: StandInRequest, state: StandInState) -> StandInAnswer:
    return envelope.failure(404, call, state, f"No message batch {call.params['id']} found.")


def _stored_batch(batch: JsonObject, state: StandInState) -> StandInAnswer:
    state.documents[text_at(batch, "id")] = batch
    return envelope.answer(batch, state)
