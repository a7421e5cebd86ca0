"""tapeway in a container, from Python: pip install pytest openai testcontainers tapeway-pytest.

The cassettes of the repository are mounted, and each test replays from the cassette it names.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI
from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs

IMAGE = os.environ.get("TAPEWAY_IMAGE", "tapeway")
CASSETTES = Path(__file__).parent / "cassettes"


@pytest.fixture(scope="session")
def proxy() -> Iterator[str]:
    """The URL of the proxy."""
    container = (
        DockerContainer(IMAGE)
        .with_env("TAPEWAY_MODE", os.environ.get("TAPEWAY_MODE", "replay"))
        .with_volume_mapping(str(CASSETTES), "/cassettes", "rw")
        .with_exposed_ports(8080)
    )
    with container:
        wait_for_logs(container, '"event":"ready"')
        yield f"http://{container.get_container_host_ip()}:{container.get_exposed_port(8080)}"


def test_spider(proxy: str) -> None:
    client = OpenAI(base_url=f"{proxy}/@spider/openai/v1", api_key="replay-needs-no-key")
    question = "Name a spider."
    answer = client.responses.create(model="gpt-4o", input=question)
    assert "spider" in answer.output_text
