"""A night of training in the morning report: what was tried, kept and rejected, at what cost, and what is claimed.

The trainer writes it into the folder of the night; here it is only read and told.
"""

from typing import Any

import msgspec

from terminalbench.json_files import read_json
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightConfig
from terminalbench.report.markdown import escaped, table

COMPARISON_COLUMNS = ("part", "profile", "what came of it")


class TrainedNight(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One night of a training. `lines` say what came of it, `comparisons` are all that were declared.

    `stopped` is why it is not over, and `cost_usd` what it has cost so far.
    """

    training: str
    night: int
    lines: list[str]
    comparisons: list[tuple[str, str, str]] = []
    cost_usd: float | None = None
    cost_unknown: int = 0
    stopped: str | None = None


def read_trained(folder: NightFolder) -> TrainedNight | None:
    """What was trained in a night; None where nothing was, or not yet."""
    return read_json(folder.training_json, TrainedNight) if folder.training_json.is_file() else None


def training_stopped(folder: NightFolder, config: NightConfig) -> str | None:
    """Why the training that a night ends with is not over; None where it is, or there is none."""
    if config.learn is None:
        return None
    found = read_trained(folder)
    return found.stopped if found is not None else "its training has not begun"


def training_markdown(found: TrainedNight | None) -> list[str]:
    """The section of the report; none where the night did not train."""
    if found is None:
        return []
    parts = [f"## Training {escaped(found.training)}, night {found.night}"]
    parts.append("\n".join(f"- {escaped(line)}" for line in found.lines))
    if found.comparisons:
        parts.append(table(COMPARISON_COLUMNS, found.comparisons))
    return ["\n\n".join(parts)]


def training_html(found: TrainedNight | None) -> dict[str, Any]:
    """What the template of the report needs for the same section."""
    return {"trained": found, "comparison_columns": COMPARISON_COLUMNS}
