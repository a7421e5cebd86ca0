"""Pages that Chromium opens inside `tapeway run --tls`, where services are called by their own names."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fork_server
from tests.web.conftest import CHROMIUM, SANDBOX

SHOP, MODELS = "https://shop.example.org", "https://api.openai.com/v1/models"
PROGRAM = """
import http.server, json, os, sys, threading
from playwright.sync_api import sync_playwright

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
ASK = "url => fetch(url).then(answer => answer.text(), () => 'blocked')"
IMAGE = '''url => new Promise(done => { const image = new Image();
    image.onload = image.onerror = () => done(null); image.src = url; })'''
browser, *flags, shop, models = sys.argv[1:]
through = {"server": os.environ["HTTPS_PROXY"], "bypass": "localhost"}
said = {}
with sync_playwright() as client:
    launched = client.chromium.launch(executable_path=browser, args=flags, proxy=through)
    tab = launched.new_page(ignore_https_errors=True)
    tab.goto(f"http://localhost:{server.server_port}/")
    said["local page"] = tab.evaluate(ASK, models)
    tab.evaluate("url => { location.href = url }", shop + "/")
    tab.wait_for_url(shop + "/")
    said["link"] = tab.inner_text("body")
    said["own service"] = tab.evaluate(ASK, shop + "/api")
    said["other service"] = tab.evaluate(ASK, models)
    tab.evaluate(IMAGE, models + "?image")
print(json.dumps(said))
"""


def recorded(route: str, url: str, text: str) -> dict[str, object]:
    """A recording of a service that lets every page read what it answers."""
    headers = {"Content-Type": "text/html", "Access-Control-Allow-Origin": "*"}
    return {
        "kind": "http",
        "request": {"method": "GET", "url": url, "headers": {}, "route": route},
        "response": {"status_code": 200, "headers": headers, "json": text},
    }


@pytest.mark.parametrize(
    ("options", "other"),
    [((), "blocked"), (("--allow-origin", SHOP), '"the models"')],
    ids=["by default", "with the option"],
)
def test_a_page_of_a_service_calls_its_own_service_and_no_other(
    tmp_path: Path, options: tuple[str, ...], other: str
) -> None:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    interactions = [
        recorded("shop", f"{SHOP}/", "the shop"),
        recorded("shop", f"{SHOP}/api", "the api"),
        recorded("openai", MODELS, "the models"),
        recorded("openai", f"{MODELS}?image", "no image"),
    ]
    head = {"version": "1", "created_at": "", "run_id": "r", "meta": {}}
    (tmp_path / "default.json").write_text(json.dumps({**head, "interactions": interactions}))
    (tmp_path / "program.py").write_text(PROGRAM)

    ended = subprocess.run(
        [
            *(*fork_server.command(), "run", "--tls", "--offline", f"--store={tmp_path}"),
            *("--route", f"shop={SHOP}", f"--report={tmp_path}/report.json", *options),
            *("--", sys.executable, str(tmp_path / "program.py"), CHROMIUM, *SANDBOX),
            *(SHOP, MODELS),
        ],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert ended.stdout, ended.stderr
    assert json.loads(ended.stdout) == {
        "local page": '"the models"',
        "link": '"the shop"',
        "own service": '"the api"',
        "other service": other,
    }, ended.stderr
    [report] = json.loads((tmp_path / "report.json").read_text())["cassettes"]
    image_was_served = not [
        unused for unused in report["unused"] if "?image" in unused.get("path", "")
    ]
    assert image_was_served == bool(options)
    assert ("--allow-origin https://shop.example.org serves it" in ended.stderr) != bool(options)
