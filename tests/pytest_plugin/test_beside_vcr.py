"""VCR.py's plugins and tapeway's in one environment: each answers the tests that are its own."""

from pathlib import Path

import pytest

from tests.pytest_plugin import inner

# As pytest-recording does for each test with its marker.
CONFTEST = """
import pytest
import vcr as vcrpy

def pytest_configure(config):
    config.addinivalue_line("markers", "vcr: Mark the test as using VCR.py.")

@pytest.fixture(autouse=True)
def vcr(request):
    if request.node.get_closest_marker("vcr") is None:
        yield None
        return
    with vcrpy.use_cassette("cassettes/test_it/test_old.yaml", record_mode="none") as cassette:
        yield cassette
"""
TESTS = """
@pytest.mark.vcr
def test_old(vcr):
    with urllib.request.urlopen("http://old.invalid/x") as response:
        assert response.read() == b"old"
    assert vcr.play_count == 1

def test_new():
    with urllib.request.urlopen(BASE + "/things") as response:
        assert response.read() == b"new"
"""
OLD = """interactions:
- request: {body: null, headers: {}, method: GET, uri: 'http://old.invalid/x'}
  response: {body: {string: old}, headers: {}, status: {code: 200, message: OK}}
version: 1
"""
NEW = """version: '1'
interactions:
  - kind: http
    request: {method: GET, url: 'https://api.openai.com/v1/things'}
    response: {status_code: 200, text: new}
"""


def test_each_plugin_answers_its_own_tests(tmp_path: Path) -> None:
    inner.write(tmp_path, TESTS)
    (tmp_path / "conftest.py").write_text(CONFTEST)
    cassettes = tmp_path / "cassettes/test_it"
    cassettes.mkdir(parents=True)
    (cassettes / "test_old.yaml").write_text(OLD)
    (cassettes / "test_new.yaml").write_text(NEW)

    done = inner.run(tmp_path, "--tapeway=replay")

    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "1 replayed" in done.stdout
    assert (cassettes / "test_old.yaml").read_text() == OLD


CHAT = """interactions:
- request:
    body: '{"messages": [{"role": "user", "content": "How many legs?"}], "model": "gpt-4o"}'
    headers: {content-type: [application/json]}
    method: POST
    uri: https://api.openai.com/v1/chat/completions
  response:
    body: {string: '{"id": "c", "object": "chat.completion", "created": 1, "model": "gpt-4o", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "8"}}]}'}
    headers: {content-type: [application/json]}
    status: {code: 200, message: OK}
version: 1
"""
MODELS = '{"object": "list", "data": []}'
SDK = """
import os, pytest
from openai import OpenAI

def ask(client):
    question = {"role": "user", "content": "How many legs?"}
    answer = client.chat.completions.create(model="gpt-4o", messages=[question])
    return answer.choices[0].message.content
"""
MARKED = f"""{SDK}
@pytest.fixture(scope="class")
def client():
    return OpenAI()

@pytest.fixture(scope="module")
def shared():
    return os.environ.get("OPENAI_BASE_URL")

class TestOld:
    pytestmark = pytest.mark.vcr

    def test_old(self, client, shared):
        assert ask(client) == "8"
        assert "OPENAI_BASE_URL" not in os.environ
        assert "/@~" in shared

def test_new(shared):
    assert OpenAI().models.list().data == []
    assert os.environ["OPENAI_BASE_URL"] == shared
"""


def sdk_project(folder: Path, tests: str) -> None:
    """A project with a cassette of VCR.py, and one of tapeway."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    cassettes = folder / "cassettes/test_it"
    cassettes.mkdir(parents=True)
    (cassettes / "test_old.yaml").write_text(CHAT)
    models = NEW.replace("/things", "/models").replace("text: new", f"text: '{MODELS}'")
    (cassettes / "test_new.yaml").write_text(models)


@pytest.mark.parametrize("options", [(), ("-n1",)], ids=["alone", "xdist"])
def test_a_test_that_vcr_answers_keeps_its_environment(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    sdk_project(tmp_path, MARKED)

    done = inner.run(tmp_path, "--tapeway=replay", *options, OPENAI_API_KEY="of-the-app")

    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "1 replayed" in done.stdout
    assert "not used" not in done.stdout


def test_a_client_of_a_module_that_leads_to_tapeway_is_named(tmp_path: Path) -> None:
    sdk_project(
        tmp_path,
        f"{SDK}\nclient = OpenAI(max_retries=0)\n\n@pytest.mark.vcr\n"
        "def test_old():\n    assert ask(client) == '8'\n",
    )

    done = inner.run(tmp_path, "--tapeway=replay", OPENAI_API_KEY="of-the-app")

    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "the client was built with the address of tapeway" in done.stdout


def test_a_marker_of_tapeway_comes_before_that_of_vcr(tmp_path: Path) -> None:
    sdk_project(
        tmp_path,
        f"{SDK}\n@pytest.mark.vcr\n@pytest.mark.tapeway(mode='replay')\n"
        "def test_new():\n    assert '/@~' in os.environ['OPENAI_BASE_URL']\n",
    )

    done = inner.run(tmp_path, "--tapeway=replay")

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_marker_of_vcr_that_nothing_registers_leaves_the_test_to_tapeway(tmp_path: Path) -> None:
    sdk_project(
        tmp_path,
        f"{SDK}\n@pytest.mark.vcr\n@pytest.mark.filterwarnings('ignore')\n"
        "def test_new():\n    assert OpenAI().models.list().data == []\n",
    )
    (tmp_path / "conftest.py").unlink()

    done = inner.run(tmp_path, "--tapeway=replay")

    assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert "1 replayed" in done.stdout
