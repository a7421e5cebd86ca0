"""VCR.py's plugins and tapeway's in one environment: each answers the tests that are its own."""

from pathlib import Path

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
