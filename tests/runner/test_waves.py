import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.experiments.plan import JobSpec, PlannedTask
from terminalbench.records.trial import TaskRef
from terminalbench.runner.waves import AbortSearch, first_not_started, next_wave, remaining, split, wave_name


def job(tasks: str, attempts: int = 1) -> JobSpec:
    planned = tuple(PlannedTask(TaskRef(t, "d"), "d", {"path": t}) for t in tasks)
    return JobSpec("2026-01-01__10-00-00__p", "p", "pid", attempts, planned)


def names(spec: JobSpec) -> str:
    return "".join(task.ref.id for task in spec.tasks)


def cells(text: str) -> dict[tuple[str, str], int]:
    return {("d", t): text.count(t) for t in text}


def test_what_is_missing() -> None:
    assert remaining(job("abc", 2), cells("abb")) == {("d", "a"): 1, ("d", "c"): 2}
    assert not remaining(job("ab", 1), cells("aab"))


def test_a_wave_holds_exactly_what_is_missing_in_order() -> None:
    wave = next_wave(job("abc", 3), {("d", "c"): 2, ("d", "a"): 1}, "w")
    assert names(wave) == "acc"
    assert (wave.attempts, wave.name, wave.profile_id) == (1, "w", "pid")


def test_a_job_is_split_by_tasks_and_all_attempts_at_one_stay_together() -> None:
    def parts(tasks: str, attempts: int, most: int) -> list[str]:
        return ["".join(task.ref.id for task in part) for part in split(job(tasks, attempts), most)]

    assert parts("abcde", 1, 2) == ["ab", "cd", "e"]
    assert parts("abc", 3, 4) == ["ab", "c"], "six trials rather than a part of a task"
    assert parts("abcabc", 1, 2) == ["aa", "bb", "cc"], "a wave that repeats its tasks"
    assert parts("abc", 1, 99) == ["abc"]


@pytest.mark.parametrize(("number", "name"), [(2, "2026-01-01__10-00-00-w2__p"), (3, "2026-01-01__10-00-00-w3__p")])
def test_a_wave_keeps_the_profile_in_its_name(number: int, name: str) -> None:
    from terminalbench.index.places import profile_of

    assert wave_name("2026-01-01__10-00-00__p", number) == name
    assert profile_of(wave_name("2026-01-01__10-00-00__my__p", number)) == "my__p"


@pytest.mark.parametrize(
    ("tasks", "attempts", "started", "first"),
    [("abc", 1, "", "a"), ("abc", 1, "ab", "c"), ("abc", 2, "abca", "b"), ("ab", 1, "ab", None), ("abc", 1, "ac", "b")],
)
def test_the_first_that_did_not_start(tasks: str, attempts: int, started: str, first: str | None) -> None:
    found = first_not_started(job(tasks, attempts), cells(started))
    assert (found[1] if found else None) == first


@given(
    tasks=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True),
    bad=st.sets(st.sampled_from("abcdefgh"), max_size=3),
    attempts=st.integers(1, 3),
    parallel=st.integers(1, 4),
    late=st.booleans(),
)
def test_every_good_task_is_finished_whatever_the_bad_ones_do(
    tasks: list[str], bad: set[str], attempts: int, parallel: int, late: bool
) -> None:
    """A model of Harbor: trials start in order, `parallel` at once; a bad one ends the job and all that run."""
    whole = job("".join(tasks), attempts)
    finished: dict[tuple[str, str], int] = {}
    search, wave, waves = AbortSearch(), whole, 0
    while True:
        waves += 1
        order = [t.ref.id for _ in range(wave.attempts) for t in wave.tasks]
        at_once = 1 if search.one_at_a_time else parallel
        stop = next((i for i, t in enumerate(order) if t in bad), None)
        done = order if stop is None else order[: max(0, stop - at_once + 1)]
        # An abort may come before the events of the trials that were starting with the bad one.
        begun = order if stop is None else order[: len(done) if late and at_once > 1 else stop]
        for t in done:
            finished["d", t] = finished.get(("d", t), 0) + 1
        missing = remaining(whole, finished)
        if not missing:
            break
        search.learn(wave, cells("".join(begun)), cells("".join(done)))
        chosen = search.choose(missing)
        if not chosen:
            break
        assert waves < 40
        wave = next_wave(whole, chosen, f"w{waves}")
    assert {t: finished.get(("d", t), 0) for t in tasks if t not in bad} == {t: attempts for t in tasks if t not in bad}
    assert {cell[1] for cell in search.culprits} <= bad


def test_a_trial_during_which_harbor_dies_again_when_it_is_alone_did_it() -> None:
    search, whole = AbortSearch(), job("abc")
    assert search.learn(whole, cells("abc"), cells("c")) is None, "one of two"
    assert search.choose(cells("ab")) == cells("ab")
    assert search.one_at_a_time
    assert search.learn(next_wave(whole, cells("ab"), "w"), cells("a"), {}) == ("d", "a")
    assert search.culprits == set(), "another attempt at the task may still run"
    assert search.choose(cells("b")) == cells("b")
    assert search.learn(next_wave(whole, cells("b"), "w"), {}, {}) is None
    assert search.culprits == {("d", "b")}, "it did not even start"


def test_nothing_is_blamed_for_the_first_death_of_its_process() -> None:
    search, whole = AbortSearch(), job("ab")
    assert search.learn(whole, cells("a"), {}) is None, "alone, but once"
    assert search.choose(cells("ab")) == cells("ab"), "b had not started: it may have been that"
    assert search.learn(next_wave(whole, cells("ab"), "w"), cells("ab"), cells("a")) is None, "b ran for the first time"
    assert search.choose(cells("b")) == cells("b")
    assert search.learn(next_wave(whole, cells("b"), "w"), cells("b"), {}) == ("d", "b")
