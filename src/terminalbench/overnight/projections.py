"""The files of a night that are made from its batches, and its episodes: at any moment, as often as wanted."""

from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import ProjectedIteration, project_iteration, project_iterations
from terminalbench.overnight.night import NightConfig, NightState, Role
from terminalbench.overnight.summary import project_night
from terminalbench.overnight.summary_model import NightSummary
from terminalbench.text.paths import typed


def project_one(folder: NightFolder, config: NightConfig, number: int) -> ProjectedIteration:
    """Write what came of one iteration that is over, and record its episodes."""
    projected = project_iteration(folder, config, number)
    _record(config, projected)
    return projected


@dataclass(frozen=True)
class ReportFiles:
    """What was written: the night in numbers, or what went wrong."""

    summary: NightSummary | None = None
    problems: tuple[str, ...] = ()


def project(folder: NightFolder, config: NightConfig, state: NightState) -> ReportFiles:
    """Write everything anew, and record what is over."""
    over = {work.number for work in state.work if work.role is Role.ITERATION and work.status.over}
    try:
        found = project_iterations(folder, config)
        for projected in found:
            if projected.results.iteration in over:
                _record(config, projected)
        return ReportFiles(project_night(folder, found))
    except Exception as error:  # noqa: BLE001  what a night measured outlives a report that fails, as after an update
        again = f"tbench report {typed(folder.folder)} writes it anew"
        said = str(error) if isinstance(error, TbenchError | OSError) else f"{type(error).__name__}: {error}"
        return ReportFiles(problems=(f"the report could not be written: {said}; {again}",))


def _record(config: NightConfig, projected: ProjectedIteration) -> None:
    store = EpisodeStore.of_project(Path(config.project_root))
    for episode in projected.episodes:
        store.record(episode)
