"""An example of an application: one chat call, to the address in OPENAI_BASE_URL."""

import json
import os
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen

BODY = {
    "model": "gpt-4o-mini",
    "messages": [{"role": "user", "content": "Say hello in one word."}],
}


def main() -> None:
    """Print the origin of the answer, and its text."""
    request = Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps(BODY).encode(),
        headers={
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    try:
        with urlopen(request, timeout=60) as answer:
            said = json.load(answer)["choices"][0]["message"]["content"]
            print(f"{answer.headers['Tapeway-Outcome']}: {said}")
    except HTTPError as exc:
        sys.exit(f"{exc.headers['Tapeway-Outcome']}: {exc.read().decode()}")


if __name__ == "__main__":
    main()
