"""The measured part of docs/statistics.md, from the figures `simulate.py --write` keeps. Pure text."""

from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.json"
STATISTICS = HERE.parents[1] / "docs" / "statistics.md"
HEADING = "## How often it is right\n"


def with_figures(document: str, found: dict[str, Any]) -> str:
    """The document with its last section written from the figures."""
    before, heading, _ = document.partition(HEADING)
    if not heading:
        raise ValueError(f"no {HEADING.strip()} in the document")
    return before + HEADING + section(found)


def section(found: dict[str, Any]) -> str:
    """Everything below the heading."""
    parts = [_false_positives(found), _coverage(found), _power(found), _equivalence(found), _looks(found)]
    return INTRODUCTION + "\n" + "\n".join([*parts, _top_up(found)])


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
    worlds = found["false positives"]
    rows = []
    for name, sizes in worlds.items():
        shares = [size["sign-flip"] for size in sizes.values()]
        rows.append([name, _span(shares), _percent(sum(shares) / len(shares), 1)])
    verdicts = found["verdicts"]
    return (
        f"**False positives** of the sign-flip test at alpha 5 %, 20 to 500 tasks x 1 to 10 attempts ({5 * found['reps']:,} draws each,\n"
        "so plus or minus 1 point). It is cautious with few tasks and single attempts; where no task differs it cannot exceed\n"
        "5 % but by the luck of the draws.\n\n"
        + _table(["truth", "says they differ", "on average"], rows)
        + f"\nThe whole of `compare` (40 x 3, {found['few']} draws) called {_percent(verdicts['0%']['decided'], 1)} of identical pairs "
        f"better or worse, and {_percent(verdicts['3%']['decided'], 1)} with 3 % of\ncrashes.\n"
    )


def _coverage(found: dict[str, Any]) -> str:
    questions = ("tasks like these", "these tasks")
    rows = [
        [name, *(_span([size[question] for size in sizes.values() if question in size]) for question in questions)]
        for name, sizes in found["coverage"].items()
    ]
    rates = found["rate coverage"]
    return (
        f"**Coverage** of the 95 % intervals, 20 to 500 tasks x 1 to 10 attempts ({10 * found['reps']:,} draws each):\n\n"
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
        f"({found['reps']} draws, so plus or minus 5 points):\n\n"
        + _table(["", "true gap", "sign-flip by task", "naive z"], rows)
    )


def _equivalence(found: dict[str, Any]) -> str:
    rows = [[size, *(_percent(share, 1) for share in shares.values())] for size, shares in found["equivalence"].items()]
    return (
        "**Equivalence**: how often `equivalent` is said of identical profiles, and where the truth lies just at the margin because\n"
        "tasks that only one profile passes are rare (margin 5 points at 20 tasks, else 10; "
        f"{5 * found['reps']:,} draws). The last column is what\nStudent's interval alone would say.\n\n"
        + _table(["", "identical", "at the margin", "Student's alone"], rows)
    )


def _looks(found: dict[str, Any]) -> str:
    names = {
        "O'Brien-Fleming": "`looks = 5`",
        "e-value": '`looks = "any"`',
        "as if each look were the only one": "peeking, p below 0.05 each time",
        "one look, at the end": "one look, at the end",
    }
    worlds = found["looks"]
    rows = [[shown, *(_percent(world[name]) for world in worlds.values())] for name, shown in names.items()]
    return (
        f"**Five looks** at 80 tasks, after each attempt ({found['few']} draws; share that decides for a difference):\n\n"
        + _table(["", *worlds], rows)
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
        f"**Top-up** of 40 tasks to plus or minus 6 points, beside as many trials spread evenly ({found['few']} draws):\n\n"
        + _table(["", "bias", "typical error", "these tasks covers", "p at most 0.05"], rows)
        + "\nSo a top-up is safe for deciding whether there is a difference. It understates how large the difference is by about a tenth,\n"
        "and its interval about these tasks is a little too narrow. For an unbiased size of the effect, repeat the winner with equal\n"
        "attempts.\n"
    )
