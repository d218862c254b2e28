"""A gate on a comparison: whether the verdicts hold what was asked. Pure.

| fail-if | held by | failed by | undecided |
|---|---|---|---|
| worse | better, equivalent, or a loss beyond the margin excluded | worse | inconclusive |
| not-better | better | worse, equivalent | inconclusive |
| not-equivalent | equivalent | better, worse | inconclusive |
"""

from collections.abc import Collection
from typing import Literal

from terminalbench.analytics.model import Comparison, Contrast, ProfileSummary
from terminalbench.errors import UserError
from terminalbench.experiments.departures import DepartureKind

type FailIf = Literal["worse", "not-better", "not-equivalent"]
type Held = Literal["held", "failed", "undecided"]

_HELD_BY = {"worse": ("better", "equivalent"), "not-better": ("better",), "not-equivalent": ("equivalent",)}


def gate(comparison: Comparison, fail_if: FailIf) -> dict[str, Held]:
    """Each contrast's answer to the gate, by `new vs old`."""
    if not comparison.contrasts:
        alone = len(comparison.profiles) < 2
        hint = "there is only one profile" if alone else "name one with --compare NEW OLD"
        raise UserError("--fail-if: there is no contrast to judge", hint=hint)
    if fail_if == "not-equivalent" and comparison.metric != "pass":
        raise UserError(
            "--fail-if not-equivalent works with the pass rate only",
            hint=f"leave out --metric {comparison.metric}",
        )
    if fail_if == "not-equivalent" and any(contrast.margin is None for contrast in comparison.contrasts):
        raise UserError(
            "--fail-if not-equivalent needs a margin", hint="set analysis.equivalence_margin before the run"
        )
    return {f"{contrast.new} vs {contrast.old}": _held(contrast, fail_if) for contrast in comparison.contrasts}


def unchanged(comparison: Comparison) -> ProfileSummary | None:
    """The only profile of several batches: the same treatment in each, so that there is no old one to compare with."""
    return comparison.profiles[0] if len(comparison.profiles) == 1 and len(comparison.batches) > 1 else None


def unaccepted(comparison: Comparison, accept: Collection[str]) -> list[DepartureKind]:
    """The kinds of departures that no person has accepted, each once: a gate stays undecided for them."""
    return [kind for kind in dict.fromkeys(comparison.departure_kinds) if kind not in accept]


def _held(contrast: Contrast, fail_if: FailIf) -> Held:
    if contrast.verdict in _HELD_BY[fail_if]:
        return "held"
    if contrast.verdict != "inconclusive":
        return "failed"
    found, margin = contrast.equivalence_interval, contrast.margin
    if fail_if != "worse" or margin is None or found is None or contrast.reason is not None or contrast.sequential:
        return "undecided"
    # Non-inferiority: enough was measured, and the interval for the margin excludes a loss beyond it.
    return "held" if found.low > -margin else "undecided"
