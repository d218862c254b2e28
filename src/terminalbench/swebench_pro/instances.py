"""A folder of instance tasks, as `tbench swebench-pro tasks` writes it: what is in it, and which of it is wanted."""

import hashlib
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.swebench_pro.dataset import Instance

MARK = "swebench_pro"
"""The key of `[metadata]` that says that a task is an instance."""
_ID = re.compile(r"instance_(.+)-([0-9a-f]{40})(?:-v\w+)?")
_DIGITS = 8


@dataclass(frozen=True)
class TaskInstance:
    """An instance as a task. The name of its folder is its id: neither prompt nor environment know it."""

    instance_id: str
    folder: Path
    repo: str
    language: str
    base_commit: str


type NamedInstance = Instance | TaskInstance
"""An instance, as a row or as a task."""


def short_id(instance_id: str) -> str:
    """An instance as tables and charts name it: its repository and the first digits of its commit."""
    found = _ID.fullmatch(instance_id)
    return f"{found[1]}-{found[2][:_DIGITS]}" if found is not None else instance_id


def read_folder(folder: Path) -> list[TaskInstance]:
    """The instances in a folder, by id; other tasks in it are passed over."""
    if not folder.is_dir():
        raise UserError("no such folder", where=str(folder), hint="tbench swebench-pro tasks creates one")
    found = []
    for file in sorted(folder.glob("*/task.toml")):
        try:
            metadata = tomllib.loads(file.read_text("utf-8")).get("metadata", {})
        except (OSError, ValueError) as error:
            raise UserError(f"cannot be read: {error}", where=str(file)) from error
        if metadata.get(MARK) is not True:
            continue
        said = {name: str(metadata.get(name, "")) for name in ("repo", "language", "base_commit")}
        found.append(TaskInstance(file.parent.name, file.parent, **said))
    if not found:
        raise UserError("contains no instances", where=str(folder), hint="tbench swebench-pro tasks creates them")
    return found


@dataclass(frozen=True)
class Picks:
    """Which instances are wanted: of a language, with one of `parts` in their id, of those the first `most`.

    Of these a `sample` is drawn by `seed`, from each repository or language its share; 0 is all. Of `shard` (i, n),
    every n-th of what is left, from the i-th on.
    """

    language: str | None = None
    parts: tuple[str, ...] = ()
    most: int = 0
    sample: int = 0
    seed: int = 0
    stratify: str = "repository"
    shard: tuple[int, int] | None = None

    def wants(self, one: NamedInstance) -> bool:
        """Return whether an instance is of the wanted language and has one of `parts` in its id."""
        of_language = self.language is None or one.language == self.language
        return of_language and (not self.parts or any(part in one.instance_id for part in self.parts))


def select[N: NamedInstance](instances: Iterable[N], picks: Picks) -> list[N]:
    """Return the instances that are wanted, in their order.

    A larger sample by the same seed holds the smaller one, in every shard: an experiment grows by it.
    """
    wanted = [one for one in instances if picks.wants(one)]
    wanted = wanted[: picks.most] if picks.most else wanted
    drawn = _drawn(wanted, picks)[: picks.sample] if picks.sample else wanted
    if picks.shard is not None:
        first, step = picks.shard
        drawn = drawn[first - 1 :: step]
    kept = {one.instance_id for one in drawn}
    return [one for one in wanted if one.instance_id in kept]


def _drawn[N: NamedInstance](instances: Sequence[N], picks: Picks) -> list[N]:
    """Return all instances in an order of which each beginning is a sample: every stratum has its share of it."""

    def lot(text: str) -> bytes:
        return hashlib.sha256(f"{picks.seed}\0{text}".encode()).digest()

    strata: dict[str, list[N]] = {}
    for one in instances:
        strata.setdefault(one.language if picks.stratify == "language" else one.repo, []).append(one)
    placed = []
    for name, members in strata.items():
        members.sort(key=lambda one: lot(one.instance_id))
        placed += [((place + 0.5) / len(members), lot(name), one) for place, one in enumerate(members)]
    placed.sort(key=lambda item: item[:2])
    return [one for _, _, one in placed]


def counted(names: Iterable[str]) -> dict[str, int]:
    """Return how often each name stands there, from many to few."""
    return dict(sorted(Counter(names).items(), key=lambda item: (-item[1], item[0])))
