"""Requests with a credential, in every place where one may be."""

import base64
import gzip
import json
from collections.abc import Callable

from tapeway.core.model.messages import Request
from tests.core.redaction.example_messages import JSON, make_request
from tests.core.redaction.test_known_values import WRITERS

FORM = ((b"content-type", b"application/x-www-form-urlencoded"),)
PARTS = ((b"content-type", b"multipart/form-data; boundary=b"),)
PART = b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n--b--\r\n'
REQUESTS: dict[str, Callable[[str], Request]] = {
    "Bearer": lambda key: make_request((*JSON, (b"Authorization", f"Bearer {key}".encode()))),
    "proxy": lambda key: make_request((*JSON, (b"Proxy-Authorization", f"Bearer {key}".encode()))),
    "x-api-key": lambda key: make_request((*JSON, (b"x-api-key", key.encode()))),
    "api-key": lambda key: make_request((*JSON, (b"api-key", key.encode()))),
    "x-goog-api-key": lambda key: make_request((*JSON, (b"x-goog-api-key", key.encode()))),
    "query": lambda key: make_request(
        target=f"/v1/x?alt=1&api_key={WRITERS['percent-encoded'](key)}"
    ),
    "query of another name": lambda key: make_request(
        target=f"/v1/x?OPENAI_API_KEY={WRITERS['percent-encoded'](key)}&alt=1"
    ),
    "raw query": lambda key: make_request(target=f"/v1/x?alt=1&api_key={key}"),
    "cookie": lambda key: make_request((*JSON, (b"cookie", f"a=b; sid={key}".encode()))),
    "echoed body": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode())), body=json.dumps({"mcp": f"Bearer {key}"}).encode()
    ),
    "echoed field": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode()), (b"accept", f"x; k={key}".encode()))
    ),
    "echoed path": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode())), target=f"/bot{WRITERS['percent-encoded'](key)}/send"
    ),
    "packed body": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode()), (b"content-encoding", b"gzip")),
        body=gzip.compress(json.dumps({"k": key}).encode()),
    ),
    "named field": lambda key: make_request(
        body=json.dumps({"mcp_servers": [{"authorization_token": key}], "note": key}).encode()
    ),
    "named header of a tool": lambda key: make_request(
        body=json.dumps({"tools": [{"headers": {"Authorization": f"Bearer {key}"}}]}).encode(),
        target=f"/x?of={WRITERS['percent-encoded'](key)}",
    ),
    "form field": lambda key: make_request(
        FORM, body=f"a=1&client_secret={WRITERS['percent-encoded'](key)}&b=2".encode()
    ),
    "form field in JSON": lambda key: make_request(
        PARTS, body=PART % (b"payload", json.dumps({"api_key": key}).encode())
    ),
    "part of a form": lambda key: make_request(PARTS, body=PART % (b"api_key", key.encode())),
    "in base64": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode())), body=b'{"k":"%b"}' % base64.b64encode(key.encode())
    ),
    "in a Basic login": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode())),
        body=b'{"k":"Basic %b"}' % base64.b64encode(f"user:{key}".encode()),
    ),
    "in hex": lambda key: make_request(
        (*JSON, (b"x-api-key", key.encode())), target=f"/x/{key.encode().hex()}"
    ),
    "userinfo": lambda key: make_request(
        base=f"https://me:{WRITERS['percent-encoded'](key)}@host/base",
        body=json.dumps({"k": key}).encode(),
    ),
}
