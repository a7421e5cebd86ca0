"""An upstream whose streamed answer comes word by word, when the test says so."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue

from tests.support.serving_thread import serving


class SlowUpstream:
    """Sends an event for each word that it is given, and the end mark for None."""

    def __init__(self) -> None:
        self.words: SimpleQueue[str | None] = SimpleQueue()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def say(self, *words: str | None) -> None:
        for word in words:
            self.words.put(word)

    @contextmanager
    def serving(self) -> Iterator["SlowUpstream"]:
        with serving(self._server):
            try:
                yield self
            finally:
                self.say(None)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        words = self.words

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                while (word := words.get()) is not None:
                    choice = {"index": 0, "delta": {"content": word}}
                    self._chunk(f"data: {json.dumps({'choices': [choice]})}\n\n")
                self._chunk("data: [DONE]\n\n")
                self.wfile.write(b"0\r\n\r\n")

            def _chunk(self, text: str) -> None:
                self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing on stderr."""

        return Handler
