"""The report as JUnit XML, for build servers."""

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from tapeway.engine.report.lines import counted, gains, miss_lines, printable, remarks
from tapeway.engine.report.summary import CassetteReport, Isolation


def junit_report(reports: Sequence[CassetteReport], isolation: Isolation | None = None) -> str:
    """JUnit XML: a test suite for each cassette, and a failed test for each miss."""
    root = ElementTree.Element("testsuites", name="tapeway")
    for each in reports:
        _add_suite(root, each)
    if isolation is not None and isolation.kind is not None:
        suite = _suite(
            root, "tapeway.offline", 1 + len(isolation.bypassed), len(isolation.bypassed)
        )
        ElementTree.SubElement(
            suite, "testcase", classname="tapeway.offline", name=printable(isolation.text)
        )
        for host in isolation.bypassed:
            _add_failure(suite, "bypassed", host, f"{host} was asked for past the proxy", ())
    ElementTree.indent(root)
    document = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{document}\n'


def _add_suite(root: ElementTree.Element, report: CassetteReport) -> None:
    name = f"tapeway.{report.name}"
    served = report.replayed + report.recorded + report.live
    suite = _suite(root, name, 1 + len(report.misses), len(report.misses))
    ElementTree.SubElement(
        suite,
        "testcase",
        classname=name,
        name=f"{counted(served, 'call')} answered",
    )
    for miss in report.misses:
        title = f"{miss.method} {miss.path}"
        often = [f"{miss.times} times"] if miss.times > 1 else []
        details = [*often, *miss_lines(miss)[1:]]
        _add_failure(suite, "replay_miss", title, miss.message, details)
    retried = [f"{report.retries} retried"] if report.retries else []
    noted = [line for each in remarks(report) for line in each.lines]
    if lines := [*retried, *gains(report), *noted]:
        ElementTree.SubElement(suite, "system-out").text = printable("\n".join(lines))


def _suite(root: ElementTree.Element, name: str, tests: int, failures: int) -> ElementTree.Element:
    counts = {"tests": str(tests), "failures": str(failures), "errors": "0", "skipped": "0"}
    return ElementTree.SubElement(root, "testsuite", {"name": name, **counts})


def _add_failure(
    suite: ElementTree.Element, kind: str, title: str, message: str, details: Iterable[str]
) -> None:
    case = ElementTree.SubElement(
        suite, "testcase", classname=suite.get("name", ""), name=printable(title)
    )
    failure = ElementTree.SubElement(case, "failure", type=kind, message=printable(message))
    failure.text = printable("\n".join(details)) or None
