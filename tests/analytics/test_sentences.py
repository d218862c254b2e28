"""Every sentence of `compare` on random trees, read back and computed again from the outcomes alone."""

import re
from fractions import Fraction
from itertools import combinations, product
from random import Random
from statistics import fmean, stdev

import numpy as np
import pytest

from support.rows import Marks, rows, settings
from terminalbench.analytics import stats
from terminalbench.analytics.compare import compare
from terminalbench.analytics.model import Comparison, Contrast
from terminalbench.report.comparison import comparison_text

TREES = 80
HEAD = re.compile(
    r"^(?P<new>\w+) vs (?P<old>\w+): (?P<gap>[+-][\d.]+) pt"
    r"(?: \((?P<low>[+-][\d.]+) to (?P<high>[+-][\d.]+)\))?, (?P<wins>\d+) tasks? better, (?P<losses>\d+) worse"
    r"(?:, p (?P<how>=|<) (?P<p>[\d.]+))?: (?P<verdict>better|worse|equivalent|inconclusive)(?P<rest>.*)$"
)
RESTS = (
    r"",
    r"; (?P<trials>\d+) trials? can only show gaps above (?P<gap>[\d.]+) pt",
    r"; (?P<trials>\d+) trials? on (?P<tasks>\d+) tasks? are too few: they would show no gap that can exist 4 times in 5",
    r"; (?P<tasks>\d+) tasks? can never show a difference at this alpha",
    r', because "(?P<verdict>\w+)" would not hold if (?P<which>.+?)(?P<less>, perhaps fewer,)? '
    r"(?:went against it|favoured the same profile)",
    r", because only (?P<share>[\d.]+) % of what (?P<profile>\w+) was to do was measured \(90.0 % wanted\)",
    r", because only (?P<tasks>\d+) of (?P<of>\d+) tasks are the same for both \(90.0 % wanted\)",
)


def tree(seed: int) -> Marks:
    """Random outcomes of two to four profiles, some of them lost."""
    random = Random(seed)
    tasks, attempts = random.randint(1, 10), random.randint(1, 3)
    lost = random.choice([0.0, 0.0, 0.03, 0.08, 0.3])
    found: dict[str, dict[str, str]] = {}
    for name in "abcd"[: random.randint(2, 4)]:
        rate = random.choice([0.05, 0.5, 0.95])
        found[name] = {
            f"t{task}": "".join(
                random.choice("ETC.")
                if random.random() < lost
                else random.choice("+x")
                if rate == 0.5
                else "+"
                if random.random() < rate
                else "x"
                for _ in range(attempts)
            )
            for task in range(tasks)
        }
    return found


def measured(marks: Marks, new: str, old: str) -> dict[str, tuple[Fraction, Fraction]]:
    """The pass rate of each task that both were measured on."""
    sides = [
        {task: [mark == "+" for mark in word if mark in "+x"] for task, word in marks[name].items()}
        for name in (new, old)
    ]
    return {
        task: (Fraction(sum(sides[0][task]), len(sides[0][task])), Fraction(sum(sides[1][task]), len(sides[1][task])))
        for task in sides[0]
        if sides[0][task] and sides[1][task]
    }


def exact_p(values: list[Fraction]) -> float:
    """Over all signs, one by one, with what skewness adds."""
    total = abs(sum(values))
    flips = [
        abs(sum(sign * value for sign, value in zip(signs, values, strict=True)))
        for signs in product((1, -1), repeat=len(values))
    ]
    floats = [float(value) for value in values]
    second = fmean(value**2 for value in floats)
    if not total or not second:
        return 1.0
    mean_sign = 1 if sum(values) > 0 else -1
    against = max(0.0, -mean_sign * fmean(value**3 for value in floats) / second**1.5)
    x = float(total) / (len(values) * second) ** 0.5
    added = (
        against
        * (2 * x * x + 1)
        * 2.718281828459045 ** (-x * x / 2)
        / (3 * (2 * 3.141592653589793 * len(values)) ** 0.5)
    )
    return min(1.0, sum(flip >= total for flip in flips) / len(flips) + added)


@pytest.fixture(scope="module")
def trees() -> list[tuple[Marks, Comparison]]:
    """Each with its comparison of all profiles against the first."""
    made = []
    for seed in range(TREES):
        marks = tree(seed)
        pairs = tuple((name, "a") for name in list(marks)[1:])
        made.append((marks, compare(rows(marks), settings(contrasts=pairs))))
    return made


