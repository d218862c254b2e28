"""judge.json and judge.md: everything that was judged, for programs and for people."""

from collections.abc import Iterator
from pathlib import Path

from terminalbench.analytics.judge.request import (
    NOT_JUDGED,
    Estimate,
    Judgement,
    JudgeResult,
    Narrative,
    Quote,
    Synthesis,
)
from terminalbench.errors import TbenchError
from terminalbench.files import read_json, write_json, write_text

JSON_FILE = "judge.json"
TEXT_FILE = "judge.md"


def write_result(folder: Path, result: JudgeResult) -> None:
    """Write both files."""
    write_json(folder / JSON_FILE, result)
    write_text(folder / TEXT_FILE, as_markdown(result))


def read_result(folder: Path) -> JudgeResult | None:
    """What was judged before; None when nothing was, or the file cannot be read."""
    try:
        return read_json(folder / JSON_FILE, JudgeResult)
    except (OSError, TbenchError):
        return None


def remove_result(folder: Path) -> None:
    """Take both files away."""
    for name in (JSON_FILE, TEXT_FILE):
        (folder / name).unlink(missing_ok=True)


def as_markdown(result: JudgeResult) -> str:
    """The result as a page."""
    lines = ["# What the judge says", "", f"{result.sentence()}.", ""]
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


def estimate_lines(estimate: Estimate) -> list[str]:
    """An estimate as a person reads it."""
    cached = sum(rubric.cached for rubric in estimate.rubrics)
    questions = sum(rubric.questions for rubric in estimate.rubrics)
    lines = [f"{estimate.model}: {questions} questions, {cached} of them answered in the cache"]
    for rubric in estimate.rubrics:
        lines.append(
            f"  {rubric.rubric:<12} {rubric.questions:>5} questions, {rubric.cached} cached, "
            f"{rubric.input_tokens:,} tokens in, about {rubric.output_tokens:,} out"
        )
    counted = "counted" if estimate.exact else "estimated"
    lines.append(f"tokens: {estimate.input_tokens:,} in ({counted}), about {estimate.output_tokens:,} out")
    if estimate.cost_usd is None or estimate.most_usd is None:
        lines.append("cost: unknown")
    else:
        lines.append(
            f"cost: about ${estimate.cost_usd:.4f}, at most ${estimate.most_usd:.4f} without repairs "
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
    """Somebody else's words on one line, unable to start markup of their own."""
    shown = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text.split()))
    return shown.replace("<", "&lt;").replace("[", "\\[")
