"""Tests here change the environment and the working directory, and get both back."""

from tests.cli.conftest import own_surroundings

__all__ = ["own_surroundings"]
