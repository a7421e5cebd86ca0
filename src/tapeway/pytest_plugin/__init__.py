"""The pytest plugin: each test records to and replays from a cassette of its own."""
