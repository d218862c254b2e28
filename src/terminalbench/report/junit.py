"""A batch as JUnit XML, for machines that show test results: a suite a profile (of each batch), a case a trial.

What was not measured is an error or skipped, never a failure: a broken machine is not a failed test.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from terminalbench.text.foreign import visible

_SKIPPED = ("cancelled", "not_run")


def junit_xml(name: str, rows: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows of `trial_records` as XML; superseded tries are no cases. Of several batches, each names its own."""
    root = ElementTree.Element("testsuites", name=_xml(name))
    several = len({row["batch"] for row in rows}) > 1
    suites: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if not row["superseded"]:
            suites.setdefault((row["batch"], row["profile"]), []).append(row)
    for (batch, profile), found in suites.items():
        shown = f"{batch} {profile}" if several else profile
        suite = ElementTree.SubElement(root, "testsuite", {"name": _xml(shown), **_counts(found)})
        for row in found:
            _case(suite, row, f"{batch}." if several else "")
    for key, value in _counts([row for found in suites.values() for row in found]).items():
        root.set(key, value)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(suite: ElementTree.Element, row: Mapping[str, Any], within: str) -> None:
    seconds = f"{row['wall_sec']:.3f}" if row["wall_sec"] is not None else "0"
    name = f"{row['task']} #{row['attempt']}"
    where = f"{within}{row['profile']}.{row['dataset']}"
    case = ElementTree.SubElement(suite, "testcase", name=_xml(name), classname=_xml(where), time=seconds)
    outcome, reason = row["outcome"], _xml(row["reason"] or "")
    if outcome == "failed":
        ElementTree.SubElement(case, "failure", type="failed", message=f"reward {row['reward']}")
    elif outcome in _SKIPPED:
        ElementTree.SubElement(case, "skipped", message=reason or outcome)
    elif outcome != "passed":
        kind = row["error_class"] or outcome
        ElementTree.SubElement(case, "error", type=kind, message=reason or outcome)
    if row["folder"]:
        ElementTree.SubElement(case, "system-out").text = _xml(f"{row['batch']}/{row['folder']}")


def _counts(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    outcomes = [row["outcome"] for row in rows]
    skipped = sum(outcome in _SKIPPED for outcome in outcomes)
    failures = outcomes.count("failed")
    return {
        "tests": str(len(rows)),
        "failures": str(failures),
        "errors": str(len(rows) - failures - skipped - outcomes.count("passed")),
        "skipped": str(skipped),
        "time": f"{sum(row['wall_sec'] or 0 for row in rows):.3f}",
    }


def _xml(text: str) -> str:
    return visible(text).replace("\ufffe", "�").replace("\uffff", "�")
