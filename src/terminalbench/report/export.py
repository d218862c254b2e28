"""Trials and findings in the formats other programs read."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

from terminalbench.analytics.findings.failed_checks import failed_check
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.envfile import secrets_of
from terminalbench.index.places import plan_or_none
from terminalbench.index.results import Results, Table
from terminalbench.json_files import encode_json
from terminalbench.secrets.values import Secrets
from terminalbench.text.foreign import visible

_SKIPPED = ("cancelled", "not_run", "running")

type Format = Literal["csv", "json", "parquet", "junit"]


def export_trials(results: Results, batches: Sequence[str | None], form: Format) -> bytes:
    """The trials of some batches (`None`: of all); a row a planned trial and a superseded try."""
    tables = [results.trials(batch) for batch in batches]
    table = Table(tables[0].columns, [row for found in tables for row in found])
    if form == "junit":
        name = ", ".join(dict.fromkeys(row["batch"] for row in table)) or str(results.root.name)
        return junit_xml(name, table.rows, results.root)
    return encode_table(table, form)


def encode_table(table: Table, form: Literal["csv", "json", "parquet"]) -> bytes:
    """A table as CSV (empty is unknown), JSON (null is unknown) or Parquet."""
    if form == "json":
        return encode_json([dict(row) for row in table])
    if form == "csv":
        return csv_bytes(list(table.columns), [[row[name] for name in table.columns] for row in table])
    arrow = table.to_arrow()
    from pyarrow import parquet

    stream = io.BytesIO()
    parquet.write_table(arrow, stream)
    return stream.getvalue()


def csv_bytes(head: Sequence[str], rows: Sequence[Sequence[object]]) -> bytes:
    """Rows as CSV; truths are `true` and `false`, unknown is empty, bytes are text."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([[_field(value) for value in row] for row in rows])
    return stream.getvalue().encode("utf-8", "replace")


def _field(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if not isinstance(value, str):
        return value
    # A spreadsheet would run it as a formula.
    return f"'{visible(value)}" if value[:1] in ("=", "@") else visible(value)


def junit_xml(name: str, rows: Sequence[Mapping[str, Any]], results: Path) -> bytes:
    """The rows of `trial_records` as JUnit XML: a suite a profile (of each batch), a case a trial.

    What was not measured is an error or skipped, never a failure: a broken machine is not a failed test. Superseded
    tries are no cases. A failure names the first check that failed, from the trial's folder below `results`.
    """
    secrets = cache(lambda batch: secrets_of(plan_or_none(Batch(results / batch))))
    why = partial(_failure, results, secrets)
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
            _case(suite, row, f"{batch}." if several else "", why)
    for key, value in _counts([row for found in suites.values() for row in found]).items():
        root.set(key, value)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n"


def _case(
    suite: ElementTree.Element, row: Mapping[str, Any], within: str, why: Callable[[Mapping[str, Any]], str]
) -> None:
    seconds = f"{row['wall_sec']:.3f}" if row["wall_sec"] is not None else "0"
    name = f"{row['task']} #{row['attempt']}"
    where = f"{within}{row['profile']}.{row['dataset']}"
    case = ElementTree.SubElement(suite, "testcase", name=_xml(name), classname=_xml(where), time=seconds)
    outcome, reason = row["outcome"], _xml(row["reason"] or "")
    if outcome == "failed":
        ElementTree.SubElement(case, "failure", type="failed", message=_xml(why(row)))
    elif outcome in _SKIPPED:
        ElementTree.SubElement(case, "skipped", message=reason or outcome)
    elif outcome != "passed":
        kind = row["error_class"] or outcome
        ElementTree.SubElement(case, "error", type=kind, message=reason or outcome)
    if row["folder"]:
        ElementTree.SubElement(case, "system-out").text = _xml(f"{row['batch']}/{row['folder']}")


def _failure(results: Path, secrets: Callable[[str], Secrets], row: Mapping[str, Any]) -> str:
    """Return why a trial failed, in a line: its error, its first failing check, its reward."""
    check = failed_check(results / row["batch"] / row["folder"], secrets(row["batch"])) if row["folder"] else None
    lines = check.message.splitlines()[: 1 if check.name else None] if check is not None else []
    checked = (check.name if check is not None else "", " / ".join(line.strip() for line in lines))
    said = [": ".join(filter(None, parts)) for parts in ((row["error_type"], row["reason"]), checked)]
    said.append(f"reward {row['reward']}" if row["reward"] is not None else "no reward")
    return "; ".join(filter(None, said))


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
