"""Clients of Bedrock for Python sign different fields, and each is signed anew.

`tests/clients/agents/test_node_clients.py` shows the same of those for Node.js.
"""

import sys
from pathlib import Path

import pytest

from tapeway.testing import ThreadedStandIn
from tests.process.commands.test_run import run
from tests.support.aws_signatures import is_signed_by, signature_of
from tests.support.canary import sightings

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIDSYNTHETIC0000000",
    "AWS_SECRET_ACCESS_KEY": "synthetic/secret/synthetic/secret/000000",
    "AWS_SESSION_TOKEN": "IQoJb3JpZ2luX2VjEXN5bnRoZXRpYy9zZXNzaW9uL3Rva2VuLzAwMDA",
}
REGION = {"AWS_DEFAULT_REGION": "us-east-1"}
BOTO3 = """
import json
import boto3

client = boto3.client("bedrock-runtime")
model = "anthropic.claude-sonnet-5-v1:0"
asked = dict(modelId=model, messages=[{"role": "user", "content": [{"text": "hello"}]}])
print(client.converse(**asked)["output"]["message"]["content"][0]["text"])
for event in client.converse_stream(**asked)["stream"]:
    print(event.get("contentBlockDelta", {}).get("delta", {}).get("text", ""))
body = {"anthropic_version": "bedrock-2023-05-31", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
invoked = dict(modelId=model, body=json.dumps(body))
print(json.loads(client.invoke_model(**invoked)["body"].read())["content"][0]["text"])
for event in client.invoke_model_with_response_stream(**invoked)["body"]:
    print(json.loads(event["chunk"]["bytes"]).get("delta", {}).get("text", ""))
"""
ANTHROPIC = """
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
@pytest.mark.parametrize(("program", "calls"), [(BOTO3, 4), (ANTHROPIC, 2)])
def test_a_client_of_bedrock_is_signed_anew_and_replayed_with_dummies(
    tmp_path: Path, program: str, calls: int
) -> None:
    (tmp_path / "program.py").write_text(program)
    command = (sys.executable, str(tmp_path / "program.py"))
    with ThreadedStandIn() as service:
        route = f"--route=bedrock={service.url}"
        live = run(tmp_path, route, command=command, environ={**KEYS, **REGION})
    replayed = run(tmp_path, "--offline", "--strict", command=command, environ=REGION)

    assert live.returncode == 0, live.stderr
    assert (replayed.returncode, replayed.stdout) == (0, live.stdout), replayed.stderr
    assert len(service.requests) == calls
    assert all(is_signed_by(request, KEYS) for request in service.requests)
    signatures = {request.target: signature_of(request) for request in service.requests}
    places = {str(file): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    places |= {"out": live.stdout.encode(), "err": live.stderr.encode()}
    assert sightings(KEYS | signatures, places) == []
