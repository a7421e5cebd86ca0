"""A service that hands out addresses of its own and a cookie, as several services do."""

import http.server
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.serving_thread import serving

RESULT = {
    "custom_id": "one",
    "result": {
        "type": "succeeded",
        "message": {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [{"type": "text", "text": "hello"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
    },
}


class _Service(http.server.BaseHTTPRequestHandler):
    """Hands out addresses of its own, as several services do."""

    protocol_version = "HTTP/1.1"
    asked_for: list[str]

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def log_message(self, *_: object) -> None: ...

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.asked_for.append(self.path)
        fields, body = self._answer(f"http://127.0.0.1:{self.server.server_port}")  # type: ignore[attr-defined]
        status = 401 if "X-Out" in fields else 200
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **fields}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer(self, own: str) -> tuple[dict[str, str], bytes]:
        path, command = self.path.partition("?")[0], self.headers.get("X-Goog-Upload-Command")
        if command == "start":
            url = f"{own}/upload/v1beta/files?upload_id=abc&upload_protocol=resumable"
            return {"X-Goog-Upload-Status": "active", "X-Goog-Upload-URL": url}, b"{}"
        if command is not None:
            file = {"file": {"name": "files/abc", "state": "ACTIVE"}}
            return {"X-Goog-Upload-Status": "final"}, json.dumps(file).encode()
        if path.endswith("/results"):
            return {"Content-Type": "application/x-jsonl"}, json.dumps(RESULT).encode() + b"\n"
        if path.startswith("/v1/messages/batches"):
            return {}, json.dumps(_batch(own)).encode()
        if path == "/app/login":
            return {"Set-Cookie": "sid=s1; Path=/app; Secure; Domain=app.example"}, b'"welcome"'
        if path == "/app/me":
            known = "sid=s1" in (self.headers.get("Cookie") or "")
            return {} if known else {"X-Out": "1"}, b'"me"' if known else b'"who?"'
        if path == "/items" and "page=2" not in self.path:
            return {"Link": f'<{own}/items?page=2>; rel="next"'}, b"[1]"
        return {}, b"[2]"


def _batch(own: str) -> dict[str, Any]:
    counts = dict.fromkeys(("canceled", "errored", "expired", "processing"), 0)
    return {
        "id": "msgbatch_1",
        "type": "message_batch",
        "processing_status": "ended",
        "request_counts": {**counts, "succeeded": 1},
        "created_at": "2026-01-01T00:00:00Z",
        "expires_at": "2026-01-02T00:00:00Z",
        "ended_at": "2026-01-01T01:00:00Z",
        "archived_at": None,
        "cancel_initiated_at": None,
        "results_url": f"{own}/v1/messages/batches/msgbatch_1/results",
    }


@contextmanager
def service() -> Iterator[tuple[str, list[str]]]:
    """The URL of a service that hands out addresses and cookies, and the targets it was asked for."""
    asked_for: list[str] = []
    handler = type("Handler", (_Service,), {"asked_for": asked_for})
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}", asked_for
