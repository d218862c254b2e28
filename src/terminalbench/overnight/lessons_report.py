"""What a night with lessons learned and gained: one section of its report, made from its batches and reflections."""

from collections.abc import Sequence
from typing import Any

import msgspec

from terminalbench.archivist.gains import GAIN_COLUMNS, Gain, exposed, gain_row, verdict_said
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightConfig
from terminalbench.overnight.reflections import Reflection, read_reflections
from terminalbench.records.values import known_total
from terminalbench.report.markdown import escaped, table
from terminalbench.text.numbers import cost, plural, points, some

SHOWN = 60
"""Reflections in the report; `summary.json` has all."""


class LessonsSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The learning of a night. `gains` are over its own batches; what reflection cost is part of the night's cost."""

    mode: str
    reflector: str
    gains: list[Gain]
    reflections: list[Reflection]
    cost_usd: float | None
    cost_unknown: int

    @property
    def active(self) -> list[str]:
        """The lessons that it wrote or supported, and that are told to agents."""
        return list(dict.fromkeys(name for one in self.reflections for name in one.active))

    @property
    def retired(self) -> list[str]:
        """The lessons that its trials retired."""
        return list(dict.fromkeys(name for one in self.reflections for name in one.retired))


def summarise_lessons(folder: NightFolder, config: NightConfig, numbers: Sequence[int]) -> LessonsSummary | None:
    """What the iterations of a night learned and gained; None where it was not asked to learn."""
    if config.lessons is None:
        return None
    found = read_reflections(folder, numbers)
    costs = [one.cost_usd for one in found if one.asked]
    return LessonsSummary(
        mode=config.lessons.mode,
        reflector=config.lessons.model or "our own rules",
        gains=exposed([folder.results_root]).gains(),
        reflections=found,
        cost_usd=known_total(costs),
        cost_unknown=costs.count(None),
    )


def lessons_lines(found: LessonsSummary) -> list[str]:
    """The section in sentences: first what was gained."""
    lines = [_gained(one) for one in found.gains]
    if not lines:
        lines = ["No lesson was eligible for a trial yet: nothing can be said of a gain."]
    lines.append(
        f"{plural(len(found.active), 'lesson')} written or supported and in use, "
        f"{plural(len(found.retired), 'lesson')} retired by effect, by {found.reflector}"
        + (f" for {cost(found.cost_usd, found.cost_unknown)}" if any(one.asked for one in found.reflections) else "")
    )
    lines += [f"iteration {one.iteration}: {one.stopped}" for one in found.reflections if one.stopped]
    return lines


def _gained(gain: Gain) -> str:
    name = f"{str(gain.kind).capitalize()} gain of {gain.profile} against {gain.control}"
    if gain.difference is None:
        return f"{name}: unknown ({gain.note or 'no task was measured under both'})"
    inside = f", 95 % from {points(gain.low)} to {points(gain.high)}" if gain.low is not None else ""
    said = f"{name}: {points(gain.difference)}{inside}, over {plural(gain.tasks, 'task')}"
    said += f", {gain.trials} and {gain.control_trials} trials: {verdict_said(gain)}"
    return f"{said} (simulated)" if gain.simulated else said


REFLECTION_COLUMNS = ("iteration", "trigger", "why", "in use", "held back", "refused", "counted", "cost")


def reflection_row(one: Reflection) -> tuple[str, ...]:
    """A reflection in a table."""
    names = some(one.active, 3) if one.active else "-"
    spent = cost(one.cost_usd) if one.asked else "-"
    counts = (str(len(one.held)), str(one.refused), str(one.counted))
    return (str(one.iteration), one.trigger or "-", one.why or "-", names, *counts, spent)


def lessons_markdown(found: LessonsSummary | None) -> list[str]:
    """The section of the report; none where the night was not asked to learn."""
    if found is None:
        return []
    parts = [f"## Lessons ({found.mode})", "\n".join(f"- {escaped(line)}" for line in lessons_lines(found))]
    if found.gains:
        parts.append(table(GAIN_COLUMNS, [gain_row(one) for one in found.gains]))
    if found.reflections:
        parts.append(table(REFLECTION_COLUMNS, [reflection_row(one) for one in found.reflections[-SHOWN:]]))
    return ["\n\n".join(parts)]


def lessons_html(found: LessonsSummary | None) -> dict[str, Any]:
    """What the template of the report needs for the same section."""
    if found is None:
        return {"lessons": ()}
    return {
        "lessons": lessons_lines(found),
        "gain_columns": GAIN_COLUMNS,
        "gains": [gain_row(one) for one in found.gains],
        "reflection_columns": REFLECTION_COLUMNS,
        "reflections": [reflection_row(one) for one in found.reflections[-SHOWN:]],
    }
