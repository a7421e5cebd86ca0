"""How two cassettes, two revisions of a store, or a cassette and its upstream compare."""
