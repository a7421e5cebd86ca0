"""Whether a recording of a take still answers in the take, or is stale.

There are two reasons. An answer may say that it is not final, such as the answer to a poll of a
job. And a successful write on a path makes earlier reads stale on the path, above and below
(RFC 9111, section 4.4).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from urllib.parse import unquote, urlsplit

from tapeway.core.http.content_codings import content_coding, decode
from tapeway.core.json_text import Json, peek_json
from tapeway.core.matching.json_paths import texts_at
from tapeway.core.matching.rules import Rules, parse_pending
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import LARGE_BODY, Request, Response

READS = frozenset({"GET", "HEAD"})
"""Methods whose recordings a write ends."""

WRITES = frozenset({"DELETE", "PATCH", "POST", "PUT"})

WRITE_KEY = b"\0write "
"""What the keys of writes begin with; no match key begins so."""

_ACCEPTED = 202
_SESSION = b"mcp-session-id"
_DEEPEST = 32
"""The number of segments that tell paths apart. A deeper path counts as the path above."""

_STATUS_NAMES = frozenset(
    {
        *("job_status", "jobStatus", "processing_status", "processingStatus", "provisioningState"),
        *("state", "status", "task_status", "taskStatus", "validation_status"),
    }
)
_JOB_NAMES = frozenset(
    {
        *("batch", "data", "dataset", "file", "finetuned_model", "job", "metadata", "operation"),
        *("output", "prediction", "properties", "response", "result", "run", "status", "task"),
        "video",
    }
)
"""Members in which a provider's API has the object with the status: Gemini `file`, Azure
`properties`, DashScope `output`, Cohere `finetuned_model`, and so on."""

_NOT_FINAL = frozenset(
    {
        *("building", "canceling", "cancellationrequested", "cancelling", "cancelrequested"),
        *("compressing", "creating", "deleting", "deploying", "deployingapi", "dreaming"),
        *("enqueued", "exporting", "finalising", "finalizing", "finetuning", "generating"),
        *("importing", "indexing", "ingesting", "initialising", "initializing", "inprogress"),
        *("inqueue", "loading", "notrunning", "notstarted", "pausing", "pending", "preparing"),
        *("processing", "provisioning", "queued", "queueing", "queuing", "rendering", "resuming"),
        *("running", "scheduled", "started", "starting", "stopping", "submitted", "throttled"),
        *("training", "transcribing", "updating", "uploaded", "uploading", "validated"),
        *("validating", "validatingfiles", "waiting"),
    }
)
"""Words for a job under way, in lower case and without separators."""

# Google writes JOB_STATE_RUNNING, Cohere STATUS_QUEUED.
_ENUM_PREFIX = re.compile(r"(?:[A-Z]+_)*(?:STATE|STATUS)_(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s_-]+")
_POLLED_BY_POST = (":fetchPredictOperation", "%3AfetchPredictOperation", "%3afetchPredictOperation")


def why_not_final(interaction: Interaction, rules: Rules) -> str | None:
    """Why an answer is not final: status, body or rule; None if final."""
    response, polls = interaction.response, _polls(interaction.request)
    if response.status == _ACCEPTED:
        return "its status is 202"
    if response.verdict == "open":
        return "its stream was still open"
    if response.head.value(_SESSION) is not None:
        return "it belongs to a session of MCP, which may not be the one of who asks"
    if not (polls or rules.pending) or (value := _json_of(response)) is None:
        return None
    for rule in rules.pending:
        path, expected = parse_pending(rule)
        if expected in texts_at(value, path):
            return f"the rule pending has '{rule}'"
    return _own_words(value) if polls else None


def write_keys(url: str) -> list[bytes]:
    """The counters moved by a write to this URL: one for the URL and one for each path above."""
    origin, segments = _place(url)
    above = [_key(b"below", origin, segments[:end]) for end in range(len(segments) + 1)]
    return [_key(b"at", origin, segments), *above]


def read_keys(url: str) -> list[bytes]:
    """The counters of writes that make reads of this URL stale."""
    origin, segments = _place(url)
    above = [_key(b"at", origin, segments[:end]) for end in range(len(segments))]
    return [_key(b"below", origin, segments), *above]


def _polls(request: Request) -> bool:
    if request.method == "GET":
        return True
    # Vertex AI has operations fetched by POST.
    return request.method == "POST" and request.target.partition("?")[0].endswith(_POLLED_BY_POST)


def _json_of(response: Response) -> Json:
    body = decode(content_coding(response.headers), response.body)
    if body is None or len(body) > LARGE_BODY or body.lstrip()[:1] not in (b"{", b"["):
        return None
    return peek_json(body)


def _own_words(value: Json) -> str | None:
    if not isinstance(value, dict):
        return None
    name = value.get("name")
    if isinstance(name, str) and "operations/" in name and value.get("done") is not True:
        return "its operation is not done"
    return next(
        (f"its {field} is '{word}'" for field, word in _statuses(value) if _goes_on(word)), None
    )


def _statuses(value: Mapping[str, Json], depth: int = 0) -> Iterator[tuple[str, str]]:
    for name, member in value.items():
        if isinstance(member, str):
            if name in _STATUS_NAMES:
                yield name, member
        elif isinstance(member, dict) and name in _JOB_NAMES and depth < 2:
            yield from _statuses(member, depth + 1)


def _goes_on(word: str) -> bool:
    bare = _ENUM_PREFIX.sub("", word, count=1) if len(word) < 64 else ""
    return _SEPARATORS.sub("", bare).lower() in _NOT_FINAL


def _place(url: str) -> tuple[str, Sequence[str]]:
    parts = urlsplit(url)
    segments = [unquote(part) for part in parts.path.split("/") if part]
    return f"{parts.scheme}://{parts.netloc}".lower(), segments[:_DEEPEST]


def _key(kind: bytes, origin: str, segments: Sequence[str]) -> bytes:
    text = "\0".join([origin, *segments]).encode("utf-8", "surrogateescape")
    return WRITE_KEY + kind + sha256(text).digest()[:16]
