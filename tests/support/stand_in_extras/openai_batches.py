"""OpenAI's batches: the calls in an uploaded file, answered while the batch is asked about."""

from collections.abc import Callable, Iterator
from itertools import groupby

import orjson

from tapeway.testing.answer import StandInAnswer
from tapeway.testing.openai import envelope
from tapeway.testing.openai.resources import store_file
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest, at, text_at

Respond = Callable[[StandInRequest, StandInState], StandInAnswer]
_DAY_S = 86400
_TIMES = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")


def create(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/batches."""
    file_id = text_at(call.json, "input_file_id")
    if file_id not in state.files:
        return envelope.failure(400, call, state, f"No such File object: {file_id}")
    batch: JsonObject = {
        "id": state.new_id("batch_", 32),
        "object": "batch",
        "endpoint": text_at(call.json, "endpoint"),
        "errors": None,
        "input_file_id": file_id,
        "completion_window": text_at(call.json, "completion_window"),
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": state.seconds(),
        "expires_at": state.seconds() + _DAY_S,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "metadata": at(call.json, "metadata"),
    }
    batch |= {f"{name}_at": None for name in _TIMES}
    return _stored_batch(batch, state)


def retrieve(call: StandInRequest, state: StandInState, respond: Respond) -> StandInAnswer:
    """GET /v1/batches/{id}: in progress at the first time, completed at the next."""
    batch = state.documents.get(call.params["id"])
    if batch is None:
        return _no_batch(call, state)
    match batch["status"]:
        case "validating":
            batch |= _status_reached("in_progress", state)
        case "in_progress":
            batch |= _results(batch, call, state, respond) | _status_reached("completed", state)
        case "cancelling":
            batch |= _status_reached("cancelled", state)
    return _stored_batch(batch, state)


def cancel(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/batches/{id}/cancel."""
    batch = state.documents.get(call.params["id"])
    if batch is None:
        return _no_batch(call, state)
    if batch["status"] not in ("validating", "in_progress"):
        message = f"Cannot cancel a batch with status '{batch['status']}'."
        return envelope.failure(400, call, state, message)
    return _stored_batch(batch | _status_reached("cancelling", state), state)


def list_batches(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """GET /v1/batches, the last one first."""
    batches = [
        document for document in state.documents.values() if document.get("object") == "batch"
    ]
    return envelope.answer({"object": "list", "data": batches[::-1], "has_more": False}, state)


def _status_reached(status: str, state: StandInState) -> JsonObject:
    return {"status": status, f"{status}_at": state.seconds()}


def _results(
    batch: JsonObject, call: StandInRequest, state: StandInState, respond: Respond
) -> JsonObject:
    """The fields of a batch whose calls were answered: its files of results and of errors."""
    asked = state.files.get(text_at(batch, "input_file_id"), b"").splitlines()
    lines = list(_answered([line for line in asked if line.strip()], call, state, respond))
    fields: JsonObject = {
        "request_counts": {
            "total": len(lines),
            "completed": sum(not failed for failed, _ in lines),
            "failed": sum(failed for failed, _ in lines),
        }
    }
    for failed, group in groupby(sorted(lines, key=lambda line: line[0]), lambda line: line[0]):
        name = "error" if failed else "output"
        content = b"".join(line for _, line in group)
        file_name = f"{batch['id']}_{name}.jsonl"
        file = store_file(state, file_name, "batch_output", content)
        fields[f"{name}_file_id"] = file["id"]
    return fields


def _answered(
    lines: list[bytes], call: StandInRequest, state: StandInState, respond: Respond
) -> Iterator[tuple[bool, bytes]]:
    """Whether each call failed, and the line of its result."""
    for line in lines:
        asked = orjson.loads(line)
        body = at(asked, "body")
        answer = respond(
            StandInRequest(
                method=text_at(asked, "method"),
                path=text_at(asked, "url"),
                headers=call.headers,
                body=orjson.dumps(body),
                json=body if isinstance(body, dict) else {},
            ),
            state,
        )
        result = {
            "id": state.new_id("batch_req_", 32),
            "custom_id": at(asked, "custom_id"),
            "response": {
                "status_code": answer.status,
                "request_id": dict(answer.headers).get("x-request-id"),
                "body": orjson.loads(answer.body),
            },
            "error": None,
        }
        yield answer.status >= 400, orjson.dumps(result) + b"\n"


def _no_batch(call: StandInRequest, state: StandInState) -> StandInAnswer:
    return envelope.failure(404, call, state, f"No batch found with id '{call.params['id']}'.")


def _stored_batch(batch: JsonObject, state: StandInState) -> StandInAnswer:
    state.documents[text_at(batch, "id")] = batch
    return envelope.answer(batch, state)
