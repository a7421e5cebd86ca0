"""What is found inside base64 and percent-encoding, and what stays as it was written."""

import base64
import json
import random
import re
import zlib
from collections.abc import Callable
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapeway.core.json_text import Json
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.findings import find_replaced, find_secrets
from tapeway.core.redaction.known_values import KnownValues
from tapeway.core.redaction.redactor import Redactor
from tests.core.redaction.example_messages import JSON, SALT, make_request, make_response
from tests.core.redaction.key_kinds import KEYS
from tests.core.redaction.planted import pattern_secrets

KNOWN = "Qz7hT2kP9xL4/vT8wR1sY6nB3+cH5jD0gA7eU2iO9p="
SHAPED = KEYS["OpenAI project"]
REDACTOR = Redactor(SALT, [Secret("x", KNOWN.encode())])
PLACEHOLDER = re.compile(rb"REDACTED\.[a-z_-]+?-*\.[a-p]{8}")

Code = Callable[[bytes], bytes]
Decode = Callable[[bytes], bytes]


def in_lines(octets: bytes) -> bytes:
    return base64.encodebytes(octets).replace(b"\n", b"\r\n")


def unpadded(octets: bytes) -> bytes:
    return base64.urlsafe_b64encode(octets).rstrip(b"=")


def padded(text: bytes) -> bytes:
    return base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))


CODINGS: dict[str, tuple[Code, Decode]] = {
    "base64": (base64.b64encode, base64.b64decode),
    "base64 for URLs": (base64.urlsafe_b64encode, base64.urlsafe_b64decode),
    "base64 without padding": (unpadded, padded),
    "base64 in lines": (in_lines, base64.b64decode),
    "base64 twice": (
        lambda octets: base64.b64encode(base64.b64encode(octets)),
        lambda text: base64.b64decode(base64.b64decode(text)),
    ),
    "base64 in percent-encoding": (
        lambda octets: quote(base64.b64encode(octets), safe="").encode(),
        lambda text: base64.b64decode(unquote(text.decode())),
    ),
}


def stored(body: bytes) -> bytes:
    response = REDACTOR.response(make_response(body)).body
    assert REDACTOR.request(make_request(body=body)).body == response
    assert REDACTOR.response(make_response(response)).body == response
    return response


@pytest.mark.parametrize("coding", CODINGS)
@given(
    st.sampled_from(
        [KNOWN, SHAPED, KEYS["AWS key id"], KEYS["private key"], KEYS["JSON web token"]]
    ),
    st.binary(max_size=40),
    st.binary(max_size=40),
)
def test_a_secret_in_an_encoding_is_replaced_and_the_rest_is_decoded_as_before(
    coding: str, secret: str, before: bytes, behind: bytes
) -> None:
    encode, decode = CODINGS[coding]
    body = json.dumps({"file": encode(before + b" " + secret.encode() + b" " + behind).decode()})
    document = json.loads(stored(body.encode()))
    decoded = decode(document["file"].encode())

    assert secret.encode() not in decoded
    assert PLACEHOLDER.sub(b"*", decoded) == before + b" * " + behind


@given(pattern_secrets, st.sampled_from(["data:text/plain;base64,{}", "/files/{}/content", "x_{}"]))
def test_base64_begins_anywhere(secret: str, around: str) -> None:
    text = around.format(base64.urlsafe_b64encode(f"{{{secret}}}".encode()).decode())
    body = stored(json.dumps({"url": text}).encode())

    assert base64.urlsafe_b64encode(f"{{{secret}}}".encode())[:40] not in body
    assert find_secrets(text.encode(), KnownValues())


@pytest.mark.parametrize("escape", [r"\/", r"\\/", r"\\\/"])
def test_base64_with_escaped_slashes_is_read(escape: str) -> None:
    octets = b"\xff" * 30 + b" " + SHAPED.encode() + b" " + b"\xff" * 30
    body = b'{"a":"%b"}' % base64.b64encode(octets).replace(b"/", escape.encode())
    text = stored(body)[6:-2].replace(escape.encode(), b"/")

    assert PLACEHOLDER.sub(b"*", base64.b64decode(text)) == octets.replace(SHAPED.encode(), b"*")


def test_names_count_in_base64() -> None:
    state = base64.b64encode(b'{"user":"ada","access_token":"Zk3vQ9xT2mB7pL5c"}').decode()
    body = stored(json.dumps({"state": state, "note": "Zk3vQ9xT2mB7pL5c"}).encode())
    document = json.loads(body)

    assert b"Zk3v" not in body
    assert json.loads(base64.b64decode(document["state"]))["user"] == "ada"
    assert document["note"].startswith("REDACTED.access_token.")


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("secret", [KNOWN, SHAPED, KEYS["Azure AD client secret"]])
def test_what_is_percent_encoded_is_found_in_targets_headers_and_bodies(
    secret: str, times: int
) -> None:
    text = "".join([f"%{octet:02X}" for octet in f"{secret[:20]}".encode()]) + quote(secret[20:])
    for _ in range(times - 1):
        text = quote(text, safe="")
    target = REDACTOR.target(f"/x?next={text}&page=2")
    headers = (*JSON, (b"x-echo", text.encode()))
    response = REDACTOR.response(make_response(json.dumps(text).encode(), headers=headers))

    assert re.fullmatch(r"/x\?next=REDACTED\.[a-z-]+\.[a-p]{8}&page=2", target)
    assert re.fullmatch(rb"REDACTED\.[a-z-]+\.[a-p]{8}", response.headers[1][1])
    assert re.fullmatch(rb'"REDACTED\.[a-z-]+\.[a-p]{8}"', response.body)


