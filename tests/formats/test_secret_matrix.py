"""No carrier and no format lets a secret into what is written, and a scan finds what is there."""

import json
import random
import string
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tapeway.core.http.content_codings import readable_response
from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.model.messages import Request, Response
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.known_values import KnownValues, issued_credentials
from tapeway.core.streams import aws_frames
from tapeway.core.streams.streamed_texts import StreamedTexts, may_be_stream
from tapeway.formats.native.document import encode
from tapeway.formats.native.secret_scan import SecretScanner, decode_changed
from tapeway.formats.registry import WRITTEN
from tests.formats.secret_carriers import (
    REQUESTS,
    RESPONSES,
    all_carriers,
    answered,
    posted,
)
from tests.support.canary import canary, sightings

SALT = "run-1"


def letters(draw: random.Random, count: int) -> str:
    return "".join(draw.choices(string.ascii_letters + string.digits, k=count))


def planted(kind: str) -> tuple[str, str]:
    """A secret of a kind, and a text with it."""
    draw = random.Random(kind)
    match kind:
        case "known" | "environment":
            secret = canary()
        case "shaped":
            secret = f"sk-proj-{letters(draw, 48)}"
        case _:
            secret = f"{letters(draw, 12)}/{letters(draw, 14)}+{letters(draw, 8)}"
    texts = {
        "assigned": f"export OPENAI_API_KEY={secret} && run it",
        "field": json.dumps({"user": "ada", "access_token": secret, "n": 1}),
    }
    return secret, texts.get(kind, f"It is {secret}, is it not?")


KINDS = ("known", "environment", "shaped", "assigned", "field")


def exchange(kind: str, side: str, name: str, secret: str, text: str) -> tuple[Request, Response]:
    request = REQUESTS[name](text) if side == "request" else posted({"q": "hello"})
    if kind == "known":
        login = (b"Authorization", f"Bearer {secret}".encode())
        request = replace(request, headers=(*request.headers, login))
    return request, RESPONSES[name](text) if side == "response" else answered({"a": 1})


def environment(kind: str, secret: str) -> list[Secret]:
    return [Secret("env", secret.encode())] if kind == "environment" else []


def recorded(request: Request, response: Response, known: list[Secret]) -> Interaction:
    """The exchange as a recorder stores it."""
    redaction = RequestRedaction(known)
    stored, secrets = redaction.redact_and_learn(SALT, request)
    redactor = redaction.redactor_of(SALT, (*secrets, *issued_credentials(response.head)))
    return Interaction(0, stored, redactor.response(readable_response(response, request.method)))


def pages(item: Interaction) -> Iterator[tuple[str, bytes]]:
    """Each format's file with this one interaction, and the texts that its events add up to."""
    cassette = StoredCassette(CassetteHead("", SALT, {}), (item,))
    for known in WRITTEN:
        if known.save is not None:
            yield known.name, known.save(cassette).text
    body, media = item.response.body, item.response.head.value(b"content-type") or b""
    if media == aws_frames.MEDIA_TYPE:
        body = b"".join([frame.text + b"\n" for frame in aws_frames.parse_frames(body)])
        media = b"application/x-ndjson"
    if may_be_stream(body, media):
        texts = ["".join([text for text, _, _ in word]) for word in StreamedTexts(body, media)]
        yield "the texts of its events", "\n".join(texts).encode()


def parts(secret: str) -> dict[str, str]:
    """Overlapping parts of a secret: none of them may be left either."""
    return {f"from {at}": secret[at : at + 14] for at in range(0, len(secret) - 13, 13)}


@pytest.mark.parametrize(("side", "name"), all_carriers())
def test_no_carrier_and_no_format_lets_a_secret_through(side: str, name: str) -> None:
    for kind in KINDS:
        secret, text = planted(kind)
        request, response = exchange(kind, side, name, secret, text)
        item = recorded(request, response, environment(kind, secret))

        assert sightings(parts(secret), dict(pages(item))) == [], kind


@pytest.mark.parametrize(("side", "name"), all_carriers())
def test_a_scan_finds_what_a_recorder_replaces_and_leaves_nothing(side: str, name: str) -> None:
    for kind in KINDS:
        secret, text = planted(kind)
        request, response = exchange(kind, side, name, secret, text)
        item = Interaction(0, request, response)
        scanner = SecretScanner(SALT, KnownValues(environment(kind, secret)))
        found = scanner.interaction(item, encode(item))
        clean = decode_changed(item, found.document)

        assert found.findings, kind
        assert isinstance(clean, Interaction)
        assert sightings(parts(secret), dict(pages(clean))) == [], kind
        assert scanner.interaction(clean, encode(clean)).findings == (), kind
