"""The files of a night that are made from its batches, and its episodes: at any moment, as often as wanted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.overnight.episodes import EpisodeStore, episodes_of
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import ProjectedIteration, project_iterations, project_results
from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.overnight.night import IterationWork, NightConfig, NightState, Role
from terminalbench.overnight.summary import project_night
from terminalbench.overnight.summary_model import NightSummary
from terminalbench.records.episode import Episode
from terminalbench.text.paths import typed


def project_one(folder: NightFolder, config: NightConfig, number: int) -> IterationResults:
    """Write `results.json` of one iteration that is over, and record its episodes; the supervisor makes the delta."""
    results = project_results(folder, config, number)
    _record(config, episodes_of(folder, config, results))
    return results


@dataclass(frozen=True)
class ReportFiles:
    """What was written: the night in numbers, or what went wrong."""

    summary: NightSummary | None = None
    problems: tuple[str, ...] = ()


@dataclass
class ProjectedNight:
    """The iterations of a night that are over, as one process has projected and recorded them.

    What came of them does not change while no worker takes them up again: their batches are not read again.
    """

    _held: dict[int, ProjectedIteration] = field(default_factory=dict)
    _ended: dict[int, tuple[int, str | None]] = field(default_factory=dict)

    def known(self, over: Mapping[int, IterationWork]) -> dict[int, ProjectedIteration]:
        """Return those that are still what they were."""
        return {number: one for number, one in self._held.items() if self._ended[number] == _end_of(over.get(number))}

    def keep(self, projected: ProjectedIteration, work: IterationWork) -> None:
        """Remember one that is over."""
        number = projected.results.iteration
        self._held[number], self._ended[number] = projected, _end_of(work)


def _end_of(work: IterationWork | None) -> tuple[int, str | None]:
    """Return which end of an iteration it is: it may be taken up again, and end another time."""
    return (work.starts, work.finished_at) if work is not None else (-1, None)


def project(
    folder: NightFolder, config: NightConfig, state: NightState, known: ProjectedNight | None = None
) -> ReportFiles:
    """Write everything anew, and record what is over; what `known` holds already is neither read nor recorded again."""
    over = {work.number: work for work in state.work if work.role is Role.ITERATION and work.status.over}
    held = known.known(over) if known is not None else {}
    try:
        ended = {number: work for number, work in over.items() if known is not None and number not in held}
        found = project_iterations(folder, config, held, ended)
        for projected in found:
            number = projected.results.iteration
            if number in over and held.get(number) is not projected:
                _record(config, projected.episodes)
                if known is not None:
                    known.keep(projected, over[number])
        return ReportFiles(project_night(folder, found))
    except Exception as error:  # noqa: BLE001  what a night measured outlives a report that fails, as after an update
        again = f"tbench report {typed(folder.folder)} writes it again"
        said = str(error) if isinstance(error, TbenchError | OSError) else f"{type(error).__name__}: {error}"
        return ReportFiles(problems=(f"the report could not be written: {said}; {again}",))


def _record(config: NightConfig, episodes: Iterable[Episode]) -> None:
    store = EpisodeStore.of_project(Path(config.project_root))
    for episode in episodes:
        store.record(episode)
