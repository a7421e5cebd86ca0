"""Header fields choose and order the recordings of equal requests."""
