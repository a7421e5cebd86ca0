"""Streams in the dialects of the providers: what comes first, and what ends them."""

from tests.support.event_stream_frames import frame, model_frame

SSE = b"text/event-stream; charset=utf-8"
NDJSON = b"application/x-ndjson"
FRAMES = b"application/vnd.amazon.eventstream"

CHAT = b'data: {"choices":[{"delta":{"content":"[DONE] \\"error\\""}}]}\n\n'
PING = b'event: ping\ndata: {"type":"ping"}\n\n'
DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","t":"message_stop"}\n\n'
ANSWER = b'event: response.created\ndata: {"type":"response.created","response":{"error":null}}\n\n'
LINE = b'{"message":{"content":"\\"done\\":true"},"done":false}\n'
EVENT = frame("contentBlockDelta", b'{"delta":{"text":"metadata"}}')

# Endpoint, media type, what comes first, what ends the stream.
STREAMS: dict[str, tuple[str, bytes, bytes, bytes]] = {
    "chat": ("chat.completions", SSE, CHAT * 2, b"data: [DONE]\n\n"),
    "chat without a space": ("chat.completions", SSE, CHAT, b"data:[DONE]\n\n"),
    "chat with CRLF and comments": (
        *("chat.completions", SSE),
        b": OPENROUTER PROCESSING\r\n\r\n" + CHAT.replace(b"\n", b"\r\n"),
        b"data: [DONE]\r\n\r\n",
    ),
    "chat with CR alone": ("completions", SSE, CHAT.replace(b"\n", b"\r"), b"data: [DONE]\r\r"),
    "chat behind a byte order mark": (
        *("chat.completions", SSE, b"\xef\xbb\xbf" + CHAT, b"data: [DONE]\n\n"),
    ),
    "a lone end": ("chat.completions", SSE, b"", b"data: [DONE]\n\n"),
    "responses": (
        *("responses", SSE, ANSWER),
        b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    ),
    "responses that stop early": (
        *("responses", SSE, ANSWER),
        b'event: response.incomplete\ndata: {"type":"response.incomplete"}\n\n',
    ),
    "responses without names": (
        *("responses", SSE, b'data: {"type":"response.created"}\n\n'),
        b'data: {"type":"response.completed"}\n\n',
    ),
    "responses with more behind": (
        *("responses", SSE, ANSWER),
        b'event: response.completed\ndata: {"type":"response.completed"}\n\ndata: [DONE]\n\n',
    ),
    "anthropic": (
        *("messages", SSE, DELTA + PING),
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ),
    "cohere": (
        *("chat", SSE, b'event: content-delta\ndata: {"type":"content-delta"}\n\n'),
        b'event: message-end\ndata: {"type":"message-end"}\n\n',
    ),
    "cohere's lines": (
        *("chat", b"application/stream+json", b'{"event_type":"text-generation"}\n'),
        b'{"event_type":"stream-end"}\n',
    ),
    "ollama": ("api.chat", NDJSON, LINE * 2, b'{"done":true,"eval_count":1}\n'),
    "ollama without a last line end": ("api.generate", NDJSON, LINE, b'{"done":true}'),
    "bedrock": ("converse-stream", FRAMES, EVENT + frame("messageStop"), frame("metadata")),
    "bedrock's models": (
        *("invoke-with-response-stream", FRAMES, model_frame({"type": "message_delta"})),
        model_frame({"type": "message_stop", "amazon-bedrock-invocationMetrics": {}}),
    ),
}
ERRORS: dict[str, tuple[str, bytes, bytes, bytes]] = {
    "groq": ("chat.completions", SSE, CHAT, b'event: error\ndata: {"error":{"message":"x"}}\n\n'),
    "openrouter": ("chat.completions", SSE, CHAT, b'data: {"error":{"code":502}}\n\n'),
    "anthropic": (
        *("messages", SSE, DELTA, b'event: error\ndata: {"type":"error","error":{"type":"x"}}\n\n'),
    ),
    "responses": (
        *("responses", SSE, ANSWER),
        b'event: response.failed\ndata: {"type":"response.failed"}\n\n',
    ),
    "responses, a plain error": (
        *("responses", SSE, ANSWER, b'event: error\ndata: {"type":"error","code":"x"}\n\n'),
    ),
    "gemini": ("streamGenerateContent", SSE, b"", b'data: {"error":{"code":503}}\r\n\r\n'),
    "ollama": ("api.chat", NDJSON, LINE, b'{"error":"out of memory"}\n'),
    "bedrock": (
        *("converse-stream", FRAMES, EVENT),
        frame("throttlingException", message="exception"),
    ),
    "bedrock's models": (
        *("invoke-with-response-stream", FRAMES, EVENT, model_frame({"type": "error"})),
    ),
}
