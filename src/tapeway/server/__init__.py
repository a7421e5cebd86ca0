"""The proxy listener, and the start and stop of a serving process."""
