"""The episode store: one line an iteration and profile, over all nights of a project. Append-only.

Of several lines with one id the last counts: an iteration that was resumed is recorded again. Lines that cannot be
read are counted and kept. An episode is recorded only with its evidence: the results file that it is made from.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import TbenchError, UserError
from terminalbench.json_files import BadLine, append_jsonl, encode_line, read_json, read_jsonl
from terminalbench.locks import changing
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_results import IterationResults, ProfileResult
from terminalbench.overnight.night import NightConfig
from terminalbench.records.episode import Episode, EpisodeCost, EpisodeStatus

GYM = Path(".terminalbench/gym")
"""Where the store is, below the folder of the project."""
BASELINE_RULE = (
    "The newest episode of an earlier run with the same profile id and the same task digest in which every planned "
    "trial was measured; simulated for simulated, real for real. Not the best one: the best of many was lucky."
)


class EpisodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes are asked for. What is None does not matter; `since` is a day or a time, in UTC unless it says."""

    run_id: str | None = None
    model: str | None = None
    status: EpisodeStatus | None = None
    since: str | None = None
    suite: str | None = None
    limit: int | None = None

    def fits(self, episode: Episode) -> bool:
        """Whether it is one of them."""
        asked = ((self.run_id, episode.run_id), (self.model, episode.model), (self.suite, episode.suite))
        return (
            all(wanted is None or wanted == is_ for wanted, is_ in asked)
            and (self.status is None or self.status is episode.status)
            and (self.since is None or _when(episode) >= moment_of(self.since))
        )


@dataclass(frozen=True)
class StoredEpisodes:
    """What the store holds: each episode once, as it was last recorded, in the order of the first lines."""

    episodes: tuple[Episode, ...]
    unreadable: tuple[BadLine, ...] = ()


class EpisodeStore:
    """The episodes of a project, in `<gym>/episodes.jsonl`. Processes may share it."""

    def __init__(self, gym: Path) -> None:
        self.gym = gym
        self.file = gym / "episodes.jsonl"

    @classmethod
    def of_project(cls, root: Path) -> "EpisodeStore":
        """The store of a project."""
        return cls(root / GYM)

    def record(self, episode: Episode) -> bool:
        """Add an episode unless it is there as it is; whether a line was written. A made-up one is a UserError."""
        _refuse_unproven(episode, self._place(episode))
        with changing(self.file):
            known = self._lines_of(episode.id)
            if known and known[-1] == episode:
                return False
            append_jsonl(self.file, episode, durable=True)
        return True

    def read(self) -> StoredEpisodes:
        """Everything."""
        found = read_jsonl(self.file, Episode)
        latest: dict[str, Episode] = {}
        for episode in found.records:
            latest[episode.id] = episode
        bad = list(found.bad)
        if self.file.is_file() and self.file.stat().st_size > found.offset:
            bad.append(BadLine(len(found.records) + len(bad) + 1, "the last line has no end: torn, or being written"))
        return StoredEpisodes(tuple(latest.values()), tuple(bad))

    def query(self, wanted: EpisodeFilter | None = None) -> list[Episode]:
        """The episodes that fit, newest first."""
        asked = wanted or EpisodeFilter()
        found = [episode for episode in self.read().episodes if asked.fits(episode)]
        return sorted(found, key=lambda one: (_when(one), one.id), reverse=True)[: asked.limit]

    def find(self, episode_id: str) -> Episode:
        """The episode with an id. Raises UserError."""
        found = next((one for one in self.read().episodes if one.id == episode_id), None)
        if found is None:
            raise UserError(f'there is no episode "{episode_id}"', where=str(self.file), hint="tbench episodes list")
        return found

    def baseline(
        self,
        profile_id: str,
        task_digest: str | None,
        *,
        simulated: bool = False,
        before: str | None = None,
        other_than: str | None = None,
    ) -> Episode | None:
        """What new results of a profile on a set of tasks are measured against; None when there is nothing.

        By `BASELINE_RULE`; `before` a time, and of another run than `other_than`.
        """
        if task_digest is None:
            return None
        for episode in self.query(EpisodeFilter(status=EpisodeStatus.SUCCESS)):
            same = (episode.profile_id, episode.task_digest) == (profile_id, task_digest)
            late = before is not None and _when(episode) >= moment_of(before)
            if same and episode.simulated is simulated and not late and episode.run_id != other_than:
                return episode
        return None

    def results(self, episode: Episode) -> ProfileResult | None:
        """What an episode is made from; None when the file is gone, cannot be read, or tells of another profile."""
        return _evidence(episode, self._place(episode))

    def _place(self, episode: Episode) -> Path:
        path = Path(episode.results_path)
        return path if path.is_absolute() else self.gym.parent.parent / path

    def _lines_of(self, episode_id: str) -> list[Episode]:
        """The records with an id: others are not decoded."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return []
        mark = b'"id":' + msgspec.json.encode(episode_id)
        found = []
        for line in data.splitlines():
            if mark in line:
                try:
                    episode = decode(line, Episode)
                except NOT_DECODED:
                    continue
                found += [episode] if episode.id == episode_id else []
        return found


def episodes_of(folder: NightFolder, config: NightConfig, results: IterationResults) -> tuple[Episode, ...]:
    """The episodes of an iteration, one a profile."""
    several = len(results.profiles) > 1
    return tuple(_episode(folder, config, results, one, several=several) for one in results.profiles)


def episode_id(run_id: str, iteration: int, profile: str | None = None) -> str:
    """The id of an episode; with several profiles each has its own."""
    return f"{run_id}-{iteration:03d}" + (f"-{profile}" if profile is not None else "")


def _episode(
    folder: NightFolder, config: NightConfig, results: IterationResults, one: ProfileResult, *, several: bool
) -> Episode:
    summary = one.summary()
    file = folder.results_json(results.iteration).resolve()
    root = Path(config.project_root).resolve() if config.project_root else None
    inside = root is not None and file.is_relative_to(root)
    return Episode(
        id=episode_id(results.run_id, results.iteration, one.profile if several else None),
        run_id=results.run_id,
        iteration=results.iteration,
        model=one.model,
        status=summary.status,
        summary=summary,
        results_path=str(file.relative_to(root)) if inside and root is not None else str(file),
        suite=results.suite_name,
        suite_version=results.suite_version,
        suite_digest=results.suite_digest,
        profile=one.profile,
        profile_id=one.profile_id,
        simulated=one.simulated,
        cost=EpisodeCost(one.cost_usd, one.cost_unknown),
        task_digest=one.task_digest,
        code_digest=config.code.digest or config.code.commit,
        started_at=one.started_at or results.created_at,
        finished_at=one.finished_at,
    )


def moment_of(text: str) -> datetime:
    """A day or a time as it is written. Raises UserError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f'"{text}" is no time', hint="as 2026-01-31 or 2026-01-31T07:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _when(episode: Episode) -> datetime:
    told = episode.finished_at or episode.started_at
    return moment_of(told) if told is not None else datetime.min.replace(tzinfo=UTC)


