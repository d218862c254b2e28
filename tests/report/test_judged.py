"""What a report says of the judge, and of people who know better."""

from pathlib import Path

import msgspec

from support.reports import make_view
from support.results import STAMP, make_plan, make_trial
from terminalbench.experiments.batch import allocate
from terminalbench.index.queries import CellState, TrialRow
from terminalbench.json_files import append_jsonl
from terminalbench.lab.analyze import explained, open_source
from terminalbench.records.trial import Finding
from terminalbench.report.build import build_report
from terminalbench.report.evidence import by_trial, judged
from terminalbench.report.model import TrialRef


def _row(cell: CellState) -> TrialRow | None:
    return msgspec.structs.replace(cell.row, job="j", name=str(cell.attempt)) if cell.row is not None else None


def test_a_persons_word_stands_in_the_judges_place() -> None:
    cells = [
        msgspec.structs.replace(cell, row=row) for cell in make_view({"p": {"a": "xxx"}}).cells if (row := _row(cell))
    ]
    refs = [TrialRef(cell, "a", (0, 0), None, {}) for cell in cells]
    findings = [
        Finding("j/1", "judge:root_cause", "v", "root_cause", "gave_up"),
        Finding("j/2", "judge:root_cause", "v", "root_cause", "gave_up"),
        Finding("j/3", "judge:root_cause", "v", "root_cause", None, "not judged: no answer"),
        Finding("j/2", "failures", "1", "failure_class", "loop"),
        Finding("j/4", "failures", "1", "failure_class", "unfinished"),
        Finding("j/4", "label:ada", "2026", "failure_class", "loop"),
        Finding("j/2", "label:ada", "2026", "root_cause", "too_slow", "it ran out of time"),
        Finding("j/2", "label:ada", "2026", "failure_class", "timeout", "it ran out of time"),
    ]
    groups = {
        group.what: [ref.cell.row.key for ref in group.trials if ref.cell.row] for group in judged(refs, findings)
    }
    assert groups == {
        "root_cause: gave_up": ["j/1"],
        "root_cause: not judged": ["j/3"],
        "root_cause: too_slow (a person says)": ["j/2"],
    }
    assert by_trial(findings)["j/2"]["failure_class"].value == "timeout"
    assert by_trial(findings)["j/4"]["failure_class"].value == "unfinished", "nobody can say why it failed"


def test_a_persons_word_reaches_the_report(tmp_path: Path) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("p",), "a")
    make_trial(batch, "a__1", reward=0.0)
    trial = f"{STAMP}__p/a__1"
    for finding in (
        Finding(trial, "outcome", "1", "steps", 3),
        Finding(trial, "tripwires", "1", "edited_tests", True),
        Finding(trial, "judge:root_cause", "v", "root_cause", "gave_up"),
        Finding(trial, "label:ada", "2026", "root_cause", "too_slow", "it ran out of time"),
        Finding(trial, "label:ada", "2026", "edited_tests", False, "those were its own"),
    ):
        append_jsonl(batch.analytics / "findings.jsonl", finding)
    source = explained(open_source(batch))
    assert source.findings is not None
    assert "steps" not in {finding.name for finding in source.findings}, "only what a report shows is held"
    report = build_report(source)
    assert [group.what for group in report.judged] == ["root_cause: too_slow (a person says)"]
    assert report.suspects == (), "a person said that it is none"
