"""Ask the admin listener of this container whether tapeway is ready; exit with 1 if it is not.

Reads the listeners as tapeway does: variables, then the configuration file, then the image's
defaults. A listener that is set by a flag is not seen here.
"""

import os
import socket
import ssl
import sys
import tomllib
from pathlib import Path
from urllib.error import URLError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

TIMEOUT_S = 2
_TRUE = {"1", "true", "yes", "on"}


def main() -> None:
    """Exit 0 when ready, 1 with the reason when not."""
    try:
        admin = _option("admin_listen", "127.0.0.1:8081")
        if admin == "off":
            _connect(_option("listen", "127.0.0.1:8080"))
        else:
            _ask(admin)
    except (URLError, OSError, ValueError) as exc:
        sys.exit(f"tapeway is not ready: {exc}")


def _option(name: str, default: str) -> str:
    if value := os.environ.get(f"TAPEWAY_{name.upper()}"):
        return value
    config = os.environ.get("TAPEWAY_CONFIG") or "tapeway.toml"
    for file in (config, os.environ.get("TAPEWAY_DEFAULTS")):
        if file and Path(file).is_file():
            keys = tomllib.loads(Path(file).read_text(encoding="utf-8"))
            if found := keys.get(name) or keys.get(name.replace("_", "-")):
                return str(found)
    return default


def _ask(listen: str) -> None:
    host, port = _address(listen)
    scheme = "https" if _option("admin_tls", "false").strip().lower() in _TRUE else "http"
    # An HTTP_PROXY of the container is for outside addresses, not for its own loopback.
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=_any_certificate()))
    opener.open(f"{scheme}://{host}:{port}/readyz", timeout=TIMEOUT_S).close()


def _any_certificate() -> ssl.SSLContext:
    """Trust in whoever answers: the certificate is for the container's name, and no secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _connect(listen: str) -> None:
    host, port = _address(listen)
    socket.create_connection((host.strip("[]"), port), timeout=TIMEOUT_S).close()


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    return ("127.0.0.1" if host in {"", "0.0.0.0", "[::]"} else host), int(port)


if __name__ == "__main__":
    main()
