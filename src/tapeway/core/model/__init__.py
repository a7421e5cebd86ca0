"""The values that travel between client, cassette and upstream."""
