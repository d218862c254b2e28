"""Why there is no verdict although a number seems to give one, and what is not known, in words. Pure."""

from collections.abc import Callable, Mapping, Sequence

from terminalbench.analytics.contrast import PENDING, LookPlan
from terminalbench.analytics.model import MissingTrials, ProfileSummary, Row
from terminalbench.analytics.settings import ComparisonSettings
from terminalbench.analytics.summary import ProfileRows
from terminalbench.index.queries import BatchView
from terminalbench.records.trial import Outcome
from terminalbench.text.numbers import noun, p_value, percent, plural


def could_be_undone(missing: MissingTrials) -> str:
    """How few of the missing trials undo the verdict."""
    count, again = missing.undone_by, missing.redrawn_new + missing.redrawn_old
    lost = missing.new + missing.old + again
    less = "" if missing.exact or count == 1 else ", perhaps fewer,"
    what = noun(lost, "missing trial")
    if again:
        what = f"{noun(lost, 'trial')} that broke and {noun(again, 'was', 'were')} run again"
        what += " or never measured" if lost > again else ""
    if not count:
        return f'"{missing.verdict}" may not hold with the {what} counted'
    which = f"the {what}" if lost == 1 else f"{'all' if count == lost else f'{count} of the'} {lost} {what}"
    against = "went against it" if missing.verdict != "equivalent" else "favoured the same profile"
    return f'"{missing.verdict}" would not hold if {which}{less} {against}'


def too_early(looks: LookPlan) -> str | None:
    """That the last declared look is still to come, and what this one asks for; None when it is not."""
    if looks.method != "obrien-fleming" or looks.last:
        return None
    if not looks.look:
        return f"it is before the first of {looks.looks} looks"
    return f"look {looks.look} of {looks.looks} needs p up to {p_value(looks.level)}"


def ended_early(looks: LookPlan, chance: float | None) -> str | None:
    """That the run stopped, and what the rest might have shown; None where the latter is not known."""
    if looks.method != "sign-flips" or chance is None:
        return None
    ended = f"the run ended early, at look {looks.look} of {looks.looks}"
    return f"{ended}: the chance that the rest decides is {percent(chance)}"


def still_to_come(profiles: Mapping[str, ProfileRows]) -> list[str]:
    """What of the plan is missing, besides what runs."""
    untested = _lacking(profiles, "planned trials were not evaluated", lambda row: row.untested)
    return [
        *_lacking(
            profiles,
            "planned trials have not run or were cut off",
            lambda row: row.outcome in PENDING and not row.running and not row.untested,
        ),
        *untested,
    ]


def _lacking(profiles: Mapping[str, ProfileRows], what: str, lacks: Callable[[Row], bool]) -> list[str]:
    counts = {name: (sum(map(lacks, p.rows())), len(p.rows())) for name, p in profiles.items()}
    lacking = {name: numbers for name, numbers in counts.items() if numbers[0]}
    if len(lacking) > 3:
        missing, planned = sum(count for count, _ in lacking.values()), sum(count for _, count in counts.values())
        return [
            f"{missing} of {planned} {what}: {', '.join(f'{name} {count}' for name, (count, _) in lacking.items())}"
        ]
    return [f"{name}: {count} of {planned} {what}" for name, (count, planned) in lacking.items()]


def still_runs(view: BatchView) -> list[str]:
    """That a batch runs, and how far it is."""
    if not view.live:
        return []
    running = sum(cell.running for cell in view.cells)
    ended = sum(cell.outcome is not Outcome.NOT_RUN for cell in view.cells)
    waiting = sum(cell.state == Outcome.NOT_RUN and cell.reason is None for cell in view.cells)
    more = f", {waiting} waiting" if waiting else ""
    return [f"{view.batch} still runs: {ended} of {plural(len(view.cells), 'trial')} ended, {running} running{more}"]


def unknown_k(summaries: Sequence[ProfileSummary], settings: ComparisonSettings) -> list[str]:
    """That pass@k is not known of some profiles."""
    unmeasured = {s.profile: sum(not task.measured for task in s.tasks) for s in summaries}
    said = [
        f"{s.profile}: pass@k is not shown: it is over all planned tasks, and of {unmeasured[s.profile]} of "
        f"{len(s.tasks)} nothing was measured"
        for s in summaries
        if s.measured and not s.pass_at and max(task.planned for task in s.tasks) > 1
    ]
    return said + _unknown_asked(summaries, settings)


def _unknown_asked(summaries: Sequence[ProfileSummary], settings: ComparisonSettings) -> list[str]:
    lacking = [s.profile for s in summaries if settings.k is not None and settings.k not in s.pass_at]
    if not lacking:
        return []
    needed = plural(settings.k or 0, "attempt that counts", "attempts that count")
    return [f"pass@{settings.k} is unknown for {', '.join(lacking)}: not every task has {needed}"]
