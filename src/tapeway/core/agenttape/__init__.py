"""AgentTape's match keys, and its SDK calls as HTTP."""
