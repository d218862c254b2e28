"""The reward that the tests have written, read as what it has to be: a plain file with finite numbers."""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

from harbor.verifier.verifier import RewardFileEmptyError, RewardFileNotFoundError, VerifierOutputParseError

from terminalbench.files import read_plain

REWARDS = ("reward.json", "reward.txt")
_SIZE_LIMIT = 1 << 20
_MOST_FILES = 500


class BlockedReward(VerifierOutputParseError):
    """What bears the reward's name is a folder, a link, a pipe, or larger than any reward."""


def reward_file(folder: Path, sources: Sequence[Path], ignored: list[str]) -> str:
    """The name of the file that counts: of two, the one the task's own tests name, else the JSON one as in Harbor.

    `sources` are the folders of the tests; the other file is added to those `ignored`.
    """
    there = [name for name in REWARDS if os.path.lexists(folder / name)]
    if not there:
        raise RewardFileNotFoundError(f"No reward file found in {folder}")
    if len(there) > 1:
        named = [name for name in there if mentions(sources, name)]
        if len(named) == 1:
            ignored.extend(name for name in there if name != named[0])
            return named[0]
    return there[0]


def read_rewards(file: Path) -> dict[str, float | int]:
    """The rewards in a file, by name; raises one of Harbor's errors when there are none."""
    data, name = read_plain(file, _SIZE_LIMIT), file.name
    if data is None:
        raise BlockedReward(f"{name} is not a plain file of at most {_SIZE_LIMIT} bytes")
    if not data.strip():
        raise RewardFileEmptyError(f"{name} is empty")
    try:
        rewards = json.loads(data) if name.endswith(".json") else {"reward": float(data)}
    except (ValueError, RecursionError) as error:
        raise VerifierOutputParseError(f"cannot read a reward from {name}: {error}") from error
    if not isinstance(rewards, dict) or not all(_is_number(value) for value in rewards.values()):
        raise VerifierOutputParseError(f"{name} holds something other than finite numbers by name")
    return rewards


def mentions(folders: Sequence[Path], text: str) -> bool:
    """Return whether any small file of the task's tests has this in its text."""
    for folder in folders:
        for path in sorted(folder.rglob("*"))[:_MOST_FILES]:
            data = read_plain(path, _SIZE_LIMIT)
            if data is not None and text.encode() in data:
                return True
    return False


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
