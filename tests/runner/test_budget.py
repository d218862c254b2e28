"""The budget in a hundred random batches: several profiles, retries, unknown costs, killed sessions and resumes."""

import multiprocessing
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.synchronize import Barrier
from pathlib import Path

import msgspec
import pytest

from support.results import make_plan
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ProfileRecord, Provenance
from terminalbench.experiments.tables import FREE, ProfilePrice
from terminalbench.harbor.limits.budget import GUESS_USD
from terminalbench.harbor.limits.gate import Gate
from terminalbench.runner.run import Spent, put_up_gate

BATCHES = 100


@dataclass
class Money:
    """What was really spent, kept apart from the gate: known costs by profile, and how many attempts hide theirs."""

    known: dict[str, list[float]] = field(default_factory=dict)
    unknown: int = 0
    dearest: float = GUESS_USD

    def pay(self, profile: str, cost: float, *, tells: bool) -> float | None:
        self.dearest = max(self.dearest, cost)
        if not tells:
            self.unknown += 1
            return None
        self.known.setdefault(profile, []).append(cost)
        return cost

    @property
    def total(self) -> float:
        return sum(sum(costs) for costs in self.known.values())


class Session:
    """One `run` or `resume`: every profile has its own slots, all pass the same gate, until it is closed or killed."""

    def __init__(self, luck: random.Random, gate: Gate, money: Money, scales: dict[str, float], slots: int) -> None:
        self.luck, self.gate, self.money, self.scales, self.slots = luck, gate, money, scales, slots
        self.running: dict[str, tuple[str, float]] = {}
        self.number = 0

    def play(self, planned: dict[str, int], killed_at: float) -> bool:
        """Run what is planned; False when the session was killed in the middle."""
        while True:
            for profile, trial in self._free_slots(planned):
                if not self._enter(trial, profile):
                    break
                planned[profile] -= 1
            if not self.running:
                return True
            if self.luck.random() < killed_at:
                self.money.unknown += len(self.running)  # spent on something, and nobody knows how much
                return False
            self._end_one()

    def _free_slots(self, planned: dict[str, int]) -> Iterator[tuple[str, str]]:
        for profile in self.scales:
            while planned[profile] > 0 and sum(p == profile for p, _ in self.running.values()) < self.slots:
                self.number += 1
                yield profile, f"t{self.number}"

    def _enter(self, trial: str, profile: str) -> bool:
        before = self.gate.read()
        committed = before.spent_usd + sum(before.reserved.values())
        if self.gate.enter(trial, profile) is not None:
            return False
        # What the gate promises: together with what runs already, this trial was expected to fit.
        assert before.budget_usd is not None
        assert committed == 0 or committed + before.likely_usd(profile) <= before.budget_usd
        self.running[trial] = (profile, self.luck.expovariate(1 / self.scales[profile]))
        return True

    def _end_one(self) -> None:
        trial = self.luck.choice(sorted(self.running))
        profile, cost = self.running.pop(trial)
        self.gate.leave(trial, profile, self.money.pay(profile, cost, tells=self.luck.random() > 0.2))
        if self.luck.random() < 0.25:
            self._enter(trial, profile)  # Harbor tries a failed trial again, in the same slot


def played(root: Path, seed: int) -> tuple[float, Money, int, Gate]:
    """One batch from its first run to its last resume."""
    luck = random.Random(seed)
    scales = {f"p{number}": luck.choice([0.01, 0.3, 2.0]) for number in range(luck.randint(1, 3))}
    slots, budget = luck.randint(1, 4), luck.uniform(0.5, 12.0)
    batch = allocate(root, f"s{seed}")
    plan = make_plan(batch, tuple(scales), settings={"budget_usd": budget})
    money, planned = Money(), dict.fromkeys(scales, luck.randint(2, 8))
    for _ in range(4):
        gate = put_up_gate(batch, plan, Spent({p: list(costs) for p, costs in money.known.items()}, money.unknown))
        assert gate is not None
        if Session(luck, gate, money, scales, slots).play(planned, killed_at=0.1):
            break
    return budget, money, slots * len(scales), Gate(batch.gate_json)


def test_the_bound_holds_in_a_hundred_random_batches(tmp_path: Path) -> None:
    closed = resumed = 0
    for seed in range(BATCHES):
        budget, money, slots, gate = played(tmp_path, seed)
        state = gate.read()
        assert money.total <= budget + slots * money.dearest, seed
        assert state.spent_usd >= money.total - 1e-9, seed
        assert state.priced <= money.unknown, seed
        closed += state.shut is not None
        resumed += state.priced > 0
    assert closed > BATCHES // 4
    assert resumed > BATCHES // 4


def _spend(path: Path, seed: int, profile: str, start: Barrier) -> None:
    start.wait(120)
    luck, gate, number = random.Random(seed), Gate(path), 0
    running: list[str] = []
    while True:
        refused = None
        while len(running) < 2 and refused is None:
            number += 1
            refused = gate.enter(f"{profile}-{number}", profile)
            if refused is None:
                running.append(f"{profile}-{number}")
        if not running:
            assert refused is not None
            if refused.final:
                return
            time.sleep(0.01)  # the others hold the rest
            continue
        gate.leave(running.pop(luck.randrange(len(running))), profile, luck.uniform(0.0, 0.5))


@pytest.mark.parametrize("seed", [1, 2])
def test_processes_side_by_side_keep_the_bound_together(tmp_path: Path, seed: int) -> None:
    batch = Batch(tmp_path / "s" / "0")
    batch.folder.mkdir(parents=True)
    gate = put_up_gate(batch, make_plan(batch, settings={"budget_usd": 5.0}), Spent({"p0": [0.25]}))
    assert gate is not None
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(3)
    workers = [context.Process(target=_spend, args=(gate.path, seed + who, f"p{who}", start)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
        assert worker.exitcode == 0
    state = gate.read()
    spent = sum(known.usd for known in state.costs.values())
    assert state.spent_usd == pytest.approx(spent)
    assert 2.5 < spent <= 5.0 + 3 * 2 * 0.5
    assert state.reserved == {}
    assert state.shut is not None


def test_a_price_of_zero_and_an_agent_of_the_project_without_a_model_are_beside_the_budget(tmp_path: Path) -> None:
    (tmp_path / "quiet_agents.py").write_text('class Quiet:\n    AGENT_INFO = {"model": False}\n')
    contents = {
        "own": ({"agent": "claude-code"}, FREE),
        "quiet": ({"agent": "quiet_agents:Quiet"}, None),
        "dear": ({"agent": "claude-code"}, ProfilePrice(3.0, 15.0)),
    }
    records = tuple(ProfileRecord(key, f"id-{key}", content, price=price) for key, (content, price) in contents.items())
    batch = allocate(tmp_path, "s")
    plan = make_plan(batch, tuple(contents), settings={"budget_usd": 1.0})
    plan = msgspec.structs.replace(plan, profiles=records, provenance=Provenance(root=str(tmp_path)))
    gate = put_up_gate(batch, plan, Spent({"dear": [1.0]}))
    assert gate.enter("d", "dear") is not None
    for profile in ("own", "quiet"):
        assert gate.enter(profile, profile) is None
        gate.leave(profile, profile, None)
    assert (gate.read().spent_usd, gate.read().priced) == (1.0, 0)
