"""What DSPy caches, as JSON and back: the same value, or a refusal that says why."""

import math
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from tapeway.integrations.dspy.values import decode_value, encode_value

HERE = (__name__ + ".",)


class Usage(BaseModel):
    total_tokens: int = 0


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")

    text: str
    usage: Usage = Usage()


class Forgetful(BaseModel):
    """Says less of itself than it is made from."""

    text: str

    def __init__(self, **data: Any) -> None:
        super().__init__(text=data["text"] + "!")


@pytest.mark.parametrize(
    "value",
    [
        {"_dspy_format": "x", "responses": [1, 1.0, True, None, "é"], "usage": {}},
        [[0.1, -1e-300], [2.5, 3.0]],
        "text",
        0.1,
        2**70,
    ],
)
def test_plain_json_comes_back_as_a_copy(value: Any) -> None:
    document = encode_value(value)
    again: Any = decode_value(document)

    assert again == value
    assert type(again) is type(value)
    if isinstance(again, dict):
        again["usage"]["more"] = 1
        assert decode_value(document) == value


def test_a_model_comes_back_with_its_class_and_what_it_cost() -> None:
    answer = Answer(text="Paris", usage=Usage(total_tokens=3), more=[1])  # type: ignore[call-arg]
    object.__setattr__(answer, "_hidden_params", {"response_cost": 0.25, "client": object()})

    document = encode_value(answer, HERE)
    again = decode_value(document, HERE)

    assert isinstance(again, Answer)
    assert again == answer
    assert isinstance(again.usage, Usage)
    assert getattr(again, "_hidden_params", None) == {"response_cost": 0.25}
    assert document["class"] == f"{__name__}.Answer"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"a": (1, 2)}, "would come back as another one"),
        ({"a": math.nan}, "would come back as another one"),
        ({1: "a"}, "would come back as another one"),
        ({"a": {1, 2}}, "is no JSON"),
        (object(), "is no JSON"),
        ("\ud800", "is no JSON"),
        (Forgetful(text="x"), "does not come back as it was"),
    ],
)
def test_a_value_that_would_come_back_different_is_refused(value: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        encode_value(value, HERE)


@pytest.mark.parametrize(
    "path",
    [
        *("os.path.join", "subprocess.Popen", "tapeway.settings.options.Settings", "dspyx.Model"),
        *("litellm.Router", "builtins.dict"),
    ],
)
def test_no_class_is_imported_from_other_modules(path: str) -> None:
    with pytest.raises(ValueError, match="is not rebuilt: allowed are those below"):
        decode_value({"type": "pydantic", "class": path, "data": {}})


def test_a_class_that_is_no_model_is_not_called() -> None:
    with pytest.raises(ValueError, match="there is no model"):
        decode_value({"type": "pydantic", "class": f"{__name__}.pytest.raises", "data": {}}, HERE)
    with pytest.raises(ValueError, match="cannot be rebuilt"):
        decode_value({"type": "Prediction", "data": {}})
