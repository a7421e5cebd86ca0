"""Tests that VCR.py answers, beside tapeway in one environment."""

import inspect
import re
from collections.abc import Collection

import pytest

from .markers import MARKER

_VCR_MARKER = "vcr"
_OF_PYTEST_VCR = "vcr_cassette"
"""A fixture for those that ask for it. `vcr` of pytest-recording comes with every test."""
_HINT = (
    "VCR.py answers this test, and the client was built with the address of tapeway, in a module or in "
    "a fixture that other tests use too. Build the client in the test, or remove the marker of VCR.py."
)


def left_to_vcr(item: pytest.Item) -> bool:
    """Whether a test has a marker or a fixture of VCR.py, and no marker of tapeway.

    A marker that nothing registers is left over: its plugin is gone, and nothing but tapeway would
    keep the test from the service.
    """
    if item.get_closest_marker(MARKER) is not None:
        return False
    asked = {str(name) for marker in item.iter_markers("usefixtures") for name in marker.args}
    if (function := getattr(item, "function", None)) is not None:
        asked |= {*inspect.signature(function).parameters}
    fixtures: Collection[str] = getattr(item, "fixturenames", ())
    has_marker = item.get_closest_marker(_VCR_MARKER) is not None
    return (
        (has_marker and _is_registered(item.config))
        or _VCR_MARKER in asked
        or _OF_PYTEST_VCR in fixtures
    )


def _is_registered(config: pytest.Config) -> bool:
    names = (re.split(r"[(:]", line)[0].strip() for line in config.getini("markers"))
    return _VCR_MARKER in names


def vcr_hint(report: pytest.TestReport, proxy: str) -> str | None:
    """What to do about a test left to VCR.py whose client leads to the proxy all the same."""
    return _HINT if report.failed and proxy in report.longreprtext else None
