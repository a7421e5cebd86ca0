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


CLIENTS = """
from openai import OpenAI

@pytest.fixture(scope="module")
def shared():
    return OpenAI(max_retries=0)

def names(client):
    return [model.id for model in client.models.list().data]

@pytest.mark.vcr
def test_old(shared):
    assert names(OpenAI(api_key="sk-of-the-app-01234567", max_retries=0)) == ["old"]

def test_new(shared):
    assert names(shared) == ["new"]
"""
MODELS = """interactions:
- request: {body: '', headers: {}, method: GET, uri: 'https://api.openai.com/v1/models'}
  response:
    body: {string: '{"object": "list", "data": [{"id": "old"}]}'}
    headers: {Content-Type: [application/json]}
    status: {code: 200, message: OK}
version: 1
"""
NEW_MODELS = """version: '1'
interactions:
  - kind: http
    request: {method: GET, url: 'https://api.openai.com/v1/models'}
    response:
      status_code: 200
      headers: {content-type: application/json}
      text: '{"object": "list", "data": [{"id": "new"}]}'
"""


def _with_models(folder: Path, tests: str) -> None:
    inner.write(folder, tests)
    (folder / "conftest.py").write_text(CONFTEST)
    cassettes = folder / "cassettes/test_it"
    cassettes.mkdir(parents=True)
    (cassettes / "test_old.yaml").write_text(MODELS)
    (cassettes / "test_new.yaml").write_text(NEW_MODELS)


@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "1")], ids=["alone", "xdist"])
def test_a_client_that_a_test_of_vcr_makes_leads_to_the_service_and_a_shared_one_to_tapeway(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    _with_models(tmp_path, CLIENTS)

    done = inner.run(tmp_path, "--tapeway=replay", *workers)

    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "1 replayed" in done.stdout


def test_a_client_made_at_import_fails_a_test_of_vcr_with_what_to_do(tmp_path: Path) -> None:
    _with_models(
        tmp_path,
        """
from openai import OpenAI
client = OpenAI(max_retries=0)

@pytest.mark.vcr
def test_old():
    client.models.list()
""",
    )

    done = inner.run(tmp_path, "--tapeway=replay")

    assert "1 failed" in done.stdout, done.stdout + done.stderr
    assert "make the client in the test" in done.stdout


def test_a_fixture_of_pytest_vcr_counts_as_its_marker(tmp_path: Path) -> None:
    tests = """
@pytest.fixture
def vcr_cassette():
    yield

def test_old(vcr_cassette):
    assert "OPENAI_BASE_URL" not in os.environ
    assert "TAPEWAY_URL" not in os.environ

def test_new():
    assert os.environ["OPENAI_BASE_URL"].startswith(os.environ["TAPEWAY_URL"])
"""
    inner.write(tmp_path, tests)

    done = inner.run(tmp_path, "--tapeway=replay")

    assert "2 passed" in done.stdout, done.stdout + done.stderr
