"""Comparing the profiles of batches, and a gate on it: whether the verdicts hold what was asked."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from terminalbench.analytics.compare import compare_views
from terminalbench.analytics.model import Comparison, Contrast, Metric, ProfileSummary
from terminalbench.analytics.pool import pool
from terminalbench.analytics.settings import ComparisonRequest
from terminalbench.errors import GateFailed, Incomplete, UserError, did_you_mean
from terminalbench.experiments.departures import DepartureKind
from terminalbench.formats.row import ReadOptions
from terminalbench.lab.arguments import checked, path_of
from terminalbench.lab.select import Named, select
from terminalbench.live.processes import resume_places
from terminalbench.text.numbers import plural, some

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


_HOLDS = {"worse": "a loss is excluded", "not-better": "better", "not-equivalent": "equivalent"}


@checked
def compare(
    *batches: Named,
    baseline: str | None = None,
    contrasts: Sequence[tuple[str, str]] = (),
    metric: Metric = "pass",
    k: int | None = None,
    by_snapshot: bool = False,
    only: str | None = None,
    reading: ReadOptions | None = None,
    results: Path | str | None = None,
    root: Path | str | None = None,
) -> Comparison:
    """Compare profiles: which is better, by how much, how sure that is. Without a batch: the newest of the results.

    Several batches are pooled where a profile is the same treatment; one with lessons is, whatever its memory held,
    unless they are told apart `by_snapshot`. Other batches of the experiment that hold the same profiles are taken too,
    unless `only` says why not. `contrasts` are pairs (new, old); without them
    those that the plan declares are computed, or each profile against the `baseline`. A file or a folder of another
    tool's results is read as `reading` says.
    """
    if metric not in (known := get_args(Metric.__value__)):
        raise UserError(f'there is no metric "{metric}"', hint=did_you_mean(metric, known))
    selected = select(
        *batches,
        results=path_of(results),
        root=path_of(root),
        with_data=True,
        reading=ReadOptions() if reading is None else reading,
    )
    pairs = tuple((new, old) for new, old in contrasts)
    if only is not None and not only.strip():
        raise UserError(
            "--only needs a reason for leaving out the other batches", hint='for example: --only "the key was wrong"'
        )
    pooled = pool(selected.batches, by_snapshot=by_snapshot, only=only)
    places = resume_places(pooled.batches, pooled.views)
    asked = ComparisonRequest(
        baseline=baseline,
        contrasts=pairs,
        metric=metric,
        k=k,
        analysis=selected.analysis,
        places=places,
        by_snapshot=by_snapshot,
        departures=pooled.departures,
        notes=pooled.notes,
    )
    return compare_views(pooled.views, asked)


def hold_gate(
    comparison: Comparison, fail_if: FailIf, accept: Sequence[str] = (), *, allow_undecided: bool = False
) -> str:
    """That the gate holds, as a sentence; GateFailed when a contrast is what it must not be, Incomplete when undecided.

    Departures from the declared plan leave it undecided, whatever the verdicts, unless `accept` names their kinds.
    A profile that is the same in all batches has no contrast, which the sentence says. `allow_undecided` lets an
    undecided gate pass where something was measured of every profile in question, and no contrast is what it must not
    be.
    """
    same = unchanged(comparison)
    held = gate(comparison, fail_if) if same is None else {}
    try:
        if same is not None:
            return _hold_unchanged(same, comparison, fail_if)
        return _hold_contrasts(comparison, fail_if, accept, held)
    except Incomplete as error:
        wrong = _known_wrong(comparison, held)
        if allow_undecided and wrong is None:
            return f"{error.what}; --allow-undecided accepts this"
        allowed = f"--allow-undecided {'lets it pass' if wrong is None else f'cannot be used for {wrong}'}"
        raise Incomplete(error.what, hint="; ".join(filter(None, (error.hint, allowed)))) from None


def _known_wrong(comparison: Comparison, held: Mapping[str, Held]) -> str | None:
    """Return what is wrong although the gate is undecided: a contrast fails it, or a profile has nothing measured."""
    failed = [name for name, answer in held.items() if answer == "failed"]
    asked = {name for contrast in comparison.contrasts for name in (contrast.new, contrast.old)}
    nothing = [one.profile for one in comparison.profiles if not one.measured and (one.profile in asked or not asked)]
    if failed:
        return f"{some(failed)} would fail the gate"
    return f"nothing was measured of {some(nothing)}" if nothing else None


def _hold_contrasts(comparison: Comparison, fail_if: FailIf, accept: Sequence[str], held: Mapping[str, Held]) -> str:
    open_kinds = unaccepted(comparison, accept)
    if open_kinds:
        raise Incomplete(
            f"the comparison departs from the declared plan ({', '.join(open_kinds)}), so --fail-if {fail_if} is "
            f"undecided",
            hint=f"to accept these departures: {' '.join(f'--accept {kind}' for kind in open_kinds)}",
        )
    failed = [name for name, answer in held.items() if answer == "failed"]
    if failed:
        raise GateFailed(f"{'; '.join(failed)} {'is' if len(failed) == 1 else 'are'} {fail_if.replace('-', ' ')}")
    because = {f"{one.new} vs {one.old}": one.reason for one in comparison.contrasts}
    undecided = [
        f"{name}: inconclusive{f', because {because[name]}' if because[name] else ''}"
        for name, answer in held.items()
        if answer == "undecided"
    ]
    if undecided:
        raise Incomplete(f"{'; '.join(undecided)}; so --fail-if {fail_if} is undecided")
    return f"{'; '.join(held)}: {_HOLDS[fail_if]}, so --fail-if {fail_if} holds"


def _hold_unchanged(same: ProfileSummary, comparison: Comparison, fail_if: FailIf) -> str:
    """Unchanged is neither worse nor better; without results it is not even known to work."""
    said = f"{same.profile} has the same content in {some(comparison.batches)}"
    if same.coverage < comparison.coverage:
        raise Incomplete(
            f"{said}, but only {same.measured} of its {plural(same.planned, 'trial')} were measured, so --fail-if "
            f"{fail_if} is undecided"
        )
    if fail_if == "not-better":
        raise GateFailed(f"{said}: not better")
    return f"{said}: unchanged, so --fail-if {fail_if} holds"
