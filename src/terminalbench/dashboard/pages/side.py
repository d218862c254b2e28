"""Two trials side by side: what each did, step beside step, and where they part."""

from typing import Any

from terminalbench.analytics.atif import Trajectory
from terminalbench.analytics.divergence import Divergence, Told, first_divergence
from terminalbench.analytics.findings.actions import actions_of
from terminalbench.dashboard.frame import Ask, Crumb, NotFound, Page, Table
from terminalbench.dashboard.links import batch_path, pair_path, trial_path
from terminalbench.dashboard.pages.alignment import Beside, align, first_difference
from terminalbench.dashboard.pages.files import exported
from terminalbench.dashboard.pages.steps import StepView, step_views
from terminalbench.dashboard.pages.trial import documents
from terminalbench.dashboard.site import Site
from terminalbench.index.queries import TrialRow

LINES_PER_PAGE = 60
_COLUMNS = ("line", "left_step", "left_calls", "right_step", "right_calls", "same")


def side_page(site: Site, ask: Ask) -> Page:
    """The page of two trials."""
    parts = ask.parts
    other = Ask(ask.path, {"slug": parts["slug2"], "number": parts["number2"]})
    sides = [
        _side(site, ask.batch, parts["job"], parts["trial"]),
        _side(site, other.batch, parts["job2"], parts["trial2"]),
    ]
    left, right = (side["trajectory"] for side in sides)
    lines = align(left.steps, right.steps) if left and right else []
    divergence = _divergence(sides)
    fork = _fork(lines, left, right, divergence)
    pages = max(1, -(-len(lines) // LINES_PER_PAGE))
    number = _page(parts.get("page", "1"), pages)
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
        "total": len(lines),
        "number": number,
        "pages": pages,
        "page_link": lambda page: base if page == 1 else f"{base}{page}/",
        "other_way": _swapped(sides),
        "exported": lambda size: exported(size, static=ask.static),
    }
    one, two = sides
    return Page(
        title=f"{one['row'].name} beside {two['row'].name}",
        template="side.html",
        values=values,
        crumbs=(Crumb(ask.batch, batch_path(ask.batch)), Crumb(one["row"].name, one["path"])),
        tables={"steps": lambda: _table(lines, left, right)},
        document=lambda: _document(sides, lines, fork, divergence),
    )


def _side(site: Site, batch: str, job: str, name: str) -> dict[str, Any]:
    row = site.trial(batch, job, name)
    found = documents(site, batch, row)
    trajectory = found[0].trajectory if found else None
    return {
        "batch": batch,
        "row": row,
        "path": trial_path(batch, job, name),
        "trajectory": trajectory,
        "problem": found[0].problem if found else "it left no trajectory",
        "elapsed": _elapsed(row),
    }


def _divergence(sides: list[dict[str, Any]]) -> Divergence | None:
    """The first decision that one made and the other never did, as the analysis sees it."""
    told = []
    for side in sides:
        if side["trajectory"] is None:
            return None
        agent = side["row"].trial.agent if side["row"].trial else None
        told.append(Told(side["row"].name, side["trajectory"], actions_of(side["trajectory"], agent)))
    return first_divergence(*told)


def _fork(
    lines: list[Beside], left: Trajectory | None, right: Trajectory | None, divergence: Divergence | None
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


def _elapsed(row: TrialRow) -> float | None:
    return row.trial.wall_sec if row.trial else None


def _page(text: str, pages: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and 1 <= int(text) <= pages):
        raise NotFound("no such page")
    return int(text)


def _shown(
    lines: list[Beside], left: Trajectory | None, right: Trajectory | None
) -> list[tuple[Beside, StepView | None, StepView | None]]:
    views = [
        _views(trajectory, [p for p in positions if p is not None])
        for trajectory, positions in (
            (left, [line.left for line in lines]),
            (right, [line.right for line in lines]),
        )
    ]
    return [
        (
            line,
            views[0].get(line.left) if line.left is not None else None,
            views[1].get(line.right) if line.right is not None else None,
        )
        for line in lines
    ]


def _views(trajectory: Trajectory | None, positions: list[int]) -> dict[int, StepView]:
    if trajectory is None or not positions:
        return {}
    return {view.position - 1: view for view in step_views(trajectory, min(positions), max(positions) + 1)}


def _swapped(sides: list[dict[str, Any]]) -> str:
    return pair_path(sides[1]["path"], sides[0]["path"])


def _calls(trajectory: Trajectory | None, position: int | None) -> str | None:
    if trajectory is None or position is None:
        return None
    return " ".join(call.name for call in trajectory.steps[position].calls)


def _id(trajectory: Trajectory | None, position: int | None) -> int | None:
    return trajectory.steps[position].id if trajectory is not None and position is not None else None


def _table(lines: list[Beside], left: Trajectory | None, right: Trajectory | None) -> Table:
    rows = [
        (number, _id(left, x.left), _calls(left, x.left), _id(right, x.right), _calls(right, x.right), x.same)
        for number, x in enumerate(lines, start=1)
    ]
    return Table(_COLUMNS, rows)


def _document(
    sides: list[dict[str, Any]], lines: list[Beside], fork: int | None, divergence: Divergence | None
) -> dict[str, Any]:
    return {
        "trials": [{"batch": side["batch"], "trial": side["row"]} for side in sides],
        "divergence": divergence,
        "first_difference": lines[fork] if fork is not None else None,
        "lines": lines,
    }
