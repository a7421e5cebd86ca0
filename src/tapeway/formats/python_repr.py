"""Objects that AgentTape wrote down as Python shows them, taken back to what they say.

An application that puts a message of the SDK back into the conversation, as tool loops do, leaves
`ChatCompletionMessage(content=None, role='assistant', …)` in a YAML cassette. It is read and never
run: only names, literals and what they are nested in.
"""

import ast
import re

from tapeway.core.json_text import Json

_OBJECT = re.compile(r"[A-Z]\w*\(\w+=")
_LONGEST = 1024 * 1024


class _Unread(ValueError):
    """It says something else than an object of literals."""


def read(text: str) -> Json:
    """The object with what was None left out, as the SDK sends it; other text as it is."""
    if not _OBJECT.match(text) or len(text) > _LONGEST:
        return text
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (_Unread, SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def literal(text: str) -> Json:
    """What a dictionary says that Python shows so, None for anything else."""
    if not text.startswith("{") or len(text) > _LONGEST:
        return None
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (_Unread, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Json:
    match node:
        case ast.Constant(value=bool() | int() | float() | str() | None as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(each) for each in items]
        case ast.Dict(keys=names, values=values):
            return {_name(name): _value(each) for name, each in zip(names, values, strict=True)}
        case ast.Call(func=ast.Name(), args=[], keywords=fields):
            found = {field.arg or "": _value(field.value) for field in fields}
            return {name: value for name, value in found.items() if value is not None}
        case _:
            raise _Unread


def _name(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _Unread
