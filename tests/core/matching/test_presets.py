"""A preset leaves out an agent's surroundings, and nothing that anyone said."""

import hashlib
import json
from typing import Any

import pytest

from tapeway.core.json_text import Json, canonical, dump
from tapeway.core.matching.key import request_key
from tapeway.core.matching.presets import PRESETS, preset_of
from tapeway.core.matching.rules import NO_RULES, Rules, rules_document, with_presets
from tapeway.core.model.messages import Request
from tests.core.keys import JSON

Body = dict[str, Any]


def claude_code(
    *,
    home: str = "/home/ann",
    folder: str = "/home/ann/shop",
    session: str = "c4efcfcf-831b-47d6-b2a1-9e76b774bf5c",
    date: str = "2026-11-22",
    surroundings: str = " - Platform: linux\n - Shell: zsh\n - OS Version: Linux 6.18.44\n",
    git: str = "",
    prompt: str = "Say hello",
    notes: str = "Use tabs.",
    result: str = "2 files",
) -> Body:
    """The parts of a request of Claude Code's that hold surroundings, and what stands around them."""
    system = (
        f"# Memory\nYou have a persistent memory at `{home}/.claude/projects/{folder}/memory/`. Use it.\n"
        "# Environment\nYou have been invoked in the following environment: \n"
        f" - Primary working directory: {folder}\n - Is a git repository: {bool(git)}\n{surroundings}"
        " - You are powered by the model named Opus.\n\nWhen you have enough information, act."
    )
    reminder = (
        "<system-reminder>\nContents of "
        f"{folder}/CLAUDE.md (project instructions):\n\n{notes}\n"
        f"# currentDate\nToday's date is {date}.\n\n      IMPORTANT: it may not be relevant.\n"
        "</system-reminder>"
    )
    return {
        "model": "claude-opus-4-8",
        "metadata": {"user_id": json.dumps({"session_id": session})},
        "system": [
            {"type": "text", "text": "You are an agent."},
            {"type": "text", "text": system + git},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": reminder}, {"text": prompt}]},
            {"role": "user", "content": [{"type": "tool_result", "content": result}]},
        ],
        "tools": [
            {
                "name": "WebSearch",
                "description": f"The current month is {MONTHS[date[:7]]} — use this.",
            }
        ],
    }


MONTHS = {"2026-11": "November 2026", "2026-12": "December 2026"}
GIT = (
    "\n\ngitStatus: This is the git status at the start of the conversation. It will not change.\n\n"
    "Current branch: main\n\nStatus:\n M a.txt\n?? b.txt\n\nRecent commits:\n4ee0a0a first\n9f8e7d6 more"
)


def codex(
    *,
    folder: str = "/home/ann/shop",
    session: str = "01a2039a-d3ed-7ed2-b375-7ff31e352943",
    date: str = "2026-11-22",
    took: str = "0.0512",
    call: str = "call_1",
    prompt: str = "Say hello",
    result: str = "2 files",
) -> Body:
    """The parts of a request of Codex's that hold surroundings, and what stands around them."""
    context = (
        f"<environment_context>\n  <cwd>{folder}</cwd>\n  <shell>bash</shell>\n"
        f"  <current_date>{date}</current_date>\n  <timezone>Etc/UTC</timezone>\n"
        f"  <filesystem><workspace_roots><root>{folder}</root></workspace_roots></filesystem>\n"
        "</environment_context>"
    )
    output = f"Chunk ID: {session[:6]}\nWall time: {took} seconds\nProcess exited with code 0\nOutput:\n{result}"
    about = {"turn_id": session, "create_time": int(session[:8], 16) / 7}
    passed_through = {"internal_chat_message_metadata_passthrough": about}
    return {
        "model": "gpt-5-codex",
        "input": [
            {"type": "message", "id": f"msg_{session}", "content": [{"text": context}]},
            {"type": "message", "id": "msg_2", "content": [{"text": prompt}], **passed_through},
            {"type": "function_call", "id": "fc_1", "call_id": call, "arguments": "{}"},
            {
                "type": "function_call_output",
                "id": f"fco_{session}",
                "call_id": call,
                "output": output,
            },
        ],
        "prompt_cache_key": session,
        "client_metadata": {"session_id": session},
    }


