"""A service that speaks Gemini's Live, as the service does: JSON in binary messages."""

import json

from aiohttp import web


async def answer_gemini(socket: web.WebSocketResponse) -> None:
    """Answer each text of a client, which writes in camel case or in snake case."""
    async for message in socket:
        asked = json.loads(message.data)
        if "setup" in asked:
            await socket.send_bytes(b'{"setupComplete":{"sessionId":"s-1"}}')
            continue
        said = asked.get("clientContent") or asked["client_content"]
        text = f"to {said['turns'][0]['parts'][0]['text']}"
        content = {"modelTurn": {"role": "model", "parts": [{"text": text}]}}
        await socket.send_bytes(json.dumps({"serverContent": content}).encode())
        await socket.send_bytes(b'{"serverContent":{"turnComplete":true}}')
    await socket.close()
