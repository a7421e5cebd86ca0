"""Reads a cassette's part of a report from the document that the admin API returns."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from tapeway.engine.report.summary import CassetteReport


@cache
def _reader() -> TypeAdapter[CassetteReport]:
    return TypeAdapter(CassetteReport)


def cassette_report(document: Mapping[str, Any]) -> CassetteReport:
    """The report of one cassette. Raises pydantic's ValidationError for another document."""
    return _reader().validate_python(document)