def test_every_sentence_says_what_the_outcomes_say(trees: list[tuple[Marks, Comparison]]) -> None:
    read = 0
    for marks, comparison in trees:
        ps: list[float | None] = []
        for contrast in comparison.contrasts:
            both = measured(marks, contrast.new, contrast.old)
            ps.append(exact_p([new - old for new, old in both.values()]) if both else None)
        for contrast, p in zip(comparison.contrasts, stats.holm(ps), strict=True):
            both = measured(marks, contrast.new, contrast.old)
            if not both:
                assert contrast.sentence.endswith("inconclusive")
                continue
            said = HEAD.match(contrast.sentence)
            assert said is not None, contrast.sentence
            read += 1
            values = [new - old for new, old in both.values()]
            gap = 100 * float(sum(values) / len(values))
            assert float(said["gap"]) == pytest.approx(gap, abs=0.051)
            assert (int(said["wins"]), int(said["losses"])) == (sum(v > 0 for v in values), sum(v < 0 for v in values))
            assert p is not None
            _p_is(said, p)
            if said["verdict"] in ("better", "worse"):
                assert p <= 0.05 + 1e-9
                assert (gap > 0) is (said["verdict"] == "better")
                assert _survives(marks, contrast, comparison), contrast.sentence
            _interval_holds(said, values, p, comparison)
            _rest_holds(said["rest"], marks, contrast, len(both))
    assert read > TREES


def _p_is(said: re.Match[str], p: float) -> None:
    if said["how"] == "<":
        assert p < 0.001
    else:
        assert float(said["p"]) == pytest.approx(p, rel=0.06, abs=0.0006)


def _interval_holds(said: re.Match[str], values: list[Fraction], p: float, comparison: Comparison) -> None:
    """It is around the difference, not narrower than Student's at 95 %, and without zero only where p excludes it."""
    if said["low"] is None:
        assert len(values) == 1
        return
    low, high, gap = float(said["low"]), float(said["high"]), float(said["gap"])
    assert low <= gap <= high
    if not low <= 0 <= high:
        assert p <= comparison.alpha + 1e-9
    if len(set(values)) > 1:
        half = 1.96 * 100 * stdev(map(float, values)) / len(values) ** 0.5
        assert low <= max(gap - half, -100.0) + 0.06
        assert high >= min(gap + half, 100.0) - 0.06


def _survives(marks: Marks, contrast: Contrast, comparison: Comparison) -> bool:
    """Whether the sign of the difference stays when every lost trial went against it."""
    against = ("x", "+") if contrast.verdict == "better" else ("+", "x")
    worst = {
        name: {task: "".join(mark if mark in "+x" else put for mark in word) for task, word in marks[name].items()}
        for name, put in ((contrast.new, against[0]), (contrast.old, against[1]))
    }
    both = measured(worst, contrast.new, contrast.old)
    total = sum(new - old for new, old in both.values())
    return total > 0 if contrast.verdict == "better" else total < 0


def _rest_holds(rest: str, marks: Marks, contrast: Contrast, tasks: int) -> None:
    """What stands after the verdict is one of the known claims, and true."""
    found = next((said for pattern in RESTS if (said := re.fullmatch(pattern, rest))), None)
    assert found is not None, rest
    told = found.groupdict()
    words = [word for name in (contrast.new, contrast.old) for word in marks[name].values()]
    if told.get("tasks") is not None and told.get("of") is None:
        assert int(told["tasks"]) == tasks
    if told.get("gap") is not None:
        old = contrast.estimate.old or 0.0
        assert float(told["gap"]) <= 100 * max(old, 1 - old) + 0.05, "a gap that can exist"
    if told.get("trials") is not None and not any(mark in "ETC." for word in words for mark in word):
        assert int(told["trials"]) == sum(map(len, words))
    if told.get("share") is not None:
        own = "".join(marks[told["profile"]].values())
        assert float(told["share"]) == pytest.approx(100 * sum(mark in "+x" for mark in own) / len(own), abs=0.051)
    if told.get("of") is not None:
        assert (int(told["tasks"]), int(told["of"])) == (tasks, len(marks[contrast.new]))
    if told.get("which") is not None:
        assert contrast.missing is not None
        lost = _lost(marks, contrast)
        count = re.match(r"(\d+) of (\d+) missing trials?$", told["which"])
        assert count is not None, told["which"]
        assert contrast.missing.undone_by == int(count[1] or count[3] or 1)
        assert len(lost) == int(count[2] or count[3] or 1)


def _lost(marks: Marks, contrast: Contrast) -> list[tuple[str, str, int]]:
    """The trials without a verdict of tasks that one of the two has begun: whose, of which task, which attempt."""
    names = (contrast.new, contrast.old)
    begun = [task for task in marks[contrast.new] if any(set(marks[name][task]) - {"."} for name in names)]
    return [
        (name, task, place)
        for name in names
        for task in begun
        for place, mark in enumerate(marks[name][task])
        if mark not in "+x"
    ]


def _holds(marks: Marks, contrast: Contrast, against: set[tuple[str, str, int]], *, better: bool) -> bool:
    """Whether the difference is shown when these lost trials went against it, and all others for it."""
    lost = set(_lost(marks, contrast))
    whole: dict[str, dict[str, str]] = {}
    for name in (contrast.new, contrast.old):
        good = "+" if better is (name == contrast.new) else "x"
        whole[name] = {
            task: "".join(
                mark
                if (name, task, place) not in lost
                else {"+": "x+", "x": "+x"}[good][(name, task, place) not in against]
                for place, mark in enumerate(word)
            )
            for task, word in marks[name].items()
        }
    values = [new - old for new, old in measured(whole, contrast.new, contrast.old).values()]
    return exact_p(values) <= 0.05 + 1e-9 and (sum(values) > 0) is better


