"""`tapeway mcp`: tools for coding agents, by the Model Context Protocol."""
