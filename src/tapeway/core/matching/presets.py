r"""Presets: matching rules by name for agents that put their surroundings into every request.

A coding agent tells the model where it runs: home folder, working directory, platform, date, git
status, and an id for each session. Without rules a recording would answer on one machine, in one
folder, on one day only. A preset excludes only these parts: the words of the user, the model and the
tools still count.

A cassette gets a preset with the first recording of a client, recognised by the User-Agent header.
Stores index recordings by keys made under the presets. A preset with changed rules therefore needs
new keys in databases, just as a change of the keys does.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """The rules for the requests of one client, with the beginning of its User-Agent."""

    user_agent: str
    ignore: tuple[str, ...]
    ignore_in: tuple[tuple[str, tuple[str, ...]], ...]
    explanation: str
    """What the rules leave out, for the log."""
    ignore_below: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """The rules by path prefix: each applies only to requests with the prefix."""


_GIT_STATUS = (
    r"This is the git status at the start of the conversation\.(?s:.*?)\n"
    r"Recent commits:(?:\n[0-9a-f]{4,64} .*)*"
)
_CLAUDE_CODE_SYSTEM = (
    r"^x-anthropic-billing-header: [^\n]*",
    # Folders of this user, this project and this session, always in backquotes.
    r"`[^`\n]*[/\\]\.claude[/\\]projects[/\\][^`\n]*`",
    r"`[^`\n]*[/\\]claude-[0-9]+[/\\][^`\n]*`",
    # A list in recent versions; plain lines between <env> tags in older ones.
    r"(?m)^(?: - )?(?:(?:Primary w|W)orking directory|Is (?:a git repository|directory a git repo)"
    r"|Platform|Shell|OS Version|Today's date): .*\n?",
    r"(?m)^Today's date is [0-9]{4}-[0-9]{2}-[0-9]{2}\.?\n?",
    r"(?m)^ - This is a git worktree .*\n?",
    r"(?m)^(?: - )?Additional working directories:.*\n?(?:^  +- .*\n?)*",
    r"\n*gitStatus: " + _GIT_STATUS,
)
_CLAUDE_CODE_MESSAGES = (
    r"# currentDate\nToday's date is [^\n]*",
    r"The date has changed\. Today's date is now [0-9-]+",
    # A separate block, absent outside of repositories.
    r"\A<system-reminder>\nAs you answer the user's questions, you can use the following context:\n"
    rf"# gitStatus\n{_GIT_STATUS}\s*(?:Claude Code attached this context automatically;[^\n]*)?"
    r"\s*</system-reminder>\s*\z",
    r"# gitStatus\n" + _GIT_STATUS,
    r"# userEmail\nThe user's email address is [^\n]*",
    # What the file says counts.
    r"Contents of [^\n]*[/\\](?:CLAUDE|CLAUDE\.local|MEMORY)\.md\b",
)

_CODEX_INPUT = (
    r"<cwd>[^<]*</cwd>",
    r"<shell>[^<]*</shell>",
    r"<current_date>[^<]*</current_date>",
    r"<timezone>[^<]*</timezone>",
    r"<workspace_roots>(?s:.*?)</workspace_roots>",
    # Where the skills of this user are.
    r"(?m)^- `r[0-9]+` = `[^`\n]*`",
    r"# AGENTS\.md instructions for [^\n]*",
    # The summary of a command, before the command's output.
    r"(?m)^Chunk ID: [0-9a-z]+$",
    r"(?m)^Wall time: [0-9.]+ seconds$",
)

_CLAUDE_CODE_TELEMETRY, _CLAUDE_CODE_FEATURES = "/api/event_logging/", "/api/eval/"

PRESETS: Mapping[str, Preset] = {
    "claude-code": Preset(
        "claude-cli/",
        ignore=("body.metadata.user_id",),
        ignore_in=(
            ("body.system", _CLAUDE_CODE_SYSTEM),
            ("body.messages", _CLAUDE_CODE_MESSAGES),
            # Since 2.1.332 its surroundings are in messages too.
            ("body.messages[role=system]", _CLAUDE_CODE_SYSTEM),
            ("body.tools[*].description", (r"The current month is [A-Z][a-z]+ [0-9]{4}",)),
        ),
        explanation="its session, folders, platform, date and git status",
        ignore_below=(
            (_CLAUDE_CODE_TELEMETRY, ("body",)),
            # The user, the machine and the session for whom features are switched on.
            (_CLAUDE_CODE_FEATURES, ("body.attributes",)),
        ),
    ),
    "codex": Preset(
        "codex",
        ignore=(
            *("body.client_metadata", "body.prompt_cache_key"),
            # Drawn anew for each item; a call and its result are tied by `call_id`, which counts.
            "body.input[*].id",
            # Turns, times and counts for the service alone: the model reads none of them.
            "body.input[*].internal_chat_message_metadata_passthrough",
        ),
        ignore_in=(("body.input", _CODEX_INPUT),),
        explanation="its session, folders, shell and date, and how long commands took",
    ),
}
"""By their names in rules."""

_USER_AGENT = re.compile(
    "|".join(f"({re.escape(preset.user_agent)})" for preset in PRESETS.values())
)


def preset_of(user_agent: str) -> str | None:
    """The name of the preset for a client, None where there is none."""
    match = _USER_AGENT.match(user_agent)
    return None if match is None else tuple(PRESETS)[(match.lastindex or 1) - 1]
