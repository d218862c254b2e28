"""The part of `tbench analyze` that is about the judge: its options, its estimate, what it says at the end."""

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from terminalbench.errors import UserError

if TYPE_CHECKING:
    from terminalbench.analytics.judge.request import JudgeOptions, JudgeResult, Progress
    from terminalbench.analytics.run import AnalysisResult, Picked
    from terminalbench.experiments.batch import Batch
    from terminalbench.experiments.config import Experiment

_NO_MODEL = "nothing was judged: no model is set (--model M, or [analysis] judge_model; --no-llm says so on purpose)"
_SHOWN = 8
_OPTIONS = (
    click.option("--no-llm", is_flag=True, help="No judge, whatever the experiment file says."),
    click.option("--llm-only", is_flag=True, help="Only the judge; leave the tables as they are."),
    click.option(
        "--model",
        metavar="M",
        help="The judge: a LiteLLM name, ollama:NAME, claude-code or replay:FILE. Default: [analysis] judge_model.",
    ),
    click.option(
        "--rubric", "rubrics", multiple=True, metavar="NAME|FILE", help="What to ask: a rubric. Default: all of ours."
    ),
    click.option("--compare", nargs=2, metavar="A B", help="Let the judge compare only profile A with B."),
    click.option(
        "--judge-budget", type=click.FloatRange(min=0, min_open=True), metavar="USD", help="Spend no more on the judge."
    ),
    click.option("--estimate-cost", is_flag=True, help="Say what the judge would cost, and stop."),
)


@dataclass(frozen=True)
class JudgeWish:
    """What was asked for: `options` is None when nothing is judged, and `why` says why when nobody asked for that."""

    options: "JudgeOptions | None"
    why: str | None = None
    only_judge: bool = False
    only_estimate: bool = False


def judge_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the judge's options to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def judge_wish(
    chosen: Mapping[str, Any], experiment: "Experiment | None", batches: "Sequence[Batch]", quiet: bool
) -> JudgeWish:
    """The judge that is meant: named now, else in the experiment file, else in the plan of the batch."""
    from terminalbench.analytics.judge.request import JudgeOptions

    if chosen["no_llm"]:
        for name in ("llm_only", "model", "rubrics", "compare", "judge_budget", "estimate_cost"):
            if chosen[name]:
                raise click.UsageError(f"--no-llm and --{name.replace('_', '-').rstrip('s')} exclude each other")
        return JudgeWish(None)
    model = chosen["model"] or (experiment.analysis.judge_model if experiment is not None else _declared(batches))
    if model is None:
        if chosen["llm_only"] or chosen["estimate_cost"]:
            raise UserError("no model is set to judge with", hint="--model M, or [analysis] judge_model")
        return JudgeWish(None, _NO_MODEL)
    options = JudgeOptions(
        model=model,
        rubrics=tuple(chosen["rubrics"]),
        compare=chosen["compare"],
        budget_usd=chosen["judge_budget"],
        progress=_tell if sys.stderr.isatty() and not quiet else None,
    )
    return JudgeWish(options, None, chosen["llm_only"], chosen["estimate_cost"])


def estimate_text(chosen: "Sequence[Picked]", output: Path, wish: JudgeWish) -> str:
    """What the judge would cost."""
    from terminalbench.analytics.judge.analysis import judge_request
    from terminalbench.analytics.judge.output import estimate_lines
    from terminalbench.analytics.judge.run import estimate

    assert wish.options is not None
    return "\n".join(estimate_lines(estimate(judge_request(chosen, output, wish.options))))


def judged_text(result: "AnalysisResult", wish: JudgeWish) -> str:
    """What came of it, for a person."""
    if result.judged is None:
        return wish.why or ""
    from terminalbench.report.trial import printable

    judged = result.judged
    lines = [judged.sentence(), *_counts(result)]
    if judged.synthesis is not None and judged.synthesis.summary:
        lines += ["", printable(" ".join(judged.synthesis.summary.split()))]
    lines += _agreement(result)
    lines += [f"note: {printable(note)}" for note in judged.notes]
    reasons = Counter(f"{entry.rubric}: {entry.reason}" for entry in judged.not_judged)
    lines += [f"not judged: {count} x {printable(reason)}" for reason, count in reasons.most_common(_SHOWN)]
    if len(reasons) > _SHOWN:
        lines.append(f"not judged: and {len(reasons) - _SHOWN} further reasons in judge.json")
    return "\n".join([*lines, f"read {result.output / 'judge.md'}"])


def _counts(result: "AnalysisResult") -> list[str]:
    """How often each label was given, by profile: the person's where there is one."""
    from terminalbench.analytics.judge.labels import effective
    from terminalbench.report.text import columns

    assert result.judged is not None
    profiles = {f"{c.row.job}/{c.row.name}": c.profile for view in result.views for c in view.cells if c.row}
    found: Counter[tuple[str, str, str]] = Counter()
    for finding in effective(_said(result.judged, result)).values():
        if isinstance(finding.value, str) and finding.name in ("strategy", "root_cause", "mcp_use"):
            found[finding.name, profiles.get(finding.trial, "?"), finding.value] += 1
    rows = [["question", "profile", "answer", "trials"]]
    rows += [[*key, str(count)] for key, count in sorted(found.items(), key=lambda e: (e[0][:2], -e[1], e[0]))]
    return ["", columns(rows, left=(0, 1, 2)), ""] if len(rows) > 1 else []


def _said(judged: "JudgeResult", result: "AnalysisResult") -> list[Any]:
    from terminalbench.analytics.judge.kept import kept_findings

    keys = {finding.trial for finding in judged.findings}
    return list(kept_findings(result.output, result.folders, keys))


def _agreement(result: "AnalysisResult") -> list[str]:
    from terminalbench.analytics.judge.agreement import agreements
    from terminalbench.analytics.judge.labels import Labels, read_labels

    assert result.judged is not None
    labels = Labels([line for batch in result.folders for line in read_labels(batch.analytics).lines])
    return [f"agreement with people: {entry.sentence()}" for entry in agreements(result.judged.findings, labels)]


def _declared(batches: "Sequence[Batch]") -> str | None:
    from terminalbench.errors import TbenchError
    from terminalbench.experiments.plan import Plan
    from terminalbench.files import read_json

    for batch in batches:
        try:
            model = read_json(batch.plan_json, Plan).analysis.get("judge_model")
        except (OSError, TbenchError):
            continue
        if isinstance(model, str) and model:
            return model
    return None


def _tell(progress: "Progress") -> None:
    cost = f", ${progress.spent_usd:.2f}" + (f" + {progress.unknown_costs} unknown" if progress.unknown_costs else "")
    text = f"judging {progress.done}/{progress.total} ({progress.cached} from the cache){cost}"
    click.echo("\r\033[K" if progress.done >= progress.total else f"\r\033[K{text}", nl=False, err=True)
