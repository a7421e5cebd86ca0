"""`tapeway cassette`: inspect and edit cassettes offline, in any store."""
