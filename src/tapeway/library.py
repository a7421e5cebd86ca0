"""A program's own calls, recorded and replayed: `from tapeway.library import Cassette`."""

from tapeway.integrations.calls.cassette import Cassette

__all__ = ["Cassette"]
