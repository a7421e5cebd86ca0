"""Which answers are final, and which reads a write ends."""

import gzip

import orjson
import pytest

from tapeway.core.cassette.freshness import read_keys, why_not_final, write_keys
from tapeway.core.json_text import Json
from tapeway.core.matching.rules import NO_RULES, Rules
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Headers, Request, Response, ResponseHead


def recorded(
    body: "Json | bytes" = b"",
    *,
    method: str = "GET",
    target: str = "/v1/jobs/1",
    status: int = 200,
    headers: Headers = ((b"Content-Type", b"application/json"),),
) -> Interaction:
    octets = body if isinstance(body, bytes) else orjson.dumps(body)
    response = Response(ResponseHead(status, "", headers), octets)
    return Interaction(0, Request("openai", method, target, base="https://up"), response)


def operation(**more: Json) -> Json:
    return {"name": "models/veo-3.1/operations/x1", **more}


@pytest.mark.parametrize(
    "body",
    [
        {"id": "batch_1", "status": "validating"},
        {"status": "IN_QUEUE"},
        {"status": "In progress"},
        {"status": "InProgress"},
        {"status": "validating_files"},
        {"status": "Running", "data": {"status": "completed"}},
        {"state": "PROCESSING"},
        {"state": "JOB_STATE_RUNNING"},
        {"processing_status": "in_progress"},
        {"output": {"task_status": "PENDING"}},
        {"data": {"status": "processing"}},
        {"result": {"status": {"state": "queued"}}},
        {"file": {"state": "PROCESSING"}},
        {"metadata": {"state": "BATCH_STATE_PENDING"}},
        {"finetuned_model": {"status": "STATUS_FINETUNING"}},
        {"properties": {"provisioningState": "Creating"}},
        operation(),
        operation(done=False, metadata={"state": "ACTIVE"}),
    ],
)
def test_an_answer_to_get_that_says_a_job_goes_on_is_not_final(body: Json) -> None:
    assert why_not_final(recorded(body), NO_RULES) is not None
    assert why_not_final(recorded(body, method="POST"), NO_RULES) is None


@pytest.mark.parametrize(
    "body",
    [
        {"status": "completed"},
        {"status": "active", "note": "pending"},
        {"status": 202},
        {"status": None, "state": ["running"]},
        {"status": "pending the outcome of what the others decide about it, as we all know"},
        {"data": [{"status": "in_progress"}]},
        {"user": {"status": "pending"}},
        {"pending": True},
        ["running"],
        operation(done=True, response={}),
        b"running",
        b'{"status": "running"',
        b"",
    ],
)
def test_any_other_answer_is_final(body: "Json | bytes") -> None:
    assert why_not_final(recorded(body), NO_RULES) is None


def test_accepted_is_final_for_no_method() -> None:
    for method in ("GET", "POST", "HEAD", "DELETE"):
        assert why_not_final(recorded(b"ok", method=method, status=202), NO_RULES)


def test_what_belongs_to_a_session_does_not_answer_in_another_one() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{}}'
    held = recorded(body, method="POST", headers=((b"Mcp-Session-Id", b"a"),))

    assert why_not_final(held, NO_RULES) is not None
    assert why_not_final(recorded(body, method="POST", headers=()), NO_RULES) is None


def test_an_operation_that_is_fetched_by_post_is_polled_too() -> None:
    fetched = recorded(operation(), method="POST", target="/v1/models/veo:fetchPredictOperation")

    assert why_not_final(fetched, NO_RULES) == "its operation is not done"


def test_json_is_read_whatever_it_is_called_and_however_it_is_coded() -> None:
    body = orjson.dumps({"status": "queued"})
    coded = recorded(gzip.compress(body), headers=((b"Content-Encoding", b"gzip"),))

    assert why_not_final(coded, NO_RULES) == "its status is 'queued'"
    assert why_not_final(recorded(body, headers=()), NO_RULES) == "its status is 'queued'"


@pytest.mark.parametrize(
    ("rule", "body"),
    [
        ("body.phase=WAITING", {"phase": "WAITING"}),
        ("body.done=false", {"done": False}),
        ("body.jobs[*].left = 3", {"jobs": [{"left": 0}, {"left": 3}]}),
        ("body.**.ready=null", {"a": [{"b": {"ready": None}}]}),
        ("body[0]=a=b", ["a=b"]),
    ],
)
def test_a_rule_names_further_values_of_answers_that_are_not_final(rule: str, body: Json) -> None:
    rules = Rules(pending=(rule,))

    assert why_not_final(recorded(body), NO_RULES) is None
    assert why_not_final(recorded(body), rules) == f"the rule pending has '{rule}'"
    assert why_not_final(recorded(body, method="POST"), rules) is not None
    assert why_not_final(recorded({"phase": "over", "done": True}), rules) is None


@pytest.mark.parametrize(
    ("written", "read", "ends"),
    [
        ("/items", "/items", True),
        ("/items", "/items/", True),
        ("/items?a=1", "/items?b=2", True),
        ("/items", "/items/1/parts", True),
        ("/items/1/parts", "/items", True),
        ("/items/1", "/", True),
        ("/", "/items/1", True),
        ("/it%65ms", "/items", True),
        ("/items/1", "/items/2", False),
        ("/items", "/itemsets", False),
        ("/a%2Fb", "/a/b", False),
        ("/items/" + "x/" * 40, "/items/" + "x/" * 50, True),
    ],
)
def test_a_write_ends_what_was_read_on_its_path_above_and_below(
    written: str, read: str, ends: bool
) -> None:
    counters = set(write_keys(f"https://up{written}"))

    assert (not counters.isdisjoint(read_keys(f"https://up{read}"))) is ends
    assert counters.isdisjoint(read_keys(f"https://elsewhere{read}"))


def test_a_read_sees_each_write_once() -> None:
    for written in ("/items", "/items/1", "/items/1/parts"):
        counters = write_keys(f"https://up{written}")
        assert len(set(counters).intersection(read_keys("https://up/items/1"))) == 1
