"""Errors for what there is not."""

from tapeway.errors import AdminError


def no_cassette(name: str) -> AdminError:
    """The error for a cassette that there is not."""
    return AdminError(
        f"there is no cassette '{name}': /api/v1/cassettes lists those there are",
        status=404,
        code="no_cassette",
    )


def no_interaction(name: str, index: int) -> AdminError:
    """The error for an interaction that a cassette does not have."""
    return AdminError(
        f"cassette '{name}' has no interaction {index}", status=404, code="no_interaction"
    )
