"""docs/design/statistics-measured.md, from the figures `simulate.py --write` keeps. Pure text."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.json"
STATISTICS = HERE.parents[1] / "docs" / "design" / "statistics-measured.md"
HEADING = "## How often it is right\n"


def with_figures(document: str, found: dict[str, Any]) -> str:
    """The document with its last section written from the figures."""
    before, heading, _ = document.partition(HEADING)
    if not heading:
        raise ValueError(f"no {HEADING.strip()} in the document")
    return before + HEADING + section(found)


def section(found: dict[str, Any]) -> str:
    """Everything below the heading."""
    parts = (
        _false_positives,
        _lopsided,
        _smallest_gap,
        _power,
        _equivalence,
        _looks,
        _lost,
        _coverage,
        _top_up,
        _nights,
        _stopping,
        _batches,
        _profiles,
        _months,
    )
    return INTRODUCTION + "\n" + "\n".join(part(found) for part in parts)


INTRODUCTION = """
`make simulate` draws profiles whose truth is known and counts; a small version runs with the tests. Difficulty is U-shaped: a task's
pass probability is Beta(0.5, 0.6). It is seeded: a rerun gives the same figures. They are kept in `tests/simulate/measured.json`, and
this section is written from them (`tests/simulate/simulate.py --write` replaces both). `40 x 5` means 40 tasks, 5 attempts each.
"""


def _percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def _span(shares: list[float]) -> str:
    return f"{100 * min(shares):.1f} to {100 * max(shares):.1f} %"


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines).replace("|  |", "| |") + "\n"


def _false_positives(found: dict[str, Any]) -> str:
    rows = []
    for name, sizes in found["false positives"].items():
        shares = [size["sign-flip"] for size in sizes.values()]
        naive = [size["naive z"] for size in sizes.values()]
        rows.append([name, _span(shares), _percent(sum(shares) / len(shares), 1), _span(naive)])
    return (
        f"**False verdicts** where neither is better, at alpha 5 %, 8 to 500 tasks x 1 to 10 attempts ({found['drawn']['false positives']:,} draws each, so\n"
        f"plus or minus {196 * (0.05 * 0.95 / found['drawn']['false positives']) ** 0.5:.1f} points). These truths fit what the test assumes: the error cannot exceed 5 % but by the luck of the draws. It is\n"
        "cautious with few tasks and single attempts. The last column is the two-proportion z-test on pooled trials.\n\n"
        + _table(["truth", "says they differ", "on average", "naive z"], rows)
    )


def _lopsided(found: dict[str, Any]) -> str:
    rows = [[size, *(_percent(share, 1) for share in shares.values())] for size, shares in found["lopsided"].items()]
    return (
        "**Lopsided truths**, which do not fit it: equal on average, but a few tasks lose much and the others win a little. The worst of five\n"
        f"such truths ({found['drawn']['lopsided']:,} draws each):\n\n"
        + _table(["", "p alone", "p as used (with skewness)", "`strict = true`", "as many trials, 3 a task"], rows)
        + "\nNo test tells such a truth from one in which every task gains: of 12 tasks, 10 % of which lose, 28 % of all runs see no such task. So\n"
        "`compare --details` names a size that errs no more (the last column), and says of each verdict whether it holds under `strict` too.\n"
    )


def _smallest_gap(found: dict[str, Any]) -> str:
    rows = [
        [size, f"{100 * one['planned']:.1f} pt", _percent(one["found"]), _percent(one["found after a run"])]
        for size, one in found["smallest gap"].items()
    ]
    rows += [
        [
            f"{size}, strict",
            f"{100 * one['planned']:.1f} pt",
            _percent(one["found"]),
            _percent(one["found after a run"]),
        ]
        for size, one in found["smallest gap, strict"].items()
    ]
    return (
        "**The smallest gap** that `plan` prints, how often a gap of that size on all tasks is found, and how often the one that `compare`\n"
        f"prints after runs of equal profiles (80 % is promised; {found['drawn']['smallest gap']:,} draws, {found['drawn']['smallest gap, strict']:,} under `strict`):\n\n"
        + _table(["", "planned", "found", "found, as printed after a run"], rows)
    )


def _coverage(found: dict[str, Any]) -> str:
    questions = ("tasks like these", "these tasks")
    rows = [
        [name, *(_span([size[question] for size in sizes.values() if question in size]) for question in questions)]
        for name, sizes in found["coverage"].items()
    ]
    rates = found["rate coverage"]
    return (
        f"**Coverage** of the 95 % intervals, 20 to 200 tasks x 1 to 10 attempts ({found['drawn']['coverage']:,} draws each,\nso plus or minus {196 * (0.05 * 0.95 / found['drawn']['coverage']) ** 0.5:.1f} points):\n\n"
        + _table(["truth", *questions], rows)
        + f"\nOne profile's interval at the effective number of trials covers {_span([r['effective n'] for r in rates.values()])}; "
        "pooling all trials as if they were\n"
        f"independent covers {_percent(rates['40 x 5']['pooled'])} (40 x 5) or {_percent(rates['200 x 10']['pooled'])} (200 x 10).\n"
    )


def _power(found: dict[str, Any]) -> str:
    rows = [
        [size, name, _percent(shares["sign-flip"]), _percent(shares["naive z"])]
        for name, sizes in found["power"].items()
        for size, shares in sizes.items()
    ]
    return (
        "**Power** beside the two-proportion z-test on pooled trials, which ignores that both profiles attempted the same tasks\n"
        f"({found['drawn']['power']:,} draws):\n\n" + _table(["", "true gap", "sign-flip by task", "naive z"], rows)
    )


def _equivalence(found: dict[str, Any]) -> str:
    rows = [[size, *(_percent(share, 1) for share in shares.values())] for size, shares in found["equivalence"].items()]
    exact = found["at the margin"]
    worst = " and ".join(
        f"{_percent(one['rate'], 2)} (margin {margin}, {one['tasks']:.0f} tasks)" for margin, one in exact.items()
    )
    return (
        "**Equivalence**. The hardest case is a share of tasks, as large as the margin, that one profile never passes and the other always.\n"
        f"Counted out exactly for every number of tasks from 20 to 200, `equivalent` is said there in at most\n{worst}.\n"
        f"How often it is said of identical profiles, and at the margin (5 points at 20 tasks, else 10; {found['drawn']['equivalence']:,} draws), where few tasks are\n"
        "lost outright and where every task is worse by the margin:\n\n"
        + _table(["", "identical", "few lost outright", "all a little worse"], rows)
    )


def _looks(found: dict[str, Any]) -> str:
    names = {
        "O'Brien-Fleming": "`looks = 5`",
        "at any time": '`looks = "any"`',
        "grown, corrected": "grown night by night, nothing declared, as judged",
        "grown by tasks, corrected": "grown by ten tasks a night, as judged",
        "as if each look were the only one": "peeking, p below 0.05 each time",
        "one look, at the end": "one look, at the end",
    }
    worlds = found["looks"]
    rows = [[shown, *(_percent(world[name]) for world in worlds.values())] for name, shown in names.items()]
    return (
        f"**Five looks** at 50 tasks, after each attempt ({found['drawn']['looks']:,} draws, so plus or\nminus {196 * (0.05 * 0.95 / found['drawn']['looks']) ** 0.5:.1f} points where neither is better; share that decides for a difference):\n\n"
        + _table(["", *worlds], rows)
    )


def _lost(found: dict[str, Any]) -> str:
    same, gain = (found["verdicts"][name] for name in ("identical", "+10 pt"))
    rows = [
        [loss, _percent(same[loss]["better"] + same[loss]["worse"], 1), _percent(gain[loss]["better"], 1)]
        for loss in same
    ]
    return (
        f"**Trials that were lost**: how often the whole of `compare` says better or worse (60 x 3, coverage 80 %, {found['drawn']['verdicts']:,} draws: each is\n"
        "all of `compare`, and 1,000 of the 18 cases take well over 10 minutes). A verdict\n"
        "must survive the worst that the lost trials can have been, so it is safe whatever was lost, and the power goes: run them again.\n"
        "What crashed and was drawn again cannot be got back; of it, too, the first result is counted at its worst.\n\n"
        + _table(["lost", "identical", "+10 pt, better"], rows)
    )


def _top_up(found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{100 * one['bias']:+.1f} pt",
            f"{100 * one['error']:.1f} pt",
            _percent(one["covered"]),
            _percent(one["rejected"]),
        ]
        for name, one in found["top-up"].items()
    ]
    return (
        f"**Top-up** of 50 tasks to plus or minus 6 points, beside as many trials spread evenly ({found['drawn']['top-up']:,} draws):\n\n"
        + _table(["", "bias", "typical error", "these tasks covers", "p at most 0.05"], rows)
        + "\nSo a top-up is safe for deciding whether there is a difference. It understates how large the difference is by about a twentieth,\n"
        "and its interval about these tasks is a little too narrow. For an unbiased size of the effect, repeat the winner with equal\n"
        "attempts.\n"
    )


def _nights(found: dict[str, Any]) -> str:
    names = ("alert", "spread beyond luck", "loses 15 points", "loses 30 points")
    rows = [[size, *(_percent(one[name], 1) for name in names)] for size, one in found["nights"].items()]
    return (
        f"**Nights** of ten iterations ({found['drawn']['nights']:,} of each kind), tasks with rates from 5 to 95 %. Where nothing changes: how often an alert is raised,\n"
        "and how often the spread is called more than luck (each may be 5 %). And how often the last iteration is alerted when every\n"
        "task loses so many points of its rate, as far as it has them.\n\n"
        + _table(["", "quiet: alert", "quiet: more than luck", "loses 15 points", "loses 30 points"], rows)
    )


def _stopping(found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            f"{100 * one['gap']:+z.1f} pt",
            _percent(one["saved"]),
            _percent(one["given up"]),
            _percent(one["told"], 1),
            _percent(one["told, never giving up"], 1),
            "-" if one["gap"] < 0.01 else f"{100 * one['overstated']:+.1f} pt",
        ]
        for name, one in found["stopping"].items()
    ]
    return (
        f'**Runs that end early** (`looks = "any"`, 100 x 3, {found["drawn"]["stopping"]:,} draws each): trials spared beside the whole plan, how often a\n'
        "pair was given up, how often a difference was told, how often it would be without giving up, and by how much the\n"
        "difference that was told is too large on average. Where neither is better, what is told is false.\n\n"
        + _table(["", "true gap", "spared", "given up", "told", "told, never giving up", "told too large by"], rows)
    )


def _batches(found: dict[str, Any]) -> str:
    rows = [[name, *(_percent(share, 1) for share in shares.values())] for name, shares in found["batches"].items()]
    return (
        f"**The same profiles run again** (40 x 3 a batch, {found['drawn']['batches']:,} draws): how often a batch says that they differ when one may name\n"
        "whichever one likes, and how often all together do: looked at after each batch where nothing was declared, and once at the\n"
        "end where `planned_trials` was.\n\n"
        + _table(["", "any one, named alone", "all, as judged", "all, declared", "the first alone"], rows)
    )


def _profiles(found: dict[str, Any]) -> str:
    rows = [
        [
            name,
            _percent(one["coverage"], 1),
            "-" if one["rank coverage"] != one["rank coverage"] else _percent(one["rank coverage"], 1),
            _percent(one["shown worse"], 1),
            f"{100 * one['best overstated']:+.1f} pt",
            f"{100 * one['best overstated, pooled']:+.1f} pt",
        ]
        for name, one in found["profiles"].items()
    ]
    return (
        f"**Many profiles** ({found['drawn']['profiles']:,} draws; the last number is the spread of their true effects in points, 0: all identical): how often the\n"
        "95 % intervals of pooled rates and of ranks hold the truth, how often at least one profile is shown worse than another (false\n"
        "where all are identical), and by how much the best is overstated as measured and as pooled.\n\n"
        + _table(["", "rate", "rank", "one shown worse", "best, measured", "best, pooled"], rows)
        + "\nRanks are whole numbers: the fewest that hold 95 % hold more where profiles are few.\n"
    )


def _months(found: dict[str, Any]) -> str:
    rows = [[size, *(_percent(share, 1) for share in shares.values())] for size, shares in found["months"].items()]
    return (
        f"**Quiet months**: 31 nights of two profiles in which nothing changes, each compared with the night before ({found['drawn']['months']:,} months). How\n"
        "often at least one sentence says better or worse, and how often it would at 5 % each.\n\n"
        + _table(["", "as judged", "each at 5 %"], rows)
    )
