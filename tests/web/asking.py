"""Requests through a proxy, as a client of OpenAI's API sends them."""

import json
import urllib.request
from urllib.error import HTTPError

MODEL = "gpt-5.5"


def ask(url: str, words: str, **more: object) -> str:
    """The outcome of a chat request to the proxy at this URL."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": words}], **more}
    request = urllib.request.Request(  # noqa: S310 - our own
        f"{url}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": "Bearer sk-0123456789abcdef"},
    )
    try:
        with urllib.request.urlopen(request) as response:  # noqa: S310 - our own
            response.read()
            return str(response.headers["Tapeway-Outcome"])
    except HTTPError as error:
        with error:
            return str(error.headers["Tapeway-Outcome"])
