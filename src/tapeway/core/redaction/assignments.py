"""Finds what prose, code, files of settings and command lines give to the name of a secret.

A name stands beside its value where between both are only signs, blanks and what a language puts
there: a type, a call, a tag, `is`, the word `value`. Each row of `_GAPS` is one such way. An opaque
value is a secret; what else stands there is a word, a type, a call or a stand-in, and stays.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Literal, NamedTuple

from tapeway.core.automata import MAX_AUTOMATON, compile_for_bytes
from tapeway.core.redaction.credentials import ID_AND_SECRET, Secret
from tapeway.core.redaction.opaque import is_opaque, is_stand_in
from tapeway.core.redaction.secret_names import (
    NAME_IN_TEXT,
    TAG_END,
    TAG_START,
    VARIABLE,
    Kind,
    name_kind,
)
from tapeway.core.redaction.spans import PLACEHOLDER, Span

LONGEST_CONTEXT = 512
"""How far before a secret what tells of it may begin: a name, a path, `curl`."""

_QUOTE = r"""(?:['"`\\*]|&(?:quot|apos);)"""
"""Also Markdown's, and the backslashes of JSON around it."""
_SPACE = r"(?:[ \t]|\r?\n|\\+[rnt])"
_MARKS = rf"(?:{_QUOTE}|{TAG_START}\\{{0,4}}/[A-Za-z0-9]{{1,12}}{TAG_END})"
_CLOSE = rf"(?:{_MARKS}|[)\]_]){{0,8}}"
_YAML_BLOCK = r"[|>][-+0-9]{0,2}(?:\r?\n|(?:\\+r)?\\+n)[ \t]{1,40}"
"""What stands before the text of a block in YAML, also in a string of JSON."""
_TYPE = (
    r"""(?:[ \t]{0,3}[:?!*\[][^\r\n"'`=\\;,{}]{0,40}"""
    r"""|[ \t]{1,3}(?:[A-Za-z_][A-Za-z0-9_.()<>*&\[\]]{0,30}|\{[^{}\r\n"'=\\]{0,24}\})[ \t]{0,3})"""
)
"""A type between a name and the equals sign, or the accessors of a property."""

_DASH = "(?:-|\u2013|\u2014|\u2192|\\\\{1,8}u(?:201[34]|2192))"
_PAIR = r"[A-Za-z0-9_.-]{1,40}="

_Needs = Literal["", "any", "quotes", "telling", "either", "both", "given"]
"""What a gap needs beside an opaque value.

- `any`: nothing; without it, a password between semicolons may be any.
- `quotes`: a value in quotes.
- `telling`: a name that nothing but a secret has, such as that of a variable.
- `either`, `both`: of these two.
- `given`: a name that is given as a value itself.
"""


class _Gap(NamedTuple):
    """What may stand between a name and its value, in the syntax of RE2 and of `re`.

    `exact` replaces it where RE2 searches for less: a value that stands farther away.
    """

    needs: _Needs
    text: str
    exact: str = ""


_GAPS = (
    # `apiKey: string = "…"`, `char API_KEY[33] = "…"`, `@password nvarchar(50) = N'…'`
    _Gap("both", rf"{_TYPE}:?=[ \t]{{0,24}}"),
    # `api_key = "…"`, `os.environ['X'] ||= '…'`, `${X:-…}`, `password: |`
    _Gap(
        "",
        rf"{_CLOSE}[ \t]{{0,24}}(?:[?:|+!=]{{0,2}}=>?|[?!]?:-?|[-~]>|<-){_MARKS}{{0,4}}"
        rf"[ \t]{{0,24}}(?:[!&][A-Za-z!]{{1,20}}[ \t])?(?:{_YAML_BLOCK})?",
    ),
    # `Set-Cookie: a=…; Path=/`, `Cookie: a=b; c=…`
    _Gap("any", rf"{_CLOSE}:[ \t]{{0,3}}{_PAIR}"),
    _Gap("any", rf"{_CLOSE}:[ \t]{{0,3}}(?:{_PAIR}[^\s;=\"']{{0,80}};[ \t]?){{1,5}}{_PAIR}"),
    # `process.env.X || "…"`, `getenv("X") or "…"`
    _Gap("quotes", rf"{_CLOSE}[ \t]{{1,3}}(?:or|\|\||\?[?:])[ \t]{{1,3}}"),
    # `setenv("X", "…")`, `define('X', '…')`, `["X", "…"]`
    _Gap("quotes", rf"{_QUOTE}{{1,8}}[ \t]{{0,3}},{_SPACE}{{0,24}}"),
    # `{api_key, "…"}`, `password("…")`
    _Gap("both", rf"(?:[ \t]{{0,3}},|\(){_SPACE}{{0,8}}"),
    # `auth=("ada", "…")`, `BasicCredentials("ada", "…")`
    _Gap(
        "quotes",
        rf"=?\({_SPACE}{{0,8}}{_QUOTE}{{1,8}}[A-Za-z0-9_.@+-]{{1,64}}{_QUOTE}{{1,8}},{_SPACE}{{0,12}}",
    ),
    # `--password …`, `ENV X …`, `the password is …`, `| X | … |`, `API key — …`
    _Gap(
        "either",
        rf"{_CLOSE}(?:[ \t]{{0,24}}\|[ \t]{{0,24}}|[ \t]{{1,24}}(?:(?:{_DASH}|<<<)[ \t])?)"
        r"(?:(?i:is|was|to|by|as):?[ \t]{1,3})?\(?",
    ),
    # `put-parameter --name X --value …`
    _Gap(
        "telling",
        rf"{_CLOSE}(?:[ \t]{{1,3}}--[a-z-]{{1,20}}[ =][A-Za-z]{{1,20}}){{0,2}}[ \t]{{1,3}}"
        r"--(?:[a-z-]{0,20}value|body)[ =]{1,3}",
    ),
    # `Your password:` and the value on a line of its own
    _Gap("telling", rf"{_CLOSE}[ \t]{{0,3}}:{_MARKS}{{0,4}}{_SPACE}{{1,16}}"),
    # `<a name="x">…</a>`, `<key>x</key><string>…</string>`
    _Gap(
        "",
        rf"(?:{_QUOTE}{{1,4}}{_SPACE}{{0,4}}|{TAG_START}\\{{0,4}}/[A-Za-z0-9_:.-]{{1,40}}){TAG_END}"
        rf"{_SPACE}{{0,24}}(?:{TAG_START}[A-Za-z0-9_:.-]{{1,40}}{TAG_END})?",
    ),
    # `{"name": "X", "value": "…"}`, `- name: X` and `value: …`, `<input name=x value=…>`
    _Gap(
        "given",
        rf"{_QUOTE}{{0,8}}(?:[,;]|{_SPACE}){{1,24}}{_QUOTE}{{0,8}}[A-Za-z_-]{{1,40}}{_QUOTE}{{0,8}}"
        r"[ \t]{0,3}[:=]",
        rf"{_QUOTE}{{0,8}}(?:(?!\n[ \t]*- |\\n[ \t]*- )[^{{}}<>]){{0,300}}?(?<![A-Za-z])[A-Za-z_-]{{0,30}}"
        rf"(?i:value|content){_QUOTE}{{0,8}}[ \t]{{0,3}}[:=][ \t]{{0,3}}",
    ),
    # `variable "db_password" {`, and below it `default = "…"`
    _Gap(
        "quotes",
        rf"{_QUOTE}{{1,8}}[ \t]{{0,3}}\{{",
        rf"{_QUOTE}{{1,8}}[ \t]{{0,3}}\{{[^{{}}]{{0,300}}?(?<![A-Za-z])(?i:default|value)"
        r"[ \t]{0,24}=[ \t]{0,3}",
    ),
)
_OF_RUNS = re.compile(r"\{([01]),(?:3|4|8|12|16|24)\}")
"""The bounds of runs of equal characters, which RE2 does not need."""
_PLAIN = r"""[^\x00-\x20\x7f"'`<>{}()\[\],;&\\=]"""
_SCHEME = "(?:(?i:bearer|basic|token) )?"
_CALL_BEFORE = r"(?:(?:new )?[A-Za-z_][A-Za-z0-9_.:]{0,40}!?\()?"
_PREFIX = r"(?:[A-Za-qs-z@$]|r#)?"
_VALUE_START = (
    rf"{_CALL_BEFORE}{_PREFIX}[\[(<]{{0,2}}{_QUOTE}{{0,8}}{_SCHEME}{_QUOTE}{{0,8}}{_PLAIN}"
)
_IN_QUOTES = rf"""(?={_PREFIX}\\{{0,8}}['"`])"""
_VALUE = (
    rf"(?:{_CALL_BEFORE}{_IN_QUOTES}{_PREFIX})?(?:[\[(<]{{1,2}}(?={_QUOTE}))?({_QUOTE}{{0,8}}){_SCHEME}{_QUOTE}{{0,8}}"
    rf"({_PLAIN}{{1,2048}}(?:\\/{_PLAIN}{{1,2048}}){{0,8}}={{0,2}})"
)

_OPTION_START = r"""[ \t"'\\,]-[apPw]['"\\]{0,4}[ \t=,]{0,3}['"\\]{0,6}"""
_OPTION_VALUE = re.compile(f"{_PLAIN}{{1,2048}}".encode())
_LOGIN_START = r"""[ "'\\](?:-u|--user|--proxy-user|-a|--auth)(?:[ =]|%20|\+)?['"\\]{0,6}[A-Za-z0-9_.@-]{1,64}:"""
_COMMANDS = {
    b"a": re.compile(rb"\b(?:redis|valkey)-cli\b"),
    b"p": re.compile(
        rb"\b(?:mysql|mariadb|mongo|docker|podman|nerdctl|helm|skopeo|sshpass|az|twine|7z)"
    ),
    b"P": re.compile(rb"\b(?:sqlcmd|bcp|zip|unzip)\b"),
    b"w": re.compile(rb"\bldap\w+"),
    b":": re.compile(rb"\b(?:curl|xh|https?)\b(?!:)"),
}
"""Commands with an option of one letter for a password; with a colon behind a user's name."""
_LONGEST_COMMAND = 300
"""How far before its option a command may be."""

_NAME_BEFORE = re.compile(rb"[A-Za-z0-9_.-]{0,60}\Z")
_FARTHEST = 460
"""How far behind the beginning of a name a value with the word `value` may be."""
_GIVEN = re.compile(rf"[:=][ \t]{{0,3}}{_QUOTE}{{0,8}}\Z".encode())
_TELLING_KINDS = frozenset({"credential", "password", "login"})
# `request.form.password`, in code.
_ATTRIBUTE = re.compile(rb"[A-Za-z_]\w*(?:\.\w+)*")
# `base64.b64encode(data)`, in code.
_CALL = re.compile(rb"[A-Za-z_]\w*(?:[._]\w+)*(?=\([^()]{0,200}[()])")
_LOGIN_PASSWORD = re.compile(rb"""[^\x00-\x20\x7f"'<>\\`]{1,256}""")
_USER = re.compile(rb"[A-Za-z0-9_.@-]{1,64}\Z")
# What documentation writes for a password.
_STAND_INS = frozenset(b" pass passwd password pw pwd secret mypassword xxx token".split(b" "))
_VARIABLE = re.compile(rb"[$%{<*:].*|[A-Z_]+", re.DOTALL)


def _candidates_with(group: str) -> str:
    """Where a name may be given a value, or a command a password by an option, in RE2's syntax."""
    gaps = "|".join(
        [
            gap.text if gap.exact else f"{gap.text}{_VALUE_START}{{{12 if gap.needs else 6}}}"
            for gap in _GAPS
        ]
    )
    # Counted, the automaton would have a state for each number.
    gaps = _OF_RUNS.sub(lambda count: "*" if count[1] == "0" else "+", gaps)
    options = f"{group}{_LOGIN_START})|{group}{_OPTION_START}){_PLAIN}{{12}}"
    return f"{group}{NAME_IN_TEXT})(?:{gaps})|{options}"


CANDIDATE = _candidates_with("(?:")


def find_assigned(data: bytes, start: int) -> Iterator[Span]:
    """Every secret from `start` on that prose or code gives to the name of one.

    Only opaque values, but for the passwords of connection strings and of curl.
    """
    at = max(0, start - LONGEST_CONTEXT)
    while (candidate := _candidates().search(data, at)) is not None:
        begin, name_end = candidate.span(1)
        if name_end >= 0:
            at = name_end
            span = _assigned_span(data, begin, name_end)
        else:
            at = max(candidate.end(2), candidate.end(3))
            is_login = candidate.start(2) >= 0
            span = (_login_span if is_login else _option_span)(data, candidate.start(), at)
        if span is not None and span.start >= start and PLACEHOLDER.match(data, span.start) is None:
            yield span
            at = max(at, span.end)


def _assigned_span(data: bytes, begin: int, name_end: int) -> Span | None:
    """The secret behind a name that ends there; the name may begin before `begin`."""
    before = _NAME_BEFORE.search(data, max(0, begin - 60), begin)
    first = begin if before is None else before.start()
    name = data[first:name_end].decode("latin-1")
    if data.endswith(b"\\", 0, first) and name_kind(name[1:]):
        # The first letter belongs to an escape, such as `\n`.
        name = name[1:]
    # An option of many words is no field of a header: `--next-token`.
    kind = name_kind(name[2:].replace("-", "_") if name.startswith("--") else name)
    if not kind or (kind == "generic" and name != "--token"):
        return None
    named = _Named(name, kind, first)
    for needs, gap in _gaps_with_values():
        match = gap.match(data, name_end) if named.may_have(needs, data) else None
        if match is None or not named.has(needs, is_quoted=match[1].strip(b"\\") != b""):
            continue
        value = match[2].rstrip(b".:")
        if _is_name(value) or (not match[1] and _is_call(data, *match.span(2))):
            continue
        # In a connection string any value is one: `Server=db;Password=hunter2;`
        between = data.startswith(b";", match.end(2)) or data.endswith(b";", 0, first)
        if is_opaque(value) or (not needs and between and _is_odd_password(value)):
            return span_of(name.lstrip("-").lower(), value, match.start(2) + len(value))
    return None


class _Named(NamedTuple):
    """The name of a secret in a text, its kind, and where it begins."""

    name: str
    kind: Kind
    start: int

    def may_have(self, needs: _Needs, data: bytes) -> bool:
        """Whether the name is what a gap needs, given a value in quotes."""
        if needs in ("telling", "both"):
            return self.tells
        if needs == "either":
            return self.tells or self.kind != "word"
        if needs != "given":
            return True
        behind = data[self.start : self.start + _FARTHEST].lower()
        return (b"value" in behind or b"content" in behind) and (
            _GIVEN.search(data, max(0, self.start - 16), self.start) is not None
        )

    def has(self, needs: _Needs, *, is_quoted: bool) -> bool:
        """Whether the value is what a gap needs, in quotes or not."""
        return (
            is_quoted
            or needs in ("", "any", "telling", "given")
            or (needs == "either" and self.tells)
        )

    @property
    def tells(self) -> bool:
        """Whether nothing but a secret has such a name."""
        is_variable = self.name.isupper() and ("_" in self.name or self.kind != "word")
        return is_variable or self.kind in _TELLING_KINDS or self.name.startswith("--")


def _is_name(value: bytes) -> bool:
    """Whether a value is the name of a secret itself, such as that of a variable."""
    name = value.decode("latin-1")
    if not name.isidentifier():
        return False
    is_variable = name.isupper() and VARIABLE.search(name) is not None
    return is_variable or name_kind(name) in _TELLING_KINDS


def _is_call(data: bytes, start: int, end: int) -> bool:
    call = _CALL.match(data, start)
    return call is not None and call.end() == end


def span_of(label: str, value: bytes, end: int) -> Span:
    """The span of a value that ends there, or of the secret behind an id in it."""
    tail = ID_AND_SECRET.fullmatch(value)
    secret = value if tail is None else tail[1]
    return Span(end - len(secret), end, Secret(label, secret))


def _login_span(data: bytes, begin: int, at: int) -> Span | None:
    """The password behind a user's name and a colon that ends at `at`."""
    password = _LOGIN_PASSWORD.match(data, at)
    if password is None or not _is_of_command(b":", data, begin):
        return None
    user = _USER.search(data, begin, at - 1)
    if user is None or not is_password(password[0], user[0]):
        return None
    return Span(at, password.end(), Secret("login", password[0]))


def _option_span(data: bytes, begin: int, at: int) -> Span | None:
    """The opaque value, which begins at `at`, of an option of one letter."""
    match, letter = _OPTION_VALUE.match(data, at), data[begin + 2 : begin + 3]
    if match is None or not _is_of_command(letter, data, begin):
        return None
    value = match[0].rstrip(b".:")
    return span_of("password", value, at + len(value)) if is_opaque(value) else None


def _is_of_command(option: bytes, data: bytes, begin: int) -> bool:
    return _COMMANDS[option].search(data, max(0, begin - _LONGEST_COMMAND), begin) is not None


def _is_odd_password(text: bytes) -> bool:
    """Whether this is a password, and no word."""
    if text.isdigit() or (_ATTRIBUTE.fullmatch(text) and (b"." in text or text.isalpha())):
        return False
    return is_password(text, b"")


def is_password(text: bytes, user: bytes) -> bool:
    """Whether a text is a password, and not an example from documentation."""
    if text == user or text.lower() in _STAND_INS or _VARIABLE.fullmatch(text):
        return False
    return not is_stand_in(text.decode("utf-8", "replace"))


@cache
def _candidates() -> Any:
    return compile_for_bytes(_candidates_with("(").encode(), max_mem=MAX_AUTOMATON)


@cache
def _gaps_with_values() -> Sequence[tuple[_Needs, re.Pattern[bytes]]]:
    # When they are needed: making them takes a tenth of a start.
    return [
        (gap.needs, re.compile(f"(?:{gap.exact or gap.text}){_VALUE}".encode())) for gap in _GAPS
    ]
