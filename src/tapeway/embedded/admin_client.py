"""Calls the admin API of a tapeway, blocking, with the standard library alone."""

import json
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

_TIMEOUT_S = 600.0
"""An eject waits for recordings in flight."""


class DeckError(Exception):
    """A tapeway did not start or refused a call; `code` is the stable code of the error."""

    def __init__(self, message: str, code: str = "unreachable", status: int = 0) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class AdminClient:
    """The admin API at a URL. Threads may share a client; each call opens a connection."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        certificate: str | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        """`certificate` is a file with tapeway's certificate; without it, authorities decide."""
        self.url = url.rstrip("/")
        self._token = token
        self._certificate = certificate
        self._timeout_s = timeout_s

    def call(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """The parsed answer of a call below `/api/v1/`. Raises DeckError."""
        return json.loads(self.text(method, path, body, **query))

    def text(self, method: str, path: str, body: object = None, **query: object) -> str:
        """The answer as a text. Raises DeckError."""
        given = {name: value for name, value in query.items() if value is not None}
        target = f"/api/v1/{path}" + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        content = None
        if body is not None:
            content = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        status, answer = self._exchange(method, target, content, headers)
        if status >= 400:
            raise _refusal(status, answer)
        return answer.decode()

    def _exchange(
        self, method: str, target: str, content: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        try:
            parts = urlsplit(self.url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https"):
            raise DeckError(
                f"{self.url!r} is no URL of an admin API: write it as http://127.0.0.1:8081",
                "bad_url",
            )
        connection = HTTPConnection(host, port, timeout=self._timeout_s)
        try:
            if parts.scheme == "https":
                tls = _trusting(self._certificate)
                connection = HTTPSConnection(host, port, timeout=self._timeout_s, context=tls)
            connection.request(method, parts.path + target, content, headers)
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, HTTPException) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
            raise DeckError(f"tapeway does not answer at {self.url}: {reason}") from exc
        finally:
            connection.close()


def _trusting(certificate: str | None) -> ssl.SSLContext:
    """Trust in the system's authorities, or in one certificate alone, under any host name."""
    if certificate is None:
        return ssl.create_default_context()
    context = ssl.create_default_context(cafile=certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


def segment(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def _refusal(status: int, answer: bytes) -> DeckError:
    try:
        error = json.loads(answer)["error"]
        return DeckError(error["message"], error["code"], status)
    except (ValueError, KeyError, TypeError):
        return DeckError(f"tapeway answered {status}", "http", status)