def test_fields_named_in_a_percent_encoded_document_count() -> None:
    document = quote(json.dumps({"api_key": "Zk3vQ9xT2mB7pL5c", "page": 1}))
    form = ((b"content-type", b"application/x-www-form-urlencoded"),)
    body = REDACTOR.request(make_request(form, body=f"payload={document}&x=1".encode())).body

    assert b"Zk3v" not in body
    assert json.loads(unquote(body.decode())[len("payload=") : -len("&x=1")])["page"] == 1


def png(draw: random.Random) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    pixels = zlib.compress(b"".join([b"\0" + draw.randbytes(300) for _ in range(100)]))
    text = chunk(b"tEXt", b"Comment\0made with a program, see https://example.com/a?b=c")
    head = chunk(b"IHDR", (100).to_bytes(4) + (100).to_bytes(4) + b"\x08\x02\0\0\0")
    return b"\x89PNG\r\n\x1a\n" + head + text + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def pdf(draw: random.Random) -> bytes:
    packed = zlib.compress(draw.randbytes(3000))
    return (
        b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n"
        + b"4 0 obj\n<< /Length %d /Filter /FlateDecode >>\nstream\n" % len(packed)
        + packed
        + b"\nendstream\nendobj\ntrailer\n<< /Size 5 /ID [<%b> <%b>] /Key (a) >>\n%%%%EOF"
        % (draw.randbytes(16).hex().encode(), draw.randbytes(16).hex().encode())
    )


def harmless(number: int) -> str:
    draw = random.Random(number)
    octets = (png(draw), pdf(draw), draw.randbytes(draw.randrange(4000)))[number % 3]
    encode = [base64.b64encode, base64.urlsafe_b64encode, in_lines, unpadded][number % 4]
    words = ["the", "quick", "brown-fox", "over_the_lazy", "dog/and/cat", "%20", "100%", "a%2Fb"]
    return json.dumps(
        {
            "image": f"data:image/png;base64,{encode(octets).decode()}",
            "ids": [f"toolu_{draw.getrandbits(120):x}", f"{draw.getrandbits(128):032x}"],
            "token": unpadded(draw.randbytes(24)).decode(),
            "text": " ".join(draw.choices(words, k=40)),
            "url": "https://example.com/" + quote(" ".join(draw.choices(words, k=9))),
        }
    )


@pytest.mark.parametrize("number", range(24))
def test_pictures_documents_ids_and_links_stay_byte_for_byte(number: int) -> None:
    body = harmless(number).encode()

    assert stored(body) == body
    assert find_secrets(body, KnownValues()) == []


@pytest.mark.parametrize("coding", CODINGS)
def test_a_scan_names_what_is_found_in_an_encoding_and_shows_its_beginning_alone(
    coding: str,
) -> None:
    encode, _ = CODINGS[coding]
    before: Json = {"text": encode(f"see {SHAPED}!".encode()).decode()}
    after: Json = json.loads(stored(json.dumps(before).encode()))
    [finding] = find_replaced(before, after)

    assert (finding.place, finding.kind) == (("text",), "openai-key")
    assert len(finding.prefix) <= 4
    assert find_secrets(json.dumps(after).encode(), KnownValues()) == []


@pytest.mark.parametrize(
    "text", ["/", "\\", "A", "%", "%25", "a\\/", "AAAA\\n", "A" * 30 + "\n", "%41%20", "\\/A"]
)
def test_looking_into_encodings_takes_no_more_than_time_linear_in_the_length(text: str) -> None:
    body = text.encode() * 100_000

    assert REDACTOR.value(body) == body


@pytest.mark.parametrize("size", [4096, 100_000, 256 * 1024])
@pytest.mark.parametrize("secret", [KNOWN, SHAPED])
def test_base64_in_a_body_that_comes_in_parts_is_read_wherever_a_part_begins(
    size: int, secret: str
) -> None:
    draw = random.Random(f"{size} {secret}")
    octets = draw.randbytes(draw.randrange(300_000)) + b" %b " % secret.encode()
    octets = b"".join([octets, draw.randbytes(200_001), b" %b " % secret.encode(), bytes(400)])
    body = b'{"file":"%b"}' % base64.b64encode(octets)
    redacting = REDACTOR.stream(b"text/plain")
    pieces = [redacting.feed(body[at : at + size]) for at in range(0, len(body), size)]
    file = json.loads(b"".join([*pieces, redacting.finish()]))["file"]

    assert PLACEHOLDER.sub(b"*", base64.b64decode(file)) == octets.replace(secret.encode(), b"*")


@pytest.mark.parametrize("shift", range(4))
@pytest.mark.parametrize("url_safe", [False, True])
def test_a_short_key_is_found_wherever_it_begins_in_a_short_run(
    *, shift: int, url_safe: bool
) -> None:
    rng, key = random.Random(shift), KEYS["AWS key id"].encode()
    for before in range(12):
        octets = rng.randbytes(before) + b" " + key + b" " + rng.randbytes(rng.randrange(9))
        encoded = base64.b64encode(octets).rstrip(b"=")
        run = b"x" * shift + (
            encoded.translate(bytes.maketrans(b"+/", b"-_")) if url_safe else encoded
        )
        body = json.dumps({"file": run.decode()}).encode()

        redacted = REDACTOR.response(make_response(body)).body

        assert key not in base64.b64decode(
            json.loads(redacted)["file"][shift:] + "===", altchars=b"-_" if url_safe else None
        )