def _evidence(episode: Episode, file: Path) -> ProfileResult | None:
    try:
        found: IterationResults = read_json(file, IterationResults)
    except (OSError, TbenchError):
        return None
    one = found.of(episode.profile_id, episode.profile)
    return one if one is not None and (found.run_id, found.iteration) == (episode.run_id, episode.iteration) else None


def _refuse_unproven(episode: Episode, file: Path) -> None:
    """An episode says what its results file says, or it is not recorded."""
    found = _evidence(episode, file)
    if found is None:
        hint = "an episode is recorded from the results.json of its iteration"
        raise UserError(f"no results of episode {episode.id} lie here", where=str(file), hint=hint)
    if found.simulated and not episode.simulated:
        raise UserError(f"episode {episode.id} is simulated, and says that it is not", where=str(file))
    told = (episode.summary, episode.status, episode.task_digest, episode.simulated)
    if told != (found.summary(), found.summary().status, found.task_digest, found.simulated):
        raise UserError(f"episode {episode.id} says something else than its results", where=str(file))


def export_csv(episodes: Sequence[Episode]) -> bytes:
    """Episodes as a table: the fields of the JSON, those of its parts as `summary.passed`; unknown is empty."""
    import csv
    import io

    names = _flat_names(Episode)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for one in episodes:
        told = msgspec.to_builtins(one)
        flat = {f"{name}.{part}": value for name in ("summary", "cost") for part, value in told.get(name, {}).items()}
        writer.writerow([(told | flat).get(name) for name in names])
    return out.getvalue().encode()


def _flat_names(kind: type[msgspec.Struct]) -> list[str]:
    """The names of all fields in JSON, those of a struct in a struct with its own before them."""
    found: list[str] = []
    for field in msgspec.structs.fields(kind):
        inner = field.type
        parts = _flat_names(inner) if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else []
        found += [f"{field.encode_name}.{part}" for part in parts] or [field.encode_name]
    return found


def export_lines(episodes: Sequence[Episode]) -> bytes:
    """Episodes as lines of JSON."""
    return b"".join(map(encode_line, episodes))
