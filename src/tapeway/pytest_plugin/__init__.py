"""The pytest plugin: each test has a separate cassette."""
