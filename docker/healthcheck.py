"""Ask the admin listener of this container whether tapeway is alive; exit with 1 if it is not.

Reads the same variables as tapeway. A listener that is set by a flag is not seen here.
"""

import os
import socket
import sys
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener

TIMEOUT_S = 2


def main() -> None:
    """Exit 0 when alive, 1 with the reason when not."""
    admin = os.environ.get("TAPEWAY_ADMIN_LISTEN", "127.0.0.1:8081")
    try:
        if admin == "off":
            _connect(os.environ.get("TAPEWAY_LISTEN", "127.0.0.1:8080"))
        else:
            _ask(admin)
    except (URLError, OSError) as exc:
        sys.exit(f"tapeway does not answer: {exc}")


def _ask(listen: str) -> None:
    host, port = _address(listen)
    request = Request(f"http://{host}:{port}/healthz")
    if token := os.environ.get("TAPEWAY_ADMIN_TOKEN"):
        request.add_header("Authorization", f"Bearer {token}")
    # An HTTP_PROXY of the container is for outside addresses, not for its own loopback.
    build_opener(ProxyHandler({})).open(request, timeout=TIMEOUT_S).close()


def _connect(listen: str) -> None:
    host, port = _address(listen)
    socket.create_connection((host.strip("[]"), port), timeout=TIMEOUT_S).close()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return ("127.0.0.1" if host in {"", "0.0.0.0", "[::]"} else host), int(port)


if __name__ == "__main__":
    main()
