"""What was judged, on disk: judge.json and judge.md, and its place among the findings of a batch."""

from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from terminalbench.analytics.judge.request import (
    NOT_JUDGED,
    CostEstimate,
    Judgement,
    JudgeResult,
    Narrative,
    Quote,
    Synthesis,
)
from terminalbench.analytics.labels import ANALYZER, read_labels
from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import TbenchError
from terminalbench.experiments.batch import Batch
from terminalbench.files import write_lines, write_text
from terminalbench.index.results import FINDINGS_FILE
from terminalbench.json_files import encode_line, read_json, read_jsonl, write_json
from terminalbench.records.trial import Finding
from terminalbench.text.foreign import flat
from terminalbench.text.numbers import dollars, noun, plural, tokens

JSON_FILE = "judge.json"
TEXT_FILE = "judge.md"


def write_result(folder: Path, result: JudgeResult) -> None:
    """Write both files."""
    write_json(folder / JSON_FILE, result)
    write_text(folder / TEXT_FILE, as_markdown(result))


def read_result(folder: Path) -> JudgeResult | None:
    """Return what was judged before; None when nothing was, or the file cannot be read."""
    try:
        return read_json(folder / JSON_FILE, JudgeResult)
    except (OSError, TbenchError):
        return None


def forget_others(folder: Path, trials: Container[str]) -> list[str]:
    """Take both files away when they are about other trials than these, whose tables replace theirs. A line says so."""
    kept = read_result(folder)
    if kept is None:
        return []
    said_of = {said.trial for said in (*kept.findings, *kept.judgements)}
    if said_of and all(trial in trials for trial in said_of):
        return []
    for name in (JSON_FILE, TEXT_FILE):
        (folder / name).unlink(missing_ok=True)
    return ["earlier findings of the judge on another selection were removed; its answers stay in the cache"]


def as_markdown(result: JudgeResult) -> str:
    """The result as a page."""
    lines = ["# Findings of the judge", "", f"{result.sentence()}.", ""]
    lines += [f"Note: {_flat(note)}." for note in result.notes]
    lines += _synthesis(result.synthesis)
    if result.narratives:
        lines += ["", "## Comparisons by task"]
        lines += [line for narrative in result.narratives for line in _narrative(narrative)]
    if result.judgements:
        lines += ["", "## Trials"]
        for trial in dict.fromkeys(judgement.trial for judgement in result.judgements):
            lines += ["", f"### {_flat(trial)}", ""]
            lines += [line for j in result.judgements if j.trial == trial for line in _judgement(j)]
    if result.not_judged:
        lines += ["", "## Not judged", ""]
        lines += [f"- {entry.rubric}: {_flat(entry.trial)}: {_flat(entry.reason)}" for entry in result.not_judged]
    return "\n".join(lines).rstrip() + "\n"


def estimate_lines(estimate: CostEstimate) -> list[str]:
    """An estimate as a person reads it."""
    cached = sum(rubric.cached for rubric in estimate.rubrics)
    questions = sum(rubric.questions for rubric in estimate.rubrics)
    lines = [f"{estimate.model}: {plural(questions, 'question')}, {cached} of them already in the cache"]
    for rubric in estimate.rubrics:
        asked = f"{rubric.questions:>5} {noun(rubric.questions, 'question')}, {rubric.cached} cached"
        lines.append(
            f"  {rubric.rubric:<12} {asked}, "
            f"{tokens(rubric.input_tokens)} tokens in, about {tokens(rubric.output_tokens)} out"
        )
    counted = "counted" if estimate.exact else "estimated"
    lines.append(f"tokens: {tokens(estimate.input_tokens)} in ({counted}), about {tokens(estimate.output_tokens)} out")
    if estimate.cost_usd is None or estimate.most_usd is None:
        lines.append("cost: unknown")
    else:
        lines.append(
            f"cost: about {dollars(estimate.cost_usd)}, at most {dollars(estimate.most_usd)} without repairs "
            f"({estimate.price_source})"
        )
    return [*lines, *(f"note: {note}" for note in estimate.notes)]


def _synthesis(synthesis: Synthesis | None) -> Iterator[str]:
    if synthesis is None:
        return
    yield from ("", "## Together", "", _flat(synthesis.summary or synthesis.reason))
    if synthesis.claims:
        yield ""
    for claim in synthesis.claims:
        mark = "" if claim.supported else " **unsupported: it cites trials that do not exist**"
        yield f"- {_flat(claim.text)} ({claim.confidence}; {', '.join(map(_flat, claim.trials)) or 'no trial'}){mark}"
    for title, entries in (("To try", synthesis.improvements), ("Limits", synthesis.limitations)):
        if entries:
            yield from ("", f"{title}:", "", *(f"- {_flat(entry)}" for entry in entries))


def _narrative(told: Narrative) -> Iterator[str]:
    yield from ("", f"### {_flat(told.task.id)}: {_flat(told.new)} against {_flat(told.old)}", "")
    if told.winner is None:
        yield _flat(told.reason)
        return
    yield f"Better: **{_flat(told.winner)}**. {_flat(told.decisive or '')}"
    yield from ("", _flat(told.story or ""))
    yield from map(_quote, told.quotes)


def _judgement(judgement: Judgement) -> Iterator[str]:
    if judgement.value is None:
        yield f"- {judgement.name}: {NOT_JUDGED}{_flat(judgement.reason.removeprefix(NOT_JUDGED)) or 'no reason'}"
    else:
        yield f"- {judgement.name}: **{_flat(str(judgement.value))}**. {_flat(judgement.reason)}"
    yield from (f"  {_quote(quote)}" for quote in judgement.quotes)


def _quote(quote: Quote) -> str:
    where = "verifier" if quote.step == 0 else f"step {quote.step}"
    mark = "" if quote.found else " (unsupported: not found there)"
    return f"- {where}: `{_flat(quote.text).replace('`', chr(39))}`{mark}"


def _flat(text: str) -> str:
    """Foreign words on one line, unable to start markup of their own."""
    return flat(text).replace("<", "&lt;").replace("[", "\\[")


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


def findings_of(analytics: Path) -> list[Finding]:
    """Return what analyzers and the judge have said about the batch so far."""
    kept = read_jsonl(analytics / FINDINGS_FILE, Finding).records
    judged = read_result(analytics)
    return kept if judged is None else [*(f for f in kept if not f.analyzer.startswith(_JUDGE)), *judged.findings]


def refresh_findings(output: Path, batches: Sequence[Batch]) -> None:
    """Rewrite findings.jsonl with what the judge and people say now; the analyzers' lines stay as they are.

    So do the judge's own of trials that its last result is not about.
    """
    write_lines(output / FINDINGS_FILE, _lines(output / FINDINGS_FILE, batches))


def _lines(file: Path, batches: Sequence[Batch]) -> Iterator[bytes]:
    trials: set[str] = set()
    result = read_result(file.parent)
    judged = {finding.trial for finding in result.findings} if result is not None else set()
    if file.exists():
        with file.open("rb") as stream:
            for line in stream:
                with suppress(*NOT_DECODED):
                    finding = decode(line, Finding)
                    trials.add(finding.trial)
                    by_judge = finding.analyzer.startswith(_JUDGE) and finding.trial in judged
                    if by_judge or finding.analyzer.startswith(_LABEL):
                        continue  # it is said anew
                yield line if line.endswith(b"\n") else line + b"\n"
    # A table of a selection keeps to its trials.
    yield from map(encode_line, kept_findings(file.parent, batches, trials or None))
