"""What the pages of the admin API are tested with."""

from tests.admin.conftest import open_world

__all__ = ["open_world"]
