"""Anthropic's client of Bedrock signs other fields than boto3, and is signed anew as well."""

import sys
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.process.commands.test_run import run
from tests.support.aws_signatures import is_accepted

ACCESS, SECRET = "AKIDSYNTHETIC0000000", "synthetic/secret/synthetic/secret/000000"
KEYS = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
PROGRAM = """
import anthropic

asked = {
    "model": "anthropic.claude-sonnet-5-v1:0",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hello"}],
}
client = anthropic.AnthropicBedrock(aws_region="us-east-1", max_retries=0)
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    print(stream.get_final_text())
"""


@pytest.mark.slow
def test_anthropic_s_client_is_signed_anew_and_replayed_with_dummies(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    program = (sys.executable, str(tmp_path / "program.py"))
    with ThreadedStandIn() as service:
        live = run(
            tmp_path,
            f"--route=bedrock={service.url}",
            command=program,
            environ=KEYS,
        )
    replayed = run(tmp_path, "--offline", command=program)

    assert live.returncode == 0, live.stderr
    assert (replayed.returncode, replayed.stdout) == (0, live.stdout), replayed.stderr
    assert len(service.requests) == 2
    for each in service.requests:
        assert is_accepted(
            *(each.method, each.target, each.headers, each.body),
            access_key=ACCESS,
            secret_key=SECRET,
        )
