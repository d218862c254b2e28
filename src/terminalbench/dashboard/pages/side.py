"""Two trials side by side: what each did, step beside step, and where they part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from terminalbench.analytics.atif import Trajectory, TrajectoryStep
from terminalbench.analytics.divergence import Divergence, TrialSide, first_divergence
from terminalbench.analytics.findings.actions import actions_of
from terminalbench.dashboard.frame import (
    Crumb,
    CsvTable,
    NotFound,
    Page,
    PageRequest,
    batch_path,
    pair_path,
    trial_path,
)
from terminalbench.dashboard.pages.files import exported
from terminalbench.dashboard.pages.steps import StepView, signature, step_views
from terminalbench.dashboard.pages.trial import documents, page_number
from terminalbench.dashboard.site import Site

LINES_PER_PAGE = 60
COMPARED_STEPS = 2000
_COLUMNS = ("line", "left_step", "left_calls", "right_step", "right_calls", "same")


@dataclass(frozen=True)
class SideLine:
    """A line of the page: a step of each (positions from 0), or of one alone. `same`: both did the same."""

    left: int | None
    right: int | None
    same: bool


def side_page(site: Site, ask: PageRequest) -> Page:
    """The page of two trials."""
    parts = ask.parts
    other = PageRequest(ask.path, {"slug": parts["slug2"], "number": parts["number2"]})
    sides = [
        _side(site, ask.batch, parts["job"], parts["trial"]),
        _side(site, other.batch, parts["job2"], parts["trial2"]),
    ]
    left, right = (side["trajectory"] for side in sides)
    lines = align(left.steps, right.steps) if left and right else []
    divergence = _divergence(sides)
    fork = _fork(lines, left, right, divergence)
    pages = max(1, -(-len(lines) // LINES_PER_PAGE))
    number = page_number(parts.get("page", "1"))
    if number > pages:
        raise NotFound("no such page")
    first = (number - 1) * LINES_PER_PAGE
    base = ask.path if "page" not in parts else ask.path.rstrip("/").rpartition("/")[0] + "/"
    values: dict[str, Any] = {
        "sides": sides,
        "lines": _shown(lines[first : first + LINES_PER_PAGE], left, right),
        "first": first,
        "fork": fork,
        "divergence": divergence,
        "fork_page": fork // LINES_PER_PAGE + 1 if fork is not None else None,
        "same": sum(line.same for line in lines),
        "before_fork": sum(line.same for line in lines[:fork]),
        "names": _names(sides),
        "total": len(lines),
        "number": number,
        "pages": pages,
        "page_link": lambda page: base if page == 1 else f"{base}{page}/",
        "other_way": pair_path(sides[1]["path"], sides[0]["path"]),
        "exported": lambda size: exported(size, static=ask.static),
    }
    one, two = sides
    return Page(
        title=f"{one['row'].name} beside {two['row'].name}",
        template="side.html",
        values=values,
        crumbs=(Crumb(ask.batch, batch_path(ask.batch)), Crumb(one["row"].name, one["path"])),
        tables={"steps": lambda: _table(lines, left, right)} if not ask.static else {},
        document=(lambda: _document(sides, lines, fork, divergence)) if not ask.static else None,
    )


def _names(sides: list[dict[str, Any]]) -> list[str]:
    """Return what to call the two: by profile; with the attempt, or the batch, where that alone would not tell them
    apart."""
    names = [side["row"].profile or "?" for side in sides]
    if sides[0]["batch"] != sides[1]["batch"]:
        return [f"{name} ({side['batch']})" for name, side in zip(names, sides, strict=True)]
    if names[0] != names[1]:
        return names
    return [f"{name} {side['row'].attempt or side['row'].name}" for name, side in zip(names, sides, strict=True)]


def _side(site: Site, batch: str, job: str, name: str) -> dict[str, Any]:
    row = site.trial(batch, job, name)
    found = documents(site, batch, row)
    trajectory = found[0].trajectory if found else None
    return {
        "batch": batch,
        "row": row,
        "oracle": site.is_oracle(batch, row.profile),
        "path": trial_path(batch, job, name),
        "trajectory": trajectory,
        "problem": found[0].problem if found else "it left no trajectory",
        "elapsed": row.trial.wall_sec if row.trial else None,
    }


def _divergence(sides: list[dict[str, Any]]) -> Divergence | None:
    """The first decision that one made and the other never did, as the analysis sees it."""
    told = []
    for side in sides:
        if side["trajectory"] is None:
            return None
        agent = side["row"].trial.agent if side["row"].trial else None
        compared = replace(side["trajectory"], steps=side["trajectory"].steps[:COMPARED_STEPS])
        told.append(TrialSide(side["row"].name, compared, actions_of(compared, agent)))
    return first_divergence(*told)


def _fork(
    lines: list[SideLine], left: Trajectory | None, right: Trajectory | None, divergence: Divergence | None
) -> int | None:
    """The line at which the decision stands that comes first; else the first line that differs at all."""
    wanted = [(left, "left", divergence.a), (right, "right", divergence.b)] if divergence else []
    places = [
        position
        for position, line in enumerate(lines)
        for trajectory, side, decision in wanted
        if decision is not None and not line.same and _id(trajectory, getattr(line, side)) == decision.step
    ]
    return min(places) if places else first_difference(lines)


def _shown(
    lines: list[SideLine], left: Trajectory | None, right: Trajectory | None
) -> list[tuple[SideLine, StepView | None, StepView | None]]:
    columns = []
    for trajectory, positions in ((left, [line.left for line in lines]), (right, [line.right for line in lines])):
        known = [position for position in positions if position is not None]
        found = step_views(trajectory, known) if trajectory is not None else ()
        views: dict[int | None, StepView] = {view.position - 1: view for view in found}
        columns.append([views.get(position) for position in positions])
    return list(zip(lines, *columns, strict=True))


def _calls(trajectory: Trajectory | None, position: int | None) -> str | None:
    if trajectory is None or position is None:
        return None
    return " ".join(call.name for call in trajectory.steps[position].calls)


def _id(trajectory: Trajectory | None, position: int | None) -> int | None:
    return trajectory.steps[position].id if trajectory is not None and position is not None else None


def _table(lines: list[SideLine], left: Trajectory | None, right: Trajectory | None) -> CsvTable:
    rows = [
        (number, _id(left, x.left), _calls(left, x.left), _id(right, x.right), _calls(right, x.right), x.same)
        for number, x in enumerate(lines, start=1)
    ]
    return CsvTable(_COLUMNS, rows)


def _document(
    sides: list[dict[str, Any]], lines: list[SideLine], fork: int | None, divergence: Divergence | None
) -> dict[str, Any]:
    return {
        "trials": [{"batch": side["batch"], "trial": side["row"]} for side in sides],
        "divergence": divergence,
        "first_difference": lines[fork] if fork is not None else None,
        "lines": lines,
    }


def align(left: Sequence[TrajectoryStep], right: Sequence[TrajectoryStep]) -> list[SideLine]:
    """Every step of both, in order; those that correspond on one line."""
    keys = [[signature(step) for step in side[:COMPARED_STEPS]] for side in (left, right)]
    lines: list[SideLine] = []
    for tag, a1, a2, b1, b2 in SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if tag == "equal":
            lines += [SideLine(a1 + n, b1 + n, True) for n in range(a2 - a1)]
        else:
            lines += _uneven(range(a1, a2), range(b1, b2))
    lines += _uneven(range(len(keys[0]), len(left)), range(len(keys[1]), len(right)))
    return lines


def _uneven(left: range, right: range) -> Iterator[SideLine]:
    for position in range(max(len(left), len(right))):
        yield SideLine(
            left[position] if position < len(left) else None, right[position] if position < len(right) else None, False
        )


def first_difference(lines: Sequence[SideLine]) -> int | None:
    """The first line on which they part, None when they never do."""
    return next((position for position, line in enumerate(lines) if not line.same), None)