def shown_gain(cells: list[tuple[int, int, int, int]], gap: float, level: float, seed: int, draws: int = 1500) -> float:
    """How often the exact test shows that new is better by `gap`: made-up outcomes of as many tasks like these, in which
    each failed attempt of new passes with that chance, and each passed one of old fails.
    """
    random = np.random.default_rng(seed)
    drawn = np.array(cells)[random.integers(len(cells), size=(draws, len(cells)))]
    swapped = random.random((draws, len(cells), 1)) < 0.5
    new, of_new, old, of_old = np.moveaxis(np.where(swapped, drawn[..., [2, 3, 0, 1]], drawn), -1, 0)
    new = new + random.binomial(of_new - new, gap)
    old = old - random.binomial(old, gap)
    values = new / of_new - old / of_old
    signs = np.array(list(product((1, -1), repeat=len(cells))))
    total = values.sum(axis=1)
    p = (np.abs(values @ signs.T) >= np.abs(total)[:, None] - 1e-9).mean(axis=1)
    second = np.maximum((values**2).mean(axis=1), 1e-12)
    against = np.maximum(0, -np.sign(total) * (values**3).mean(axis=1) / second**1.5)
    x = np.abs(total) / np.sqrt(len(cells) * second)
    p += against * (2 * x**2 + 1) * np.exp(-(x**2) / 2) / (3 * np.sqrt(2 * np.pi * len(cells)))
    return float(((p <= level * (1 + 1e-9)) & (total > 0)).mean())


def test_the_smallest_gap_is_the_one_that_is_shown_four_times_in_five(trees: list[tuple[Marks, Comparison]]) -> None:
    """With outcomes made up and judged here; a gap said to be impossible is not shown so often at its largest either."""
    named = impossible = 0
    for seed, (marks, comparison) in enumerate(trees):
        level = comparison.alpha / len(comparison.contrasts)
        for contrast in comparison.contrasts:
            told = re.search(r"gaps above ([\d.]+) pt", contrast.sentence)
            if told is None and "no gap that can exist" not in contrast.sentence:
                continue
            cells = [
                (sum(new), len(new), sum(old), len(old))
                for task in marks[contrast.new]
                for new, old in ([[mark == "+" for mark in marks[name][task] if mark in "+x"]
                                  for name in (contrast.new, contrast.old)],)
                if new and old
            ]  # fmt: skip
            if told is not None:
                named += 1
                at, below = (shown_gain(cells, share * float(told[1]) / 100, level, seed) for share in (1, 0.85))
                assert at > 0.74, contrast.sentence
                assert below < 0.78, contrast.sentence
            else:
                impossible += 1
                rate = fmean(old / of for _, _, old, of in cells)
                assert shown_gain(cells, min(0.95, max(rate, 1 - rate)), level, seed) < 0.8, contrast.sentence
    assert named >= 20
    assert impossible >= 5


def test_no_fewer_missing_trials_undo_a_verdict_than_it_says() -> None:
    """Of two profiles, where one p decides: every set of missing trials is tried, the smallest first."""
    looked_at = 0
    for seed in range(100):
        random = Random(seed)
        tasks = random.randint(6, 9)
        marks = {
            name: {f"t{n}": "".join(random.choices(f"{mark}{other}E", (75, 22, 3), k=3)) for n in range(tasks)}
            for name, mark, other in (("a", "x", "+"), ("b", "+", "x"))
        }
        contrast = compare(rows(marks), settings()).contrasts[0]
        if contrast.missing is None or contrast.missing.undone_by is None or not contrast.missing.exact:
            continue
        better, lost = contrast.missing.verdict == "better", _lost(marks, contrast)
        fewest = next(
            count
            for count in range(len(lost) + 1)
            if any(not _holds(marks, contrast, set(some), better=better) for some in combinations(lost, count))
        )
        assert fewest == contrast.missing.undone_by, contrast.sentence
        looked_at += 1
    assert looked_at >= 12


def test_the_text_around_the_sentences_is_that_of_the_numbers(trees: list[tuple[Marks, Comparison]]) -> None:
    for marks, comparison in trees[::4]:
        text = " ".join(comparison_text(comparison, 100).split())
        for contrast in comparison.contrasts:
            assert " ".join(contrast.sentence.split()) in text
        levels = {round(100 * c.estimate.interval.level, 2) for c in comparison.contrasts if c.estimate.interval}
        for level in {min(levels), max(levels)} if levels else ():
            assert f"{level:g} %" in text, "the levels that hold are said"
        for profile in comparison.profiles:
            words = marks[profile.profile].values()
            whole = all(any(mark in "+x" for mark in word) for word in words)
            assert bool(profile.pass_at) is whole
            if whole:
                rates = [fmean(mark == "+" for mark in word if mark in "+x") for word in words]
                assert profile.pass_at[1] == pytest.approx(fmean(rates))
