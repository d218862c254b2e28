"""The episode store: one line an iteration and profile, over all nights of a project. Append-only.

Of several lines with one id the last counts: an iteration that was resumed is recorded again. Lines that cannot be
read are counted and kept. An episode is recorded only with its evidence: the results file that it is made from.
"""

import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.errors import TbenchError, UserError
from terminalbench.json_files import BadLine, append_jsonl, encode_line, read_json
from terminalbench.locks import changing
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_results import IterationResults, ProfileResult
from terminalbench.overnight.night import NightConfig
from terminalbench.records.episode import Episode, EpisodeCost, EpisodeStatus
from terminalbench.records.values import copied

GYM = Path(".terminalbench/gym")
"""Where the store is, below the folder of the project."""
BASELINE_RULE = (
    "The baseline is the newest episode of an earlier run with the same profile id and the same task digest in which "
    "every planned trial was measured. Simulated episodes are compared with simulated ones, real with real. It is "
    "not the best episode, because the best of many was lucky."
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
        """Return whether it is one of them."""
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
            if self._last(episode.id) == episode:
                return False
            append_jsonl(self.file, episode, durable=True)
        return True

    def read(self) -> StoredEpisodes:
        """Everything."""
        held = _read_on(self.file)
        bad = [*held.bad]
        if self.file.is_file() and self.file.stat().st_size > held.offset:
            bad.append(BadLine(held.lines + 1, "the last line is incomplete: cut off, or still being written"))
        return StoredEpisodes(tuple(held.latest.values()), tuple(bad))

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
        """Return what new results of a profile on a set of tasks are measured against; None when there is nothing.

        By `BASELINE_RULE`; `before` a time, and of another run than `other_than`.
        """
        if task_digest is None:
            return None
        wanted = (profile_id, task_digest, simulated, EpisodeStatus.SUCCESS)
        end = moment_of(before) if before is not None else None
        found = [
            one
            for one in self.read().episodes
            if (one.profile_id, one.task_digest, one.simulated, one.status) == wanted and one.run_id != other_than
        ]
        earlier = [one for one in found if end is None or _when(one) < end]
        return max(earlier, key=lambda one: (_when(one), one.id), default=None)

    def results(self, episode: Episode) -> ProfileResult | None:
        """Return what an episode is made from; None when the file is gone, cannot be read, or tells of another
        profile."""
        return _evidence(episode, self._place(episode))

    def _place(self, episode: Episode) -> Path:
        path = Path(episode.results_path)
        return path if path.is_absolute() else self.gym.parent.parent / path

    def _last(self, episode_id: str) -> Episode | None:
        """The last record with an id: of the others the bytes are looked at, and nothing is decoded."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return None
        mark, end = b'"id":' + msgspec.json.encode(episode_id), len(data)
        while (place := data.rfind(mark, 0, end)) >= 0:
            first, last = data.rfind(b"\n", 0, place) + 1, data.find(b"\n", place)
            with suppress(*NOT_DECODED):
                episode = decode(data[first : last if last >= 0 else len(data)], Episode)
                if episode.id == episode_id:
                    return episode
            end = first
        return None


@dataclass
class _EpisodeLines:
    """The lines of a store that this process has decoded: as many as its first `offset` bytes have, with their sum."""

    offset: int = 0
    lines: int = 0
    crc: int = 0
    written: tuple[int, int] | None = None
    latest: dict[str, Episode] = field(default_factory=dict)
    bad: list[BadLine] = field(default_factory=list)


_FILES: dict[str, _EpisodeLines] = {}
_READING = Lock()


def _read_on(file: Path) -> _EpisodeLines:
    """Decode what a store has more than this process knows; one that was edited is read from its beginning."""
    try:
        about = file.stat()
    except FileNotFoundError:
        return _EpisodeLines()
    with _READING:
        held = _FILES.setdefault(str(file.absolute()), _EpisodeLines())
        if held.written == (about.st_size, about.st_mtime_ns):
            return held
        data = file.read_bytes()
        if zlib.crc32(data[: held.offset]) != held.crc or len(data) < held.offset:
            held = _FILES[str(file.absolute())] = _EpisodeLines()
        end = data.rfind(b"\n") + 1
        for line in data[held.offset : end].split(b"\n")[:-1]:
            held.lines += 1
            try:
                episode = decode(line, Episode) if line.strip() else None
            except NOT_DECODED as error:
                held.bad.append(BadLine(held.lines, str(error)))
                continue
            if episode is not None:
                held.latest[episode.id] = episode
        held.crc = zlib.crc32(data[held.offset : end], held.crc)
        held.offset, held.written = end, (about.st_size, about.st_mtime_ns)
        return held


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
    return copied(
        Episode,
        one,
        id=episode_id(results.run_id, results.iteration, one.profile if several else None),
        run_id=results.run_id,
        iteration=results.iteration,
        status=summary.status,
        summary=summary,
        results_path=str(file.relative_to(root)) if inside and root is not None else str(file),
        suite=results.suite_name,
        suite_version=results.suite_version,
        suite_digest=results.suite_digest,
        cost=EpisodeCost(one.cost_usd, one.cost_unknown),
        code_digest=config.code.digest or config.code.commit,
        started_at=one.started_at or results.created_at,
    )


def moment_of(text: str) -> datetime:
    """A day or a time as it is written. Raises UserError."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(f'"{text}" is not a time', hint="write 2026-01-31 or 2026-01-31T07:00") from None
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
        raise UserError(f"the results of episode {episode.id} are missing or unreadable", where=str(file), hint=hint)
    if found.simulated and not episode.simulated:
        raise UserError(f"episode {episode.id} is not marked as simulated, but its results are", where=str(file))
    told = (episode.summary, episode.status, episode.task_digest, episode.simulated)
    if told != (found.summary(), found.summary().status, found.task_digest, found.simulated):
        raise UserError(f"episode {episode.id} does not agree with its results", where=str(file))


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
    for one in msgspec.structs.fields(kind):
        inner = one.type
        parts = _flat_names(inner) if isinstance(inner, type) and issubclass(inner, msgspec.Struct) else []
        found += [f"{one.encode_name}.{part}" for part in parts] or [one.encode_name]
    return found


def export_lines(episodes: Sequence[Episode]) -> bytes:
    """Episodes as lines of JSON."""
    return b"".join(map(encode_line, episodes))
