"""What tapeway writes in place of keys looks like a key to nobody."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapeway.core.matching.request_redaction import RequestRedaction
from tapeway.core.model.cassette import CassetteHead, StoredCassette
from tapeway.core.model.interaction import Interaction
from tapeway.core.redaction.credentials import Secret
from tapeway.core.redaction.redactor import Redactor
from tapeway.embedded.client_variables import dummy_keys
from tapeway.formats.cassette_file import JSON, YAML
from tapeway.settings.client_environment import KEY_VARIABLES
from tests.core.redaction import gitleaks
from tests.core.redaction.credential_places import REQUESTS
from tests.core.redaction.example_messages import JSON as JSON_HEADERS
from tests.core.redaction.example_messages import make_request, make_response
from tests.core.redaction.key_kinds import FORMS, made_up

needs_gitleaks = pytest.mark.skipif(
    gitleaks.PROGRAM is None, reason="gitleaks is not installed: its rules were not asked"
)
HEAD = CassetteHead("2026-11-22T10:00:00Z", "5a2f0f4e-e47b-4225-b9bc-f82a78c346bb")
FIELDS = {"private key": "private_key", "Stripe intent": "client_secret"}
"""What no client sends as its key: the field of bodies that holds it."""
KEYS = [kind for kind in FORMS if kind not in FIELDS]


def _recordings() -> list[Interaction]:
    """A recording of a key of each kind in half of all places; its answer says and issues it."""
    made: list[Interaction] = []
    renewal = made_up("Google OAuth refresh")
    for number, kind in enumerate(KEYS):
        key = made_up(kind)
        for make in list(REQUESTS.values())[number % 2 :: 2]:
            redaction = RequestRedaction()
            asked, secrets = redaction.redact_and_learn(HEAD.run_id, make(key))
            said = {"access_token": key, "refresh_token": renewal, "note": f"sent {key}"}
            answer = Redactor(HEAD.run_id, [*secrets, Secret("key", key.encode())]).response(
                make_response(
                    json.dumps(said).encode(),
                    headers=(*JSON_HEADERS, (b"Set-Cookie", b"session=" + key.encode())),
                )
            )
            made.append(Interaction(len(made), replace(asked, base="https://a.example"), answer))
    for kind, field in FIELDS.items():
        said = {field: made_up(kind)}
        asked = RequestRedaction().redact(HEAD.run_id, make_request(body=json.dumps(said).encode()))
        answer = Redactor(HEAD.run_id).response(make_response(json.dumps(said).encode()))
        made.append(Interaction(len(made), asked, answer))
    return made


@needs_gitleaks
def test_a_thousand_recordings_of_keys_hold_nothing_that_gitleaks_takes_for_one(
    tmp_path: Path,
) -> None:
    made = tuple(_recordings())
    assert len(made) >= 1000
    folder = tmp_path / "cassettes"
    folder.mkdir()
    half = len(made) // 2
    (folder / "a.json").write_bytes(JSON.save(StoredCassette(HEAD, made[:half])))
    (folder / "b.yaml").write_bytes(YAML.save(StoredCassette(HEAD, made[half:])))

    assert gitleaks.found(folder) == []


@needs_gitleaks
def test_the_dummy_keys_look_like_none(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    folder.mkdir()
    lines = [f'{name}="{value}"' for name, value in dummy_keys(KEY_VARIABLES, {}).items()]
    (folder / ".env").write_text("\n".join(lines))

    assert gitleaks.found(folder) == []


@needs_gitleaks
def test_gitleaks_finds_a_key_that_is_written_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "leaked"
    folder.mkdir()
    (folder / "a.json").write_text(json.dumps({"api_key": made_up("Anthropic")}))

    assert len(gitleaks.found(folder)) == 1
