"""What changed between iterations, and what of it is noise."""

from collections.abc import Mapping

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from terminalbench.overnight.delta import delta, level
from terminalbench.overnight.delta_model import ALPHA, Count, ProfileDelta, TaskChange
from terminalbench.overnight.measured import IterationResults, ProfileResult, TaskResult, TrialResult
from terminalbench.records import Outcome

OUTCOMES = {"+": Outcome.PASSED, "x": Outcome.FAILED, "E": Outcome.ERRORED}


def task(name: str, marks: str, digest: str | None = "same") -> TaskResult:
    trials = [
        TrialResult(attempt=n, outcome=OUTCOMES[mark], path=f"batches/night/0/runs/j/{name}__{n}")
        for n, mark in enumerate(marks, start=1)
    ]
    return TaskResult(
        task_id=name, dataset="d", family=None, digest=digest, attempts=len(marks), passed=marks.count("+"),
        failed=marks.count("x"), errored=marks.count("E"), not_run=0, cost_usd=None, cost_unknown=0, mean_agent_sec=None, trials=trials,
    )  # fmt: skip


def iteration(
    number: int, marks: Mapping[str, str], profile_id: str = "id", digest: str | None = "same"
) -> IterationResults:
    tasks = [task(name, line, digest) for name, line in marks.items()]
    passed, failed = (sum(getattr(one, name) for one in tasks) for name in ("passed", "failed"))
    profile = ProfileResult(
        profile="p", profile_id=profile_id, model="m", simulated=False, no_model=False, task_digest="t", total=sum(len(m) for m in marks.values()),
        passed=passed, failed=failed, errored=0, not_run=0, pass_rate=None, coverage=None, cost_usd=None, cost_unknown=0, tokens=None,
        tokens_unknown=0, started_at=None, finished_at=None, tasks=tasks,
    )  # fmt: skip
    return IterationResults(
        run_id="r", iteration=number, suite_name="s", suite_version="1", suite_digest="d", batch="night/0", seed=None, created_at=None, profiles=[profile],
    )  # fmt: skip


def of(now: IterationResults, *before: IterationResults, planned: int | None = 10) -> ProfileDelta:
    return delta(now, before, planned).profiles[0]


def changes(found: ProfileDelta) -> dict[str, str]:
    return {one.task_id: one.change.value for one in found.tasks}


def test_each_task_has_its_word() -> None:
    first = iteration(1, {"a": "x", "b": "+", "c": "+", "gone": "+", "never": "E"})
    second = iteration(2, {"a": "+", "b": "x", "c": "+", "gone": "+", "never": "E"})
    third = iteration(3, {"a": "+", "b": "+", "c": "x", "new": "+", "never": "+"})
    found = of(third, first, second)
    assert changes(found) == {
        "a": "unchanged", "b": "flaky", "c": "regressed", "new": "new", "never": "unmeasured", "gone": "gone",
    }  # fmt: skip
    assert (found.previous, found.earlier) == (2, [1, 2])
    lost = next(one for one in found.tasks if one.task_id == "c")
    assert (lost.earlier, lost.noise) == (Count(2, 2), True), "one failure after two passes is no news"
    assert (lost.trials, lost.trials_before) == (["batches/night/0/runs/j/c__1"],) * 2


def test_a_flip_is_more_than_noise_when_many_attempts_say_so() -> None:
    before = [iteration(n, {"a": "+" * 5, "b": "+x+x+"}) for n in range(1, 5)]
    found = of(iteration(5, {"a": "x" * 5, "b": "xxxxx"}), *before)
    assert changes(found) == {"a": "regressed", "b": "regressed"}, "even of one that is known to vary"
    assert [one.noise for one in found.tasks] == [False, False]
    assert found.alert is not None
    assert found.alert.tasks == ["a", "b"]
    assert "passed 0 of 10" in found.alert.message


def test_another_content_or_another_profile_is_not_compared() -> None:
    now = iteration(2, {"a": "x"})
    assert changes(of(now, iteration(1, {"a": "+"}, digest="other"))) == {"a": "other_content"}
    assert changes(of(iteration(2, {"a": "x"}, digest=None), iteration(1, {"a": "+"}, digest=None))) == {
        "a": "other_content"
    }
    other = of(now, iteration(1, {"a": "+"}, profile_id="another"))
    assert (other.previous, changes(other), other.p_earlier) == (None, {"a": "new"}, None)


def test_iterations_are_compared_by_number_whichever_ended_first() -> None:
    one, two, three = iteration(1, {"a": "+"}), iteration(2, {"a": "x"}), iteration(3, {"a": "x"})
    assert of(two, three, one).previous == 1
    assert of(three, one, two) == of(three, two, one)


def test_the_one_before_that_measured_nothing_is_passed_over() -> None:
    found = of(iteration(3, {"a": "x"}), iteration(1, {"a": "+"}), iteration(2, {"a": "E"}))
    assert (found.previous, found.earlier, changes(found)) == (1, [1], {"a": "regressed"})


def test_levels_of_a_night_add_up_to_alpha() -> None:
    assert sum(level(k, 100, 1) for k in range(1, 100)) <= ALPHA * 1.0001
    assert sum(level(k, None, 2) for k in range(1, 5000)) * 2 <= ALPHA
    assert level(1, 1, 1) == ALPHA


@given(st.lists(st.lists(st.sampled_from("+xE"), min_size=4, max_size=4), min_size=1, max_size=6))
@settings(deadline=None)
def test_counts_are_kept_and_it_is_the_same_again(rows: list[list[str]]) -> None:
    made = [iteration(n, dict(zip("abcd", row, strict=True))) for n, row in enumerate(rows, start=1)]
    found = of(made[-1], *made[:-1])
    assert sum(one.now.measured for one in found.tasks) == sum(mark != "E" for mark in rows[-1])
    for place, one in enumerate(found.tasks):
        earlier = one.earlier or Count()
        assert earlier.measured == sum(row[place] != "E" for row in rows[:-1])
        assert (one.noise is None) == (one.change in (TaskChange.NEW, TaskChange.UNCHANGED, TaskChange.UNMEASURED))
    assert msgspec.json.encode(delta(made[-1], made[:-1], 10)) == msgspec.json.encode(
        delta(made[-1], made[:-1][::-1], 10)
    )


def test_nothing_changes_and_nothing_is_raised() -> None:
    from random import Random

    nights = alerts = 0
    for seed in range(60):
        luck = Random(seed)
        rates = {f"t{n}": luck.choice((0.1, 0.5, 0.9)) for n in range(12)}
        made = [
            iteration(n, {name: "+" if luck.random() < rate else "x" for name, rate in rates.items()})
            for n in range(1, 11)
        ]
        raised = [of(one, *made[:place]).alert for place, one in enumerate(made)]
        nights += 1
        alerts += any(raised)
    assert alerts <= 0.12 * nights, f"{alerts} of {nights} quiet nights raised an alert"


def test_a_night_that_breaks_in_the_middle_is_noticed() -> None:
    made = [iteration(n, {f"t{k}": "+" if n < 6 else "x" for k in range(12)}) for n in range(1, 7)]
    found = of(made[-1], *made[:-1])
    assert found.alert is not None
    assert found.alert.p <= found.alert.level == level(5, 10, 1)
