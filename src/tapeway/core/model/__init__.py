"""The values that travel between client, cassette and upstream, and what is in force."""
