"""Claude's Agent SDK, which drives Claude Code: a round with a command, and one that resumes it."""

import asyncio
import sys

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage

PROMPT = 'Please use Bash {"command": "echo hello"} and tell me'


async def main() -> None:
    options = ClaudeAgentOptions(
        cli_path=sys.argv[1], tools=["Bash"], allowed_tools=["Bash(echo:*)"]
    )
    async with ClaudeSDKClient(options) as client:
        for prompt in (PROMPT, f"Once more. {PROMPT}"):
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    print(message.result)


asyncio.run(main())
