"""Iterations of a night as files: `results.json` and `delta.json`, made from its batches at any time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from terminalbench.campaign.folder import find_labelled, labels_of
from terminalbench.errors import TbenchError, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.files import write_changed
from terminalbench.index.queries import BatchView
from terminalbench.index.views import open_view
from terminalbench.json_files import encode_json, read_json
from terminalbench.overnight.delta import Delta, delta
from terminalbench.overnight.episodes import episodes_of
from terminalbench.overnight.folder import SLUGS, NightFolder
from terminalbench.overnight.iteration_results import IterationResults, measure
from terminalbench.overnight.night import ITERATION_LABEL, ROLE_LABEL, RUN_LABEL, IterationWork, NightConfig, Role
from terminalbench.records.episode import Episode


@dataclass(frozen=True)
class ProjectedIteration:
    """An iteration as its files say it, and the episodes to record once it is over."""

    results: IterationResults
    delta: Delta
    episodes: tuple[Episode, ...]


def labels_for(run_id: str, number: int, role: Role) -> dict[str, str]:
    """The labels of the batch of an iteration in a role."""
    return {RUN_LABEL: run_id, ITERATION_LABEL: str(number), ROLE_LABEL: str(role)}


def find_batch(folder: NightFolder, run_id: str, number: int, role: Role) -> Batch | None:
    """The batch of an iteration in a role, whoever started it; None while it has no plan.

    It usually has the number of its iteration: the plans of all others are read only where it has not.
    """
    wanted = labels_for(run_id, number, role)
    own = Batch(folder.results_root / SLUGS[role] / str(number))
    return find_labelled([own] if own.runs.is_dir() else [], wanted) or find_labelled(folder.batches(), wanted)


def labelled(folder: NightFolder, run_id: str) -> dict[tuple[Role, int], Batch]:
    """The batches of a night by what their labels say; of two alike the first counts."""
    found: dict[tuple[Role, int], Batch] = {}
    for batch in folder.batches():
        labels = labels_of(batch)
        role, number = labels.get(ROLE_LABEL, ""), labels.get(ITERATION_LABEL, "")
        if labels.get(RUN_LABEL) == run_id and role in list(Role) and number.isdecimal():
            found.setdefault((Role(role), int(number)), batch)
    return found


def view_of(folder: NightFolder, batch: Batch) -> BatchView:
    """A batch of a night as it is on disk now."""
    return open_view(batch, folder.results_root)


def project_results(folder: NightFolder, config: NightConfig, number: int) -> IterationResults:
    """Write `results.json` of an iteration from its batch. Raises UserError when it has none."""
    own = find_batch(folder, config.run_id, number, Role.ITERATION)
    if own is None:
        raise UserError(f"iteration {number} has no batch yet", where=str(folder.folder))
    return _projected(folder, config, number, own)


def project_delta(folder: NightFolder, config: NightConfig, results: IterationResults) -> ProjectedIteration:
    """Write `delta.json` of an iteration. Of those before it their `results.json` is read, or made if it is missing."""
    earlier = range(1, results.iteration)
    before = [_read(folder.results_json(one)) or _made(folder, config, one) for one in earlier]
    return _with_delta(folder, config, results, [one for one in before if one is not None])


def project_iteration(folder: NightFolder, config: NightConfig, number: int) -> ProjectedIteration:
    """Write `results.json` and `delta.json` of an iteration from its batch. Raises UserError when it has none."""
    return project_delta(folder, config, project_results(folder, config, number))


def _made(folder: NightFolder, config: NightConfig, number: int) -> IterationResults | None:
    """The results of an iteration whose file is missing, from its batch; None where it has none."""
    batch = find_batch(folder, config.run_id, number, Role.ITERATION)
    return _projected(folder, config, number, batch) if batch is not None else None


def project_iterations(
    folder: NightFolder,
    config: NightConfig,
    known: Mapping[int, ProjectedIteration] = MappingProxyType({}),
    ended: Mapping[int, IterationWork] = MappingProxyType({}),
) -> list[ProjectedIteration]:
    """All iterations that have a batch, in order, anew from their batches; those that are `known` stay as they are.

    Of those that have `ended` the results that their workers wrote are taken. A delta is made again where an iteration
    before it was.
    """
    numbered = {
        number: one for (role, number), one in labelled(folder, config.run_id).items() if role is Role.ITERATION
    }
    found: list[ProjectedIteration] = []
    same = True
    for number in sorted(numbered):
        held = known.get(number)
        if held is not None and same:
            found.append(held)
            continue
        same = False
        results = held.results if held is not None else _by_worker(folder, number, ended.get(number))
        results = results or _projected(folder, config, number, numbered[number])
        found.append(_with_delta(folder, config, results, [one.results for one in found]))
    return found


def _by_worker(folder: NightFolder, number: int, work: IterationWork | None) -> IterationResults | None:
    """The results that a worker wrote as it ended; None where they are not of what it said at its end."""
    found = _read(folder.results_json(number)) if work is not None and work.end is not None else None
    if found is None or work is None or work.end is None:
        return None
    counted = [sum(getattr(one, name) for one in found.profiles) for name in ("total", "measured", "passed")]
    return found if counted == [work.end.trials, work.end.measured, work.end.passed] else None


def keep(path: Path, value: Any) -> None:
    """Write a projection, unless the file says the same already."""
    write_changed(path, value if isinstance(value, bytes) else encode_json(value))


def _projected(folder: NightFolder, config: NightConfig, number: int, batch: Batch) -> IterationResults:
    results = measure(view_of(folder, batch), config, number)
    keep(folder.results_json(number), results)
    return results


def _with_delta(
    folder: NightFolder, config: NightConfig, results: IterationResults, before: Iterable[IterationResults]
) -> ProjectedIteration:
    changes = delta(results, before, config.iterations)
    keep(folder.delta_json(results.iteration), changes)
    return ProjectedIteration(results, changes, episodes_of(folder, config, results))


def _read(file: Path) -> IterationResults | None:
    try:
        return read_json(file, IterationResults)
    except (OSError, TbenchError):
        return None
