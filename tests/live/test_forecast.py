"""How far the time left is from what happens, over made-up runs with uneven tasks."""

import random
import statistics
from heapq import heapify, heappop, heappush

import pytest

from support.live import START, Teller, job_event, plan
from terminalbench.harbor.limits.accounts import Account, KnownCost, LikelyCost
from terminalbench.harbor.limits.budget import GateState
from terminalbench.harbor.limits.control import Control
from terminalbench.live.forecast import eta_sec
from terminalbench.live.limits import GateLimits
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event

SHARES = (0.25, 0.5, 0.75)
PROFILES, TASKS = ("p", "q", "r", "s"), tuple(f"t{n}" for n in range(12))


def ratios(seed: int, *, unevenness: float, attempts: int = 2, lanes: int = 3) -> list[float]:
    """The time left that was said, over that which was, when a quarter, half and three quarters of the trials are done."""
    luck = random.Random(seed)
    lengths = {task: 60 * luck.lognormvariate(0, unevenness) for task in TASKS}
    told: list[tuple[float, int, Event]] = []
    for profile in PROFILES:
        pace, free = luck.lognormvariate(0, 0.5), [0.0] * lanes
        told.append((0.0, 0, job_event(0, "job_started", profile)))
        for attempt in range(1, attempts + 1):
            for task in TASKS:
                heapify(free)
                start = heappop(free)
                end = start + lengths[task] * pace * luck.lognormvariate(0, 0.2)
                trial = Teller(f"{task}__{profile}{attempt}", task, profile, attempt=attempt)
                told += [(start, 1, trial.started(start)), (end, 2, trial.ended(end))]
                heappush(free, end)
    told.sort(key=lambda entry: entry[:2])
    state, over = LiveState(), told[-1][0]
    state.replan(plan(PROFILES, TASKS, attempts, parallel=lanes))
    found: list[float] = []
    for second, _, event in told:
        state.apply(event)
        done = sum(profile.done for profile in state.profiles.values()) / (len(PROFILES) * len(TASKS) * attempts)
        if len(found) < len(SHARES) and done >= SHARES[len(found)]:
            left = eta_sec(state, START + second)
            found.append((left or 0.0) / (over - second))
    return found


@pytest.mark.parametrize(("unevenness", "least"), [(0.0, (0.8, 0.8, 0.9)), (1.0, (0.5, 0.7, 0.8))])
def test_the_time_left_is_near_what_is_left(unevenness: float, least: tuple[float, ...]) -> None:
    runs = [ratios(seed, unevenness=unevenness) for seed in range(12)]
    medians = [statistics.median(run[n] for run in runs) for n in range(len(SHARES))]
    assert all(low <= median <= 1.35 for low, median in zip(least, medians, strict=True)), medians


def test_the_time_left_is_unknown_while_a_profile_with_trials_to_start_is_paused() -> None:
    state = LiveState()
    state.replan(plan(("p", "q"), ("a", "b"), parallel=1))
    for event in [
        *Teller("a__1").whole(0, 10),
        *Teller("a__2", profile="q").whole(0, 10),
        Teller("b__1", "b").started(10),
    ]:
        state.apply(event)
    assert eta_sec(state, START + 12) == pytest.approx(10.0)
    state.limits = GateLimits(told=Control(paused={"q": "quota"}))
    assert eta_sec(state, START + 12) is None
    state.limits = GateLimits(told=Control(paused={"p": "quota"}))
    assert eta_sec(state, START + 12) == pytest.approx(10.0), "its last trial runs"
    state.limits = GateLimits(told=Control(paused={"*": "lunch"}))
    assert eta_sec(state, START + 12) is None


@pytest.mark.parametrize("agent", ["oracle", "simulated"])
def test_nothing_is_said_of_a_profile_by_the_pace_of_another(agent: str) -> None:
    planned = plan(("o", "m"), ("a", "b"), agents={"o": agent}, parallel=1)
    state = LiveState()
    state.replan(planned)
    for event in [*Teller("a__1", "a", "o").whole(0, 2), Teller("a__2", "a", "m").started(0)]:
        state.apply(event)
    assert eta_sec(state, START + 5) is None
    state.apply(Teller("a__2", "a", "m").ended(60))
    assert eta_sec(state, START + 60) == pytest.approx(60)


def test_the_time_left_knows_what_a_budget_makes_wait_and_how_much_it_lets_start() -> None:
    """Nine trials of 10 s each in three lanes: side by side, alone until the first cost, alone for good, two of them."""
    tasks = tuple(f"t{n}" for n in range(11))
    state = LiveState()
    state.replan(plan(("p", "q"), tasks, parallel=3))
    events = [job_event(0, "job_started", "p"), job_event(0, "job_started", "q"), *Teller("t10__p", "t10").whole(0, 10)]
    for n, task in enumerate(tasks):
        events += Teller(f"{task}__q{n}", task, "q").whole(0, 10)
    events.append(Teller("t0__p", "t0", "p").started(10))
    for event in events:
        state.apply(event)

    def left(**fields: object) -> float:
        account = Account(to_start=9, **fields)  # ty: ignore[invalid-argument-type]
        state.limits = GateLimits(GateState(budget_usd=5.0, accounts={"p": account}))
        return round(eta_sec(state, START + 10) or 0.0)

    assert left(running={"t0__p": 0.1}, likely=LikelyCost(0.1)) == 40, "ten trials in three lanes"
    assert left(running={"t0__p": 1.0}) == 40, "the first one alone, then nine in three lanes"
    assert left(running={"t0__p": 1.0}, unknown=1) == 100, "one told no cost: the others probably tell none either"
    assert left(running={"t0__p": 1.5}, known=KnownCost(1, 1.5)) == 10, "no more than one fits beside it"
    state.limits = GateLimits(GateState(accounts={"p": Account(to_start=9)}))
    assert round(eta_sec(state, START + 10) or 0.0) == 40, "without a budget nothing waits"