def equal(name: str, one: Body, other: Body) -> bool:
    keys = [
        request_key(Request("r", "POST", "/v1", JSON, dump(body)), Rules(presets=(name,)))
        for body in (one, other)
    ]
    return keys[0] == keys[1]


def with_environment(folder: str, role: str, *, in_blocks: bool, end: str = "") -> Body:
    """Claude Code 2.1.332: its surroundings are in a message of their own."""
    text = (
        "# Environment\nYou have been invoked in the following environment: \n"
        f" - Primary working directory: {folder}\n - Is a git repository: false\n"
        f" - Platform: linux\n - Shell: bash\n - OS Version: Linux 6.1\n{end}"
    )
    found = claude_code()
    content = [{"type": "text", "text": text}] if in_blocks else text
    found["messages"].append({"role": role, "content": content})
    return found


GIT_BLOCK = (
    "<system-reminder>\nAs you answer the user's questions, you can use the following context:\n"
    "# gitStatus\nThis is the git status at the start of the conversation. It is a snapshot.\n\n"
    "Current branch: {}\n\nStatus:\n?? CLAUDE.md\n\nRecent commits:\na340257 first\n{}\n"
    "Claude Code attached this context automatically; it isn't part of the user's message.\n"
    "</system-reminder>"
)


def test_the_git_status_in_a_block_does_not_count_nor_does_its_absence() -> None:
    without, one, other, noted = [claude_code() for _ in range(4)]
    for body, text in (
        (one, GIT_BLOCK.format("main", "")),
        (other, GIT_BLOCK.format("topic", "9f8e7d6 more\n")),
        (noted, GIT_BLOCK.format("main", "\n# claudeMd\nUse tabs.\n")),
    ):
        body["messages"][0]["content"].insert(1, {"type": "text", "text": text})

    assert equal("claude-code", one, other)
    assert equal("claude-code", without, one)
    assert not equal("claude-code", one, noted)


def test_todays_date_in_a_message_of_role_system_does_not_count() -> None:
    here, there = [
        with_environment("/a", "system", in_blocks=True, end=f"\nToday's date is 2026-11-{day}.")
        for day in (26, 27)
    ]

    assert equal("claude-code", here, there)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_surroundings_in_a_message_of_role_system_do_not_count(in_blocks: bool) -> None:
    here, there, ended = [
        with_environment(folder, "system", in_blocks=in_blocks, end=end)
        for folder, end in (
            ("/home/ann/shop", ""),
            ("/Users/bob/x y", ""),
            ("/home/ann/shop", "Hi"),
        )
    ]

    assert equal("claude-code", here, there)
    assert not equal("claude-code", here, ended)


def test_what_looks_like_surroundings_counts_where_a_user_says_it() -> None:
    here, there = [
        with_environment(folder, "user", in_blocks=True) for folder in ("/home/ann", "/home/bob")
    ]

    assert not equal("claude-code", here, there)


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"home": "/Users/bob", "folder": "/Users/bob/x y"},
        {"session": "78772a15-c982-4b67-b7f2-e790df132cf3"},
        {"date": "2026-12-01"},
        {"surroundings": " - Platform: darwin\n - OS Version: Darwin 25.1\n"},
        {
            "surroundings": " - This is a git worktree — an isolated copy.\n"
            " - Additional working directories:\n  - /data\n  - /more\n - Platform: win32\n"
        },
        {"git": GIT},
        {"git": GIT.partition("\n4ee")[0]},
    ],
)
def test_claude_code_is_recognised_elsewhere(elsewhere: dict[str, str]) -> None:
    here, there = claude_code(), claude_code(**elsewhere)

    assert equal("claude-code", here, there)
    assert dump(here) != dump(there)


@pytest.mark.parametrize(
    "otherwise",
    [
        {"prompt": "Say goodbye"},
        {"prompt": "Say hello\n - Primary working directory: /x"},
        {"prompt": "Today's date is 2026-11-22."},
        {"notes": "Use blanks."},
        {"result": "3 files"},
        {"surroundings": " - Platform: linux\n - Never run commands.\n"},
        {"git": GIT + "\n\nAnswer in French."},
    ],
)
def test_what_claude_code_was_asked_and_told_counts(otherwise: dict[str, str]) -> None:
    assert not equal("claude-code", claude_code(), claude_code(**otherwise))


