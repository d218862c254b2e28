"""How trials of a profile failed, in clusters, and what to change about it, with the trials that show it.

A cluster is a class of failure (docs/analysis.md), or a guard of a workflow that refused the same trial again and
again. Only trials on train are ever looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.analytics.model import Row
from terminalbench.analytics.selection import Filter, pick
from terminalbench.archivist.attempts import LEAST_TRIALS, EvidenceTrial, attempts_of
from terminalbench.archivist.obstacles import GUARD_RULES, RULES
from terminalbench.experiments.batch import Batch
from terminalbench.records.lesson import Lesson

RECENT = 8
"""So many batches back a profile's trials are looked at."""
GUARD = "guard:"


@dataclass(frozen=True)
class Cluster:
    """Trials that failed alike: how, how many tasks they are of, and what our own rules say against it, if anything."""

    what: str
    attempts: tuple[EvidenceTrial, ...]
    advice: str | None = None

    @property
    def trials(self) -> tuple[str, ...]:
        """The trials that show it."""
        return tuple(one.name for one in self.attempts)

    @property
    def tasks(self) -> int:
        """Return of how many tasks they are."""
        return len({one.trial.task for one in self.attempts})


def clusters(attempts: Sequence[EvidenceTrial]) -> list[Cluster]:
    """The clusters of some attempts: those of most tasks first, then those of most trials."""
    found: dict[str, list[EvidenceTrial]] = {}
    for one in attempts:
        if not one.passed:
            found.setdefault(one.failure.name, []).append(one)
        for guard in dict.fromkeys(refusal.guard for refusal in one.refusals if refusal.times >= LEAST_TRIALS):
            found.setdefault(f"{GUARD}{guard}", []).append(one)
    made = [Cluster(what, tuple(held), _advice(what)) for what, held in found.items()]
    return sorted(made, key=lambda one: (-one.tasks, -len(one.attempts), one.what))


def attempts_on(results: Path, rows: Sequence[Row], profile: str) -> list[EvidenceTrial]:
    """The measured trials behind rows of a profile, of the last batches that hold any."""
    names = list(dict.fromkeys(row.batch for row in rows if row.profile == profile and row.measured))[-RECENT:]
    batches = [batch for name in names if (batch := Batch(results / name)).plan_json.is_file()]
    picked = pick(batches, Filter(profiles=(profile,))) if batches else []
    return [one for part in picked for one in attempts_of(part)]


def _advice(what: str) -> str | None:
    rule: Lesson | None = GUARD_RULES.get(what.removeprefix(GUARD)) if what.startswith(GUARD) else RULES.get(what)
    return rule.text if rule is not None else None
