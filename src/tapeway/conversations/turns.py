"""The LLM calls of a cassette as turns: added messages, cost, and the part a cache could keep.

Services cache the beginning of a prompt: tools, then system, then messages. A turn is served from
the cache up to the first element that differs from the turn before.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

from tapeway.conversations.model import ASSISTANT, USER, ContentPart, ConversationMessage
from tapeway.conversations.reader import UnreadableCall, parse_call, parse_sdk_call
from tapeway.conversations.threading import Threads
from tapeway.conversations.tool_steps import ToolStep, ToolSteps, TurnFigures
from tapeway.core.digests import sha256
from tapeway.core.http.content_codings import content_coding, decode
from tapeway.core.json_text import Json, canonical, json_object
from tapeway.core.model.interaction import AnyInteraction, ForeignInteraction, Interaction
from tapeway.core.model.messages import Request
from tapeway.core.text import readable_json
from tapeway.providers.api_call import ApiCall, describe_call
from tapeway.providers.prices import PriceTable
from tapeway.providers.usage import cached_prompt_tokens, token_usage

MOST_RESULTS = 10
"""Of the largest tool results: in the cassette, and in a turn."""

_HEAD = 200
_MARKERS = frozenset({"cache_control", "cachePoint"})
"""What marks a place in a prompt for the cache (Anthropic, Bedrock) moves on with each turn."""


@dataclass(frozen=True, slots=True)
class _PromptFields:
    """Where a dialect has the parts of a prompt, in the order in which services cache them."""

    tools: tuple[str, ...] = ("tools",)
    system: tuple[str, ...] = ("system",)
    messages: str = "messages"


_CHAT = _PromptFields(tools=("tools", "functions"), system=())
_GEMINI = _PromptFields(system=("systemInstruction", "system_instruction"), messages="contents")
_CONTINUED = ("previous_response_id", "conversation")
_FIELDS: Mapping[str, _PromptFields] = {
    "generateContent": _GEMINI,
    "streamGenerateContent": _GEMINI,
    "responses": _PromptFields(system=("instructions",), messages="input"),
    "converse": _PromptFields(tools=("toolConfig",)),
    "converse-stream": _PromptFields(tools=("toolConfig",)),
    "messages": _PromptFields(),
    "rawPredict": _PromptFields(),
    "streamRawPredict": _PromptFields(),
    "invoke": _PromptFields(),
    "invoke-with-response-stream": _PromptFields(),
}
"""By endpoint; other endpoints speak Chat Completions."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool, where it first came up."""

    interaction: int
    conversation: int
    name: str
    characters: int
    head: str


@dataclass(frozen=True, slots=True)
class RepeatedPrefix:
    """How many messages of the turn before a prompt begins with, and where it first differs.

    `breaks_at` is `model`, `tools`, `system` or `message N`; None where all of the turn before is
    repeated, or where there is none.
    """

    kept: int
    of: int
    breaks_at: str | None


@dataclass(frozen=True, slots=True)
class CallTurn:
    """A call: tokens, cost, added messages, and the prefix shared with the turn before.

    `usd` is None for a model without a known price, `cached_tokens` where the service tells none,
    `latency_ms` for a call that was not recorded over HTTP. `at` is when it was answered. `calls`
    are the tools that the answer calls, with their results from the turns after it. `error` says
    why the answer is missing or incomplete; it is empty for a whole one.
    """

    interaction: int
    conversation: int
    provider: str
    endpoint: str
    model: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None
    usd: float | None
    prompt_usd: float | None
    latency_ms: float | None
    at: str | None
    messages: int
    new: tuple[ConversationMessage, ...]
    prefix: RepeatedPrefix
    largest_results: tuple[ToolResult, ...]
    calls: tuple[ToolStep, ...] = ()
    error: str = ""

    @property
    def says(self) -> dict[str, Json]:
        """The beginnings of what was asked anew, and of the answer's words."""
        texts = {True: "", False: ""}
        for message in self.new:
            words = " ".join([part.text for part in message.parts if part.kind == "text"])
            answered = message.role == ASSISTANT
            texts[answered] = words if answered or message.role == USER else texts[answered]
        return {
            "asked": " ".join(texts[False][: 2 * _HEAD].split())[:_HEAD],
            "answered": " ".join(texts[True][: 2 * _HEAD].split())[:_HEAD],
        }

    @property
    def tools(self) -> list[Json]:
        """The names of the tools called by the answer."""
        answers = [message for message in self.new if message.role == ASSISTANT]
        parts = [part for answer in answers for part in answer.parts if part.kind == "call"]
        return [part.name for part in parts]

    @property
    def document(self) -> dict[str, Json]:
        """The turn as JSON."""
        plain = {member.name: getattr(self, member.name) for member in fields(self)}
        return plain | {
            "tools": self.tools,
            "new": [part for message in self.new for part in _new_parts(message)],
            "prefix": asdict(self.prefix),
            **self.says,
            "calls": [asdict(step) for step in self.calls],
            "largest_results": [asdict(result) for result in self.largest_results],
        }