def test_older_versions_of_claude_code_describe_their_surroundings_in_tags() -> None:
    older = (
        "Be concise.\n<env>\nWorking directory: {}\nIs directory a git repo: {}\nPlatform: {}\n"
        "OS Version: {}\nToday's date: {}\n</env>\nYou are powered by Opus."
    )
    here, there = [
        {"system": older.format(*surroundings)}
        for surroundings in (
            ("/home/ann/shop", "Yes", "linux", "Linux 6", "2026-11-22"),
            ("/Users/bob", "No", "darwin", "Darwin 25", "2025-01-02"),
        )
    ]

    assert equal("claude-code", here, there)
    assert not equal("claude-code", here, {"system": there["system"].replace("concise", "verbose")})


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"folder": "/Users/bob/x y"},
        {"session": "78772a15-c982-4b67-b7f2-e790df132cf3"},
        {"date": "2026-12-01"},
        {"took": "12.5"},
    ],
)
def test_codex_is_recognised_elsewhere(elsewhere: dict[str, str]) -> None:
    assert equal("codex", codex(), codex(**elsewhere))
    assert dump(codex()) != dump(codex(**elsewhere))


@pytest.mark.parametrize(
    "otherwise", [{"prompt": "Say goodbye"}, {"result": "3 files"}, {"call": "call_2"}]
)
def test_what_codex_was_asked_and_told_counts(otherwise: dict[str, str]) -> None:
    assert not equal("codex", codex(), codex(**otherwise))


def asked_of_service(path: str, body: Body) -> bytes:
    return request_key(
        Request("r", "POST", path, JSON, dump(body)), Rules(presets=("claude-code",))
    )


def test_the_telemetry_of_claude_code_and_for_whom_it_asks_features_do_not_count() -> None:
    events: list[Body] = [{"events": [character]} for character in "ab"]
    attributes: list[Body] = [{"attributes": {"id": character}} for character in "ab"]

    assert len({asked_of_service("/api/event_logging/v2/batch", event) for event in events}) == 1
    assert len({asked_of_service("/api/eval/sdk-1", attribute) for attribute in attributes}) == 1
    assert len({asked_of_service("/v1/events", event) for event in (*events, *attributes)}) == 4
    asked_for: list[Body] = [{**attributes[0], "forcedFeatures": [character]} for character in "ab"]
    assert len({asked_of_service("/api/eval/sdk-1", body) for body in asked_for}) == 2


def test_without_its_preset_an_agent_is_recognised_only_where_it_was() -> None:
    keys = {
        request_key(Request("r", "POST", "/v1", JSON, dump(body)), NO_RULES)
        for body in (codex(), codex(date="2026-12-01"), claude_code(), claude_code(git=GIT))
    }

    assert len(keys) == 4


@pytest.mark.parametrize(
    ("name", "digest"), [("claude-code", "1ad89903c5dd619f"), ("codex", "6040fbb9fe16a843")]
)
def test_a_preset_keeps_the_rules_under_which_databases_hold_keys(name: str, digest: str) -> None:
    rules = rules_document(with_presets(Rules(presets=(name,))))
    below: list[Json] = [[start, [*ignored]] for start, ignored in PRESETS[name].ignore_below]

    # Changed rules need a preset with a new name, or an upgrade of the databases that makes new keys.
    assert hashlib.sha256(canonical([dict(rules), below])).hexdigest()[:16] == digest


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        ("claude-cli/2.1.197 (external, sdk-cli)", "claude-code"),
        ("codex_exec/0.169.0 (Debian 12.0.0; x86_64)", "codex"),
        ("codex_cli_rs/0.50.0", "codex"),
        ("Anthropic/Python 0.94.0", None),
        ("my-claude-cli/1", None),
        ("", None),
    ],
)
def test_the_user_agent_names_the_preset(user_agent: str, name: str | None) -> None:
    assert preset_of(user_agent) == name
    assert name is None or name in PRESETS
