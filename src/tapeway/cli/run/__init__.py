"""`tapeway run`: a command with a proxy around it."""
