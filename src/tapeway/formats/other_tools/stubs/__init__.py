"""The formats of tools whose files describe sets of requests, and the answer to each set."""
