"""OpenAI's moderation: a text is flagged for each category named in the text."""

from tapeway.testing.answer import StandInAnswer
from tapeway.testing.openai import envelope
from tapeway.testing.reply import StandInState
from tapeway.testing.request import JsonObject, StandInRequest, at, list_at, text_at

_ON_PICTURES = frozenset(
    {
        *("self-harm", "self-harm/intent", "self-harm/instructions"),
        *("sexual", "violence", "violence/graphic"),
    }
)
_CATEGORIES = (
    *("harassment", "harassment/threatening", "hate", "hate/threatening"),
    *("illicit", "illicit/violent", "self-harm", "self-harm/instructions", "self-harm/intent"),
    *("sexual", "sexual/minors", "violence", "violence/graphic"),
)


def moderate(call: StandInRequest, state: StandInState) -> StandInAnswer:
    """POST /v1/moderations: a result for each text, or one for a list of parts."""
    given = at(call.json, "input")
    items = list_at(call.json, "input")
    if items and isinstance(items[0], dict):
        texts = " ".join(text_at(part, "text") for part in items)
        pictures = any(text_at(part, "type") == "image_url" for part in items)
        results = [_result(texts, pictures=pictures)]
    else:
        inputs = [given] if isinstance(given, str) else items
        results = [_result(str(value), pictures=False) for value in inputs]
    body: JsonObject = {
        "id": state.new_id("modr-", 29),
        "model": call.model or "omni-moderation-latest",
        "results": results,
    }
    return envelope.answer(body, state)


def _result(text: str, *, pictures: bool) -> JsonObject:
    categories = {name: name.partition("/")[0] in text.lower() for name in _CATEGORIES}
    return {
        "flagged": any(categories.values()),
        "categories": categories,
        "category_scores": {name: 0.97 if named else 1.2e-06 for name, named in categories.items()},
        "category_applied_input_types": {
            name: ["text", "image"] if pictures and name in _ON_PICTURES else ["text"]
            for name in _CATEGORIES
        },
    }
