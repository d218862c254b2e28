"""The last words of a trial: its log files, newest first, a bounded piece of one. Links and pipes are left alone."""

import contextlib
import os
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path

from terminalbench.analytics.findings.failed_checks import failed_check
from terminalbench.analytics.long_trajectory import LIVE_FILES, SpentSoFar, running_trajectory, spent_so_far
from terminalbench.experiments.batch import Batch
from terminalbench.files import open_plain
from terminalbench.live.model import TrialKey
from terminalbench.report.trial import story_lines
from terminalbench.sandbox.activity import FILE_NAME as ACTIVITY
from terminalbench.secrets.values import Secrets
from terminalbench.text.foreign import flat, printable

TAIL_BYTES = 64 * 1024
_SHOWN_FILES = 20
_LOOKED_AT = 200
_CHECK_LETTERS = 200
_OTHERS = ("trial.log", "exception.txt", "verifier/test-stdout.txt")
_DOCUMENTS = (".json",)
STORY = "steps"
"""Stands among the logs of a trial for its steps, to be read."""


@dataclass(frozen=True)
class LogTail:
    """A piece of a log: which file of which, its size, and the last lines as text that drives no terminal."""

    names: tuple[str, ...]
    index: int = 0
    size: int = 0
    lines: tuple[str, ...] = ()
    note: str | None = None

    @property
    def name(self) -> str:
        """The file's name within the trial's folder."""
        return self.names[self.index] if self.names else ""


def read_tail(batch: Batch, trial: TrialKey, secrets: Secrets, index: int = 0) -> LogTail:
    """The end of one of a trial's logs, redacted; `index` counts from the newest."""
    folder = batch.job_folder(trial[0]) / trial[1]
    names = log_names(folder)
    if not names:
        return LogTail((), note="no log yet" if folder.is_dir() else f"no folder {folder}")
    index %= len(names)
    if names[index] == STORY:
        return LogTail(names, index, lines=_story(folder, _stamp(folder), secrets))
    try:
        size, data = _last_bytes(folder / names[index])
    except OSError as error:
        return LogTail(names, index, note=f"cannot be read: {error.strerror or error}")
    lines = data.decode(errors="replace").splitlines()
    if size > len(data):
        lines = lines[1:]  # the first is cut
    return LogTail(names, index, size, tuple(printable(secrets.redact(line)).expandtabs(4) for line in lines))


def log_names(folder: Path) -> tuple[str, ...]:
    """Return what can be read of a trial: its steps, if there are any; the agent's logs, newest first, documents after
    logs; then Harbor's and the verifier's."""
    agent = [
        (name.endswith(_DOCUMENTS), -status.st_mtime, f"agent/{name}")
        for name, status in _files(folder / "agent")
        if status.st_size
    ]
    others = [name for name in _OTHERS if not (folder / name).is_symlink() and (folder / name).is_file()]
    logs = [name for _, _, name in sorted(agent)][:_SHOWN_FILES]
    return (*([STORY] if any(name in LIVE_FILES for name in logs) else []), *logs, *others)


@lru_cache(maxsize=4)
def _story(folder: Path, stamp: object, secrets: Secrets) -> tuple[str, ...]:  # noqa: ARG001  what it is kept for
    return tuple(story_lines(folder, secrets)) or ("its steps cannot be read; h and l show its logs",)


def _stamp(folder: Path) -> tuple[object, ...]:
    """Changes with what a story is made of."""
    found: list[object] = []
    for name in (*LIVE_FILES, "verifier/test-stdout.txt"):
        with contextlib.suppress(OSError):
            status = (folder / name).lstat()
            found += [name, status.st_size, status.st_mtime_ns]
    return tuple(found)


def spent_of(batch: Batch, trial: TrialKey, secrets: Secrets) -> SpentSoFar | None:
    """Return what a running trial has used so far; None while no log of it tells."""
    folder = batch.job_folder(trial[0]) / trial[1]
    found = running_trajectory(folder, secrets)
    return spent_so_far(found[1], folder) if found is not None else None


def check_of(batch: Batch, trial: TrialKey, secrets: Secrets) -> str:
    """The first check that failed in a trial, and what it said, in a line; "" where its verifier left no word."""
    found = failed_check(batch.job_folder(trial[0]) / trial[1], secrets)
    return flat(": ".join(filter(None, (found.name, found.message))), _CHECK_LETTERS) if found is not None else ""


def last_sign(batch: Batch, trial: TrialKey) -> float | None:
    """Return when a trial last wrote to its logs, or its sandbox saw it do something, in seconds since the epoch."""
    folder = batch.job_folder(trial[0]) / trial[1]
    times = [status.st_mtime for _, status in _files(folder / "agent")]
    for name in ("trial.log", ACTIVITY):
        try:
            times.append((folder / name).lstat().st_mtime)
        except OSError:
            continue
    return max(times, default=None)


def _files(folder: Path) -> list[tuple[str, os.stat_result]]:
    found: list[tuple[str, os.stat_result]] = []
    with contextlib.suppress(OSError):  # it is being made, or moved aside
        if not folder.is_symlink():
            with os.scandir(folder) as entries:
                files = (entry for entry in islice(entries, _LOOKED_AT) if entry.is_file(follow_symlinks=False))
                found.extend((entry.name, entry.stat(follow_symlinks=False)) for entry in files)
    return found


def _last_bytes(path: Path) -> tuple[int, bytes]:
    with open_plain(path) as stream:  # the agent can have put a link or a pipe there since we looked
        if stream is None:
            raise OSError(0, "is not a regular file")
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - TAIL_BYTES))
        return size, stream.read(TAIL_BYTES)
