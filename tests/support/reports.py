"""The report of a cassette in memory, for tests that run no event loop."""

import asyncio

from tapeway.core.cassette.index import CassetteIndex
from tapeway.engine.journal import Tally
from tapeway.engine.report.standards import NO_LIMITS, Standards
from tapeway.engine.report.summary import CassetteReport, RecordingsInMemory, report_of


def report_of_index(
    cassette: CassetteIndex, tally: Tally, standards: Standards = NO_LIMITS, today: str = ""
) -> CassetteReport:
    """The report of a cassette in memory."""
    return asyncio.run(report_of(RecordingsInMemory(cassette), tally, standards, today))
