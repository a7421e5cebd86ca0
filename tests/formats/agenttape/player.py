"""Plays a cassette with AgentTape itself: `python -m tests.formats.agenttape.player CASSETTE PLAN`.

The plan lists requests, each with the client that makes it; what they got is printed as JSON. There
is no network: what AgentTape has no recording for, it raises.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any

import agenttape
import httpx
import requests


def main(cassette: str, plan: str) -> None:
    """Print what each request of the plan was answered."""
    path = Path(cassette)
    with agenttape.use_cassette(path.name, mode="none", cassette_dir=path.parent, freeze=()):
        found = [_asked(item) for item in json.loads(Path(plan).read_text())]
    sys.stdout.write(json.dumps(found))


def _asked(asked: dict[str, Any]) -> dict[str, Any]:
    body = base64.b64decode(asked["body"])
    headers = {"Content-Type": asked["type"]} if asked["type"] else {}
    client: Any = requests.Session() if asked["client"] == "requests" else httpx.Client()
    content = {"data" if asked["client"] == "requests" else "content": body or None}
    try:
        answer = client.request(asked["method"], asked["url"], headers=headers, **content)
    except (httpx.HTTPError, agenttape.AgentTapeError) as exc:
        return {"error": type(exc).__name__, "message": str(exc)[:2000]}
    return {
        "status": answer.status_code,
        "body": base64.b64encode(answer.content).decode(),
        "cookies": dict(answer.cookies),
        "type": answer.headers.get("content-type"),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