@dataclass(frozen=True, slots=True)
class CassetteTurns:
    """All turns of a cassette in their order; `left_out` are the calls that could not be read."""

    turns: tuple[CallTurn, ...]
    left_out: tuple[tuple[int, str], ...] = ()

    @property
    def largest_results(self) -> tuple[ToolResult, ...]:
        return _largest(result for turn in self.turns for result in turn.largest_results)

    @property
    def sums(self) -> dict[str, Json]:
        """Turns, tokens and cost in all; `usd` is None if no model has a known price."""
        priced = [turn.usd for turn in self.turns if turn.usd is not None]
        timed = [turn.latency_ms for turn in self.turns if turn.latency_ms is not None]
        unpriced = {
            f"{turn.provider}/{turn.model}"
            for turn in self.turns
            if turn.usd is None and turn.prompt_tokens + turn.completion_tokens
        }
        prompt = sum([turn.prompt_tokens for turn in self.turns])
        completion = sum([turn.completion_tokens for turn in self.turns])
        return {
            "turns": len(self.turns),
            "conversations": len({turn.conversation for turn in self.turns}),
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "cached_tokens": sum([turn.cached_tokens or 0 for turn in self.turns]),
            "usd": round(sum(priced), 9) if priced else None,
            "latency_ms": round(sum(timed), 3) if timed else None,
            "unpriced": [*sorted(unpriced)],
        }


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Digests of the parts of a prompt that services cache."""

    model: str | None
    tools: bytes
    system: bytes
    messages: tuple[bytes, ...]
    continues: bool = False
    """Whether the service keeps earlier turns, which then are not sent again."""


@dataclass(frozen=True, slots=True)
class _PlacedCall:
    """A call that was read, and the conversation it is part of."""

    item: Interaction | None
    index: int
    conversation: int
    model: str | None
    at: str | None
    error: str


@dataclass(slots=True)
class ReadCalls:
    """The LLM calls of a cassette, read once for its transcript and its turns."""

    threads: Threads = field(default_factory=Threads)
    calls: list[_PlacedCall] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)

    def add(self, item: AnyInteraction) -> None:
        try:
            if isinstance(item, ForeignInteraction):
                call = parse_sdk_call(item)
            else:
                call = parse_call(item)
        except UnreadableCall as exc:
            self.left_out.append((item.index, str(exc)))
            return
        if call is not None:
            held = item if isinstance(item, Interaction) else None
            number = self.threads.add(call)
            self.calls.append(
                _PlacedCall(held, call.index, number, call.model, call.at, call.error)
            )


def read_calls(items: Iterable[AnyInteraction]) -> ReadCalls:
    """The LLM calls among these interactions."""
    calls = ReadCalls()
    for item in items:
        calls.add(item)
    return calls


def turns(reading: ReadCalls, prices: PriceTable) -> CassetteTurns:
    """The turns of these calls."""
    new: dict[int, list[ConversationMessage]] = defaultdict(list)
    for message in reading.threads.messages():
        new[message.interaction].append(message)
    before: dict[int, _Prompt] = {}
    steps: dict[int, ToolSteps] = defaultdict(ToolSteps)
    call_turns: list[CallTurn] = []
    for call in reading.calls:
        prompt = _prompt(call)
        known = before.get(call.conversation)
        turn = _turn(call, prompt, known, new[call.index], prices)
        calls = steps[call.conversation].of_turn(_figures(turn), turn.new)
        call_turns.append(replace(turn, calls=calls))
        before[call.conversation] = prompt
    return CassetteTurns(tuple(call_turns), tuple(reading.left_out))


def _turn(
    call: _PlacedCall,
    prompt: _Prompt,
    before: _Prompt | None,
    new: Sequence[ConversationMessage],
    prices: PriceTable,
) -> CallTurn:
    made = None if call.item is None else describe_call(call.item.request.route, call.item.request)
    prompted, completed, cached = _tokens(call.item, made)
    price = None if made is None or made.model is None else prices.find(made.provider, made.model)
    return CallTurn(
        interaction=call.index,
        conversation=call.conversation,
        provider="" if made is None else made.provider,
        endpoint="" if made is None else made.endpoint,
        model=call.model,
        prompt_tokens=prompted,
        completion_tokens=completed,
        cached_tokens=cached,
        usd=None if price is None else round(price.of(prompted, completed), 9),
        prompt_usd=None if price is None else round(price.of(prompted, 0), 9),
        latency_ms=None if call.item is None else call.item.latency_ms,
        at=call.at,
        messages=len(prompt.messages),
        new=tuple(new),
        prefix=_prefix(before, prompt),
        largest_results=_largest(_results(new)),
        error=call.error,
    )


def _figures(turn: CallTurn) -> TurnFigures:
    return TurnFigures(
        turn.interaction,
        turn.prompt_tokens,
        turn.completion_tokens,
        turn.latency_ms or 0.0,
        turn.at,
        turn.prompt_usd,
        turn.prefix.breaks_at is None and turn.prefix.of > 0,
    )


def _tokens(item: Interaction | None, call: ApiCall | None) -> tuple[int, int, int | None]:
    """Prompt, completion and cached tokens, as recorded or as stated in the answer."""
    if item is None or call is None:
        return 0, 0, None
    cached = cached_prompt_tokens(call, item.response)
    kept = item.usage or {}
    prompt, completion = kept.get("prompt_tokens"), kept.get("completion_tokens")
    if type(prompt) is int and type(completion) is int:
        return prompt, completion, cached
    usage = token_usage(call, item.response)
    return (
        (0, 0, cached) if usage is None else (usage.prompt_tokens, usage.completion_tokens, cached)
    )


def _prompt(call: _PlacedCall) -> _Prompt:
    body = None if call.item is None else _body(call.item.request)
    if body is None or call.item is None:
        return _Prompt(call.model, b"", b"", ())
    made = describe_call(call.item.request.route, call.item.request)
    where = _FIELDS.get("" if made is None else made.endpoint, _CHAT)
    messages = body.get(where.messages)
    if isinstance(messages, str):
        messages = [messages]
    return _Prompt(
        call.model,
        _digest([body.get(name) for name in where.tools]),
        _digest([body.get(name) for name in where.system]),
        tuple([_digest(message) for message in messages]) if isinstance(messages, list) else (),
        continues=any(body.get(name) for name in _CONTINUED),
    )


def _body(request: Request) -> dict[str, Json] | None:
    octets = decode(content_coding(request.headers), request.body)
    return None if octets is None else json_object(octets)


def _digest(value: Json) -> bytes:
    return sha256(canonical(_without_markers(value))).digest()


def _without_markers(value: Json) -> Json:
    if isinstance(value, dict):
        return {
            name: _without_markers(member) for name, member in value.items() if name not in _MARKERS
        }
    if isinstance(value, list):
        stripped = [_without_markers(item) for item in value]
        # Bedrock marks a place by a separate block.
        return [item for item, was in zip(stripped, value, strict=True) if item or not was]
    return value


def _prefix(before: _Prompt | None, now: _Prompt) -> RepeatedPrefix:
    if before is None:
        return RepeatedPrefix(0, 0, None)
    of = len(before.messages)
    pairs = zip(before.messages, now.messages, strict=False)
    kept = next((at for at, (old, new) in enumerate(pairs) if old != new), None)
    if kept is None:
        kept = min(of, len(now.messages))
    for part, same in (
        ("model", before.model == now.model),
        ("tools", before.tools == now.tools),
        ("system", before.system == now.system),
    ):
        if not same:
            return RepeatedPrefix(0, of, part)
    if now.continues:
        return RepeatedPrefix(of, of, None)
    return RepeatedPrefix(kept, of, f"message {kept}" if kept < of else None)


def _results(messages: Iterable[ConversationMessage]) -> Iterator[ToolResult]:
    for message in messages:
        for part in message.parts:
            if part.kind == "result":
                yield ToolResult(
                    message.interaction,
                    message.conversation,
                    part.name,
                    len(part.text),
                    readable_json(part.text[: 2 * _HEAD])[:_HEAD],
                )


def _largest(results: Iterable[ToolResult]) -> tuple[ToolResult, ...]:
    return tuple(sorted(results, key=lambda result: -result.characters)[:MOST_RESULTS])


def _new_parts(message: ConversationMessage) -> Iterator[Json]:
    for part in message.parts:
        text = _part_text(part)
        yield {
            "role": message.role,
            "kind": part.kind,
            "name": part.name,
            "characters": len(text),
            "head": readable_json(text[: 2 * _HEAD])[:_HEAD],
        }


def _part_text(part: ContentPart) -> str:
    if part.kind in ("call", "attachment"):
        return canonical(part.value).decode()
    return part.text
