"""The bridge to a Ray cluster, without a cluster: nodes that do not answer, and jobs that no node has room for."""

from types import SimpleNamespace
from typing import Any

import pytest

from terminalbench.experiments.tables import RayTable, RunTable
from terminalbench.runner.executors import ray_bridge
from terminalbench.runner.executors.base import NO_ROOM, NODE_LOST
from terminalbench.runner.executors.ray_bridge import NO_ROOM_SEC, UNHEARD_SEC, ClusterJobs, NodeLease, places
from terminalbench.runner.executors.ray_executor import RayExecutor
from terminalbench.runner.executors.ray_messages import ClusterReady, JobEnd, JoinRequest, StartOrder

START = StartOrder("j", "p", [], {}, "/r/s/0/runs/j", "/r/s/0/runs/j.log", 2)


class Actor:
    """One whose answers are awaited; `answers` says whether they come."""

    def __init__(self, answers: bool = True) -> None:
        self.renew = self
        self.answers = answers

    def remote(self) -> "Actor":
        return self


class Clock:
    """The time that the bridge sees."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(ray_bridge, "time", found := Clock())
    return found


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the runner is told; Ray itself answers at once, and knows of no resources but CPUs."""
    told: list[Any] = []
    monkeypatch.setattr(ray_bridge, "say", told.append)
    monkeypatch.setattr(ray_bridge.ray, "cluster_resources", dict)
    monkeypatch.setattr(ray_bridge.ray, "kill", lambda _actor: None)
    monkeypatch.setattr(ray_bridge.ray, "get", lambda _answer: None)
    monkeypatch.setattr(
        ray_bridge.ray,
        "wait",
        lambda given, timeout: (given if given[0].answers else [], []),
    )
    return told


def jobs(actor: Actor) -> ClusterJobs:
    found = ClusterJobs(JoinRequest("127.0.0.1:6379", 1.0, 0, 2, 18.0), made_of=None)
    found.actors["j"], found.waiting["j"] = actor, START
    return found


@pytest.mark.parametrize("answers", [True, False])
def test_a_node_that_does_not_answer_is_lost(clock: Clock, said: list[Any], answers: bool) -> None:
    lease, actor = NodeLease(heard_at=clock.now), Actor(answers)
    wanted = []
    for clock.now in (0.0, UNHEARD_SEC / 2, UNHEARD_SEC + 1):
        wanted.append(lease.renew(actor))
    assert wanted == [True, True, answers]


def test_a_job_that_no_node_could_have_room_for_waits_for_another_node_and_then_ends(
    clock: Clock, said: list[Any]
) -> None:
    found = jobs(Actor())
    small, large = {"CPU": 1.0}, {"CPU": 2.0}
    found.see([small])
    clock.now += NO_ROOM_SEC + 1
    found.see([small, large])
    assert said == [], "a node has come"
    found.see([small])
    clock.now += NO_ROOM_SEC + 1
    found.see([small])
    what = "2 trials at once need 2 CPUs, but no node has more than 1 since 90 s"
    assert said == [JobEnd("j", NO_ROOM, what)]


def test_the_end_of_a_job_is_told_once(said: list[Any]) -> None:
    found = jobs(Actor())
    found._end("j", NODE_LOST, "first")
    found._end("j", 0, "second")
    assert [one.said for one in said] == ["first"]
    assert not found.waiting


def test_as_many_jobs_are_told_to_have_room_as_nodes_take_at_once(said: list[Any], monkeypatch: Any) -> None:
    order = JoinRequest("127.0.0.1:6379", 0.5, 100, 8, 18.0)
    large, small = {"CPU": 16.0, "memory": 64e9}, {"CPU": 3.9, "memory": 64e9}
    assert places(order, [large, large, small]) == 8
    assert places(order, [{**large, "memory": 900e6}]) == 1, "800 MiB are one job's"
    monkeypatch.setattr(ray_bridge.ray, "cluster_resources", lambda: {"sandboxes": 20})
    assert places(order, [{**large, "sandboxes": 20.0}, large]) == 2


@pytest.mark.parametrize(
    ("trials", "places", "said_so", "most"),
    [(500, 4, 0, 32), (2000, 4, 0, 83), (2000, 40, 0, 32), (2000, None, 0, 333), (2000, 4, 5, 5)],
)
def test_a_wave_grows_with_what_each_place_of_the_cluster_has_to_do(
    trials: int, places: int | None, said_so: int, most: int
) -> None:
    """A wave costs an actor and a start of Harbor: 1,500 trials more are not 1,500 / 32 waves more."""
    executor: Any = RayExecutor()
    executor._bridge = SimpleNamespace(joined=ClusterReady(places)) if places is not None else None
    assert executor.wave_trials(RunTable(parallel=4, ray=RayTable(wave_trials=said_so)), trials) == most
