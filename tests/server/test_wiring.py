"""How the process is tuned."""

import gc

from tapeway.server import wiring


def test_what_a_full_collection_left_is_not_collected_again() -> None:
    before = gc.get_freeze_count()
    wiring._freeze("stop", {"generation": 1})
    wiring._freeze("start", {"generation": 2})
    assert gc.get_freeze_count() == before

    # It stays so: each collection of later tests would pass over all that is imported.
    wiring._freeze("stop", {"generation": 2})
    assert gc.get_freeze_count() > before
