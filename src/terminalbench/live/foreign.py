"""Whether Harbor jobs that are not ours still run. Nobody holds a lock on them; what runs writes, sooner or later."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from terminalbench.errors import TbenchError
from terminalbench.files import read_json

QUIET_SEC = 1800.0
"""A job that has not finished, and to which nothing was written for so long, is taken to be over."""
_LOOK_SEC = 60.0
_NAMED = 3


class _JobResult(msgspec.Struct, frozen=True):
    finished_at: str | None = None


@dataclass
class ForeignRun:
    """The jobs below a folder. `silent` are those that never finished, and for how long nothing was written to each."""

    runs: Path
    silent: dict[str, float] = field(default_factory=dict)
    _signs: dict[Path, tuple[float, float]] = field(default_factory=dict)

    def alive(self, now: float) -> bool:
        """Whether one of them runs. `now` is the time of day."""
        quiet = {folder.name: now - self._last_sign(folder, now) for folder in self._unfinished()}
        self.silent = {name: age for name, age in quiet.items() if age >= QUIET_SEC}
        return len(self.silent) < len(quiet)

    @property
    def cut_off(self) -> str | None:
        """What is to be said of jobs that never finished; None: there is none."""
        if not self.silent:
            return None
        names = sorted(self.silent)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        age = min(self.silent.values())
        ago = f"{age / 60:.0f} minutes" if age < 7200 else f"{age / 3600:.0f} hours"
        return f"never finished: {', '.join(names[:_NAMED])}{more}; nothing was written there for {ago}"

    def _unfinished(self) -> list[Path]:
        jobs = [folder for folder in self.runs.glob("*/") if (folder / "config.json").is_file()]
        return [folder for folder in jobs if _finished_at(folder / "result.json") is None]

    def _last_sign(self, folder: Path, now: float) -> float:
        """When something was last written below a job, or a while before: a large one takes long to look through.

        It is looked through when the last sign has become old; one that was silent then, after a minute again.
        """
        looked, sign = self._signs.get(folder, (-_LOOK_SEC, -QUIET_SEC))
        was_silent = looked - sign >= QUIET_SEC
        if now - sign >= QUIET_SEC and not (was_silent and 0 <= now - looked < _LOOK_SEC):
            sign = last_written(folder, now + QUIET_SEC)
            self._signs[folder] = (now, sign)
        return sign


def last_written(folder: Path, until: float) -> float:
    """The newest time of anything below a folder, no link followed. A time after `until` is made up and left out.

    Should all be after it, the clock of whoever writes is ahead: then nobody knows, and it counts as written now.
    """
    newest = 0.0
    for place, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            try:
                time = os.lstat(f"{place}/{name}").st_mtime
            except OSError:
                continue  # it went away meanwhile
            if newest < time < until:
                newest = time
    return newest or until - QUIET_SEC


def _finished_at(file: Path) -> str | None:
    try:
        return read_json(file, _JobResult).finished_at
    except (OSError, TbenchError):
        return None
