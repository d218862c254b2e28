"""What the judge and people said, among the findings of a batch: both lie in files of their own and are added last."""

from collections.abc import Container, Iterator, Sequence
from pathlib import Path

import msgspec

from terminalbench.analytics.judge.labels import ANALYZER, read_labels
from terminalbench.analytics.judge.output import read_result
from terminalbench.experiments.batch import Batch
from terminalbench.files import encode_line, write_lines
from terminalbench.records import Finding

FINDINGS = "findings.jsonl"
_JUDGE, _LABEL = "judge:", f"{ANALYZER}:"


def kept_findings(output: Path, batches: Sequence[Batch], trials: Container[str] | None = None) -> Iterator[Finding]:
    """The judge's findings in `output`, then the labels of the batches: of these trials, or of all."""
    judged = read_result(output)
    for finding in judged.findings if judged is not None else ():
        if trials is None or finding.trial in trials:
            yield finding
    for batch in batches:
        for label in read_labels(batch.analytics).current().values():
            if trials is None or label.trial in trials:
                yield label.as_finding()


def refresh_findings(output: Path, batches: Sequence[Batch]) -> None:
    """Rewrite findings.jsonl with what the judge and people say now; the analyzers' lines stay as they are.

    So do the judge's own of trials that its last result is not about.
    """
    write_lines(output / FINDINGS, _lines(output / FINDINGS, batches))


def _lines(file: Path, batches: Sequence[Batch]) -> Iterator[bytes]:
    trials: set[str] = set()
    result = read_result(file.parent)
    judged = {finding.trial for finding in result.findings} if result is not None else set()
    if file.exists():
        with file.open("rb") as stream:
            for line in stream:
                finding = _finding(line)
                if finding is None or not _is_said_anew(finding, judged):
                    yield line if line.endswith(b"\n") else line + b"\n"
                if finding is not None:
                    trials.add(finding.trial)
    # A table of a selection keeps to its trials.
    yield from map(encode_line, kept_findings(file.parent, batches, trials or None))


def _is_said_anew(finding: Finding, judged: Container[str]) -> bool:
    by_judge = finding.analyzer.startswith(_JUDGE) and finding.trial in judged
    return by_judge or finding.analyzer.startswith(_LABEL)


def _finding(line: bytes) -> Finding | None:
    try:
        return msgspec.json.decode(line, type=Finding)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
