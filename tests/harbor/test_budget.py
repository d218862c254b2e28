"""The budget as a pure game: any slots, prices, profiles, unknown costs, retries, crashes and resumes."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.accounts import Account, KnownCost, LikelyCost, TrialRefusal, Turn, fair_shares
from terminalbench.harbor.limits.budget import BatchShare, GateState, SharedState

NOW = 0.0


@dataclass
class Profile:
    """What a profile does in the game: how many trials, its real costs, how often it tells none."""

    trials: int
    costs: list[float]
    silent: float = 0.0
    likely: float | None = None


@dataclass
class Game:
    """One batch on a gate in memory, kept by a ledger of its own. `side_by_side` profiles run at once."""

    budget: float
    profiles: dict[str, Profile]
    slots: int
    side_by_side: int
    luck: random.Random
    crash: float = 0.0
    retry: float = 0.0
    state: GateState = field(default_factory=GateState)
    left: dict[str, int] = field(default_factory=dict)
    running: dict[str, tuple[str, float]] = field(default_factory=dict)
    ended: dict[str, list[tuple[float, bool]]] = field(default_factory=dict)
    bound: float = 0.0
    number: int = 0
    killed: bool = False

    def __post_init__(self) -> None:
        self.left = {name: profile.trials for name, profile in self.profiles.items()}
        self.ended = {name: [] for name in self.profiles}

    def put_up(self) -> None:
        """As a run or a resume does: from what is on disk."""
        accounts = {}
        for name, profile in self.profiles.items():
            known = KnownCost()
            for cost, tells in self.ended[name]:
                known = known.and_one(cost) if tells else known
            unknown = sum(not tells for _, tells in self.ended[name])
            likely = None if profile.likely is None else LikelyCost(profile.likely)
            turn = Turn.LATER if self.left[name] else Turn.OVER
            accounts[name] = Account(turn, self.left[name], known=known, unknown=unknown, likely=likely)
        self.state = GateState(budget_usd=self.budget, accounts=accounts)

    def play(self) -> None:
        """Runs and resumes until one is not killed."""
        for _ in range(6):
            self.put_up()
            for waits in self.session():
                assert not waits, "everybody waits for somebody"
            if not self.killed:
                return

    def refusal(self, name: str) -> TrialRefusal | None:
        """Why a trial may not start."""
        return self.state.refusal(name, NOW)

    def hold_usd(self, name: str) -> float:
        """What a trial that starts holds."""
        return self.state.hold_usd(name)

    def session(self) -> Iterator[bool]:
        """One run or resume, until it is over or killed; at each step whether its profiles only wait."""
        queue, on, shut = [name for name in self.profiles if self.left[name]], [], []
        self.killed = False
        while queue or on:
            while queue and len(on) < self.side_by_side:
                on.append(queue.pop(0))
                self.change(on[-1], turn=Turn.NOW, to_start=self.left[on[-1]], closed=None)
            waits = self.ask(on, shut)
            only_waits = not self.running and waits == len(on) > 0
            if self.running:
                if self.luck.random() < self.crash:
                    self.kill()
                    self.killed = True
                    return
                self.end_one()
            yield only_waits
            for name in [n for n in on if (n in shut or not self.left[n]) and not self.of(n)]:
                on.remove(name)
                self.change(name, turn=Turn.OVER)
            if not queue and not on:  # the supervisor looks whether one of them could go on
                again = (n for n in self.profiles if self.left[n] and not self.is_closed(n))
                on = list(islice(again, self.side_by_side))
                shut = [n for n in shut if n not in on]
                for name in on:
                    self.change(name, turn=Turn.NOW, to_start=self.left[name], closed=None)

    def ask(self, on: list[str], shut: list[str]) -> int:
        """Every free slot asks, in any order; how many profiles only wait."""
        waits, order = 0, list(on)
        self.luck.shuffle(order)
        for name in order:
            started = False
            while self.left[name] and len(self.of(name)) < self.slots:
                refusal = self.refusal(name)
                if refusal is not None:
                    if refusal.final:
                        shut.append(name)
                        self.change(name, closed=refusal)
                    break
                started = True
                self.start(name)
            waits += not started and name not in shut and self.left[name] > 0
        return waits

    def is_closed(self, name: str) -> bool:
        refusal = self.refusal(name)
        return refusal is not None and refusal.final

    def of(self, name: str) -> list[str]:
        return [trial for trial, (profile, _) in self.running.items() if profile == name]

    def change(self, name: str, **fields: object) -> None:
        self.state.change(name, msgspec.structs.replace(self.state.account(name), **fields))

    def start(self, name: str) -> None:
        account = self.state.account(name)
        if account.price_usd is None:
            assert not account.running, "one at a time until its cost is known"
        self.number += 1
        trial, cost = f"t{self.number}", self.luck.choice(self.profiles[name].costs)
        self.state.change(name, account.entered(trial, self.hold_usd(name)))
        self.left[name] -= 1
        self.running[trial] = (name, cost)
        self.bound = self.budget + self.unseen_usd

    @property
    def unseen_usd(self) -> float:
        """What may come on top of the budget: what runs now beyond what it holds. Nothing else is spent unseen."""
        accounts = {trial: self.state.account(name) for trial, (name, _) in self.running.items()}
        held = {trial: account.running[trial] for trial, account in accounts.items()}
        more = sum(max(0.0, cost - held[trial]) for trial, (_, cost) in self.running.items())
        return more + sum(held[trial] for trial, account in accounts.items() if account.price_usd is None)

    def end_one(self) -> None:
        trial = self.luck.choice(sorted(self.running))
        name, cost = self.running.pop(trial)
        tells, again = self.luck.random() >= self.profiles[name].silent, self.luck.random() < self.retry
        self.ended[name].append((cost, tells))
        self.left[name] += again
        account = self.state.account(name).settled(trial, cost if tells else None, measured=True, again=again)
        self.state.change(name, account)

    def kill(self) -> None:
        """Harbor and the runner are gone: what ran has cost something, and nothing says how much."""
        for name, cost in self.running.values():
            self.ended[name].append((cost, False))
            self.left[name] += 1
        self.running = {}

    @property
    def told_usd(self) -> float:
        return sum(cost for found in self.ended.values() for cost, tells in found if tells)


prices = st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0])
profiles = st.builds(
    Profile,
    st.integers(0, 12),
    st.lists(prices, min_size=1, max_size=3),
    st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    st.none() | prices,
)
games = st.builds(
    lambda budget, found, slots, side, seed, crash, retry: Game(
        budget, {f"p{i}": p for i, p in enumerate(found)}, slots, side, random.Random(seed), crash, retry
    ),
    st.sampled_from([0.0, 0.05, 0.5, 2.0, 8.0, 16.0, 50.0]),
    st.lists(profiles, min_size=1, max_size=4),
    st.integers(1, 16),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.0, 0.1]),
    st.sampled_from([0.0, 0.3]),
)


@given(games)
def test_any_batch_overspends_by_one_trial_a_profile_before_its_cost_is_known_and_one_a_slot_after(game: Game) -> None:
    game.play()
    assert game.told_usd <= game.bound + 1e-6


@given(games)
def test_nothing_is_left_unspent_that_a_waiting_trial_would_fit_into(game: Game) -> None:
    game.crash = 0.0
    game.play()
    assert not game.running
    room = game.budget - game.state.spent_usd
    for name, left in game.left.items():
        assert not left or not game.state.account(name).fits(room), (name, room)


@pytest.mark.parametrize(("budget", "trials"), [(16.0, 2), (1000.0, 100)])
def test_near_a_budget_profiles_of_unknown_cost_are_priced_one_after_the_other(budget: float, trials: int) -> None:
    for seed in range(5):
        profiles = {f"p{number}": Profile(25, [10.0]) for number in range(4)}
        game = Game(budget, profiles, slots=4, side_by_side=4, luck=random.Random(seed))
        game.play()
        assert game.told_usd == 10 * trials, "side by side their first trials alone would cost $40"


@given(games, st.randoms(use_true_random=False))
def test_what_counts_as_spent_does_not_depend_on_the_order_of_the_endings(game: Game, luck: random.Random) -> None:
    game.play()
    game.put_up()
    before = game.state.spent_usd
    for found in game.ended.values():
        luck.shuffle(found)
    game.put_up()
    assert game.state.spent_usd == pytest.approx(before)


@given(
    st.sampled_from([0.5, 2.0, 8.0, 16.0]),
    st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0]), min_size=2, max_size=4),
    st.integers(1, 8),
    st.integers(1, 4),
    st.integers(0, 10**6),
)
def test_no_profile_has_less_than_its_share_while_others_have_more(
    budget: float, costs: list[float], slots: int, side: int, seed: int
) -> None:
    """Known and even prices: what is left of a profile did not fit into its part of the budget."""
    found = {f"p{i}": Profile(12, [cost], likely=cost) for i, cost in enumerate(costs)}
    game = Game(budget, found, slots, side, random.Random(seed))
    game.play()
    for name, profile in found.items():
        spent = game.state.account(name).known.usd
        assert not game.left[name] or spent + profile.costs[0] > budget / len(found) - 1e-6
    assert game.told_usd <= budget + 1e-6, "with known prices nothing is overspent"


def test_shares_are_filled_from_below() -> None:
    inf = float("inf")
    assert fair_shares(8.0, [(0.0, inf), (0.0, inf)]) == [4.0, 4.0]
    assert fair_shares(8.0, [(0.0, inf), (0.0, 1.0)]) == [7.0, 1.0], "what one does not need is the others'"
    assert fair_shares(8.0, [(6.0, inf), (0.0, inf)]) == [6.0, 2.0], "what is spent cannot be taken back"
    assert fair_shares(8.0, [(9.0, 12.0), (1.0, 5.0)]) == [9.0, 1.0]
    assert fair_shares(8.0, [(1.0, 2.0), (1.0, 3.0)]) == [2.0, 3.0], "more than everybody needs"
    assert fair_shares(8.0, []) == []


def test_a_raised_budget_and_a_later_cost_change_the_answer_without_a_word() -> None:
    """Nothing of a refusal is kept: the resume of a batch asks anew."""
    accounts = {"dear": Account(Turn.NOW, 5, known=KnownCost(2, 6.0)), "mute": Account(Turn.NOW, 5, unknown=3)}
    state = GateState(budget_usd=8.0, accounts=accounts)
    refused = state.refusal("mute", NOW)
    assert refused is not None
    assert (refused.final, refused.kind) == (True, ExclusionKind.BUDGET)
    assert "$6.00 spent and 3 tries of unknown cost, taken as $3.00" in refused.reason
    state.change("mute", Account(Turn.NOW, 5, known=KnownCost(1, 0.1), unknown=3))
    assert state.refusal("mute", NOW) is None, "they were cheap"
    waits = state.refusal("dear", NOW)
    assert waits is not None
    assert waits.final, "whatever the other leaves, its next trial does not fit"
    raised = msgspec.structs.replace(state, budget_usd=20.0)
    assert raised.refusal("dear", NOW) is None


@dataclass
class Night:
    """What several batches share: a budget, and the bound of what they may have spent together."""

    budget: float
    batches: dict[str, "Sharing"] = field(default_factory=dict)
    bound: float = 0.0

    @property
    def state(self) -> SharedState:
        shares = {name: BatchShare(game.state.accounts) for name, game in self.batches.items()}
        return SharedState(budget_usd=self.budget, batches=shares)

    def play(self) -> None:
        """Side by side, a step each; a batch that was killed is resumed while the others run on, a few times."""
        for game in self.batches.values():
            game.put_up()
        sessions = {name: game.session() for name, game in self.batches.items()}
        stuck: set[str] = set()
        resumes = 3 * len(sessions)
        while sessions:
            for name in list(sessions):
                waits = next(sessions[name], None)
                stuck = stuck | {name} if waits else set()
                if waits is not None:
                    continue
                del sessions[name]
                if self.batches[name].killed and resumes:
                    resumes -= 1
                    self.batches[name].put_up()
                    sessions[name] = self.batches[name].session()
            assert not sessions or not sessions.keys() <= stuck, "everybody waits for somebody"


@dataclass
class Sharing(Game):
    """A batch of a night, with or without a budget of its own."""

    name: str = ""
    night: Night = field(default_factory=lambda: Night(0.0))
    own_budget: float | None = None

    @property
    def states(self) -> list[GateState]:
        """Those that have to let a trial in, as the gate asks them."""
        together = self.night.state.seen_by(self.name, self.state, lambda name: not self.night.batches[name].killed)
        return [self.state, together]

    def refusal(self, name: str) -> TrialRefusal | None:
        found = (state.refusal(name, NOW) for state in self.states)
        return next((refusal for refusal in found if refusal is not None), None)

    def hold_usd(self, name: str) -> float:
        return min(state.hold_usd(name) for state in self.states)

    def put_up(self) -> None:
        super().put_up()
        self.state.budget_usd = self.own_budget

    def start(self, name: str) -> None:
        super().start(name)
        unseen = sum(game.unseen_usd for game in self.night.batches.values())
        self.night.bound = self.night.budget + unseen
        self.bound = (self.own_budget or 0.0) + self.unseen_usd


nights = st.builds(
    lambda budget, drawn: _night(budget, drawn),
    st.sampled_from([0.0, 0.05, 0.5, 2.0, 8.0, 16.0, 50.0]),
    st.lists(st.tuples(games, st.booleans()), min_size=2, max_size=3),
)


def _night(budget: float, drawn: list[tuple[Game, bool]]) -> Night:
    night = Night(budget)
    for place, (game, limited) in enumerate(drawn):
        night.batches[f"b{place}"] = Sharing(
            budget, game.profiles, game.slots, game.side_by_side, game.luck, game.crash, game.retry,
            name=f"b{place}", night=night, own_budget=game.budget if limited else None,
        )  # fmt: skip
    return night


@given(nights)
def test_batches_of_one_gate_overspend_together_by_no_more_than_one_of_them_may(night: Night) -> None:
    """What runs when the last trial starts is all that comes on top: of the shared budget, and of each batch's own.

    Trials of unknown cost run one at a time in each profile (`Game.start`), whatever the other batches do, and no
    batches wait for each other in vain.
    """
    night.play()
    assert sum(game.told_usd for game in night.batches.values()) <= night.bound + 1e-6
    for game in night.batches.values():
        assert game.own_budget is None or game.told_usd <= game.bound + 1e-6


@given(nights)
def test_batches_of_one_gate_leave_nothing_that_the_last_of_them_has_room_for(night: Night) -> None:
    for game in night.batches.values():
        game.crash, game.own_budget = 0.0, None
    night.play()
    room = night.budget - sum(game.state.spent_usd for game in night.batches.values())
    left = [(game, name) for game in night.batches.values() for name, count in game.left.items() if count]
    last = [game.state.account(name).fits(room) for game, name in left]
    assert not any(last[-1:]), "the one that ended last would have had room"


@given(
    st.sampled_from([0.5, 2.0, 8.0]),
    st.lists(st.sampled_from([0.1, 0.5, 1.0, 3.0]), min_size=2, max_size=4),
    st.integers(1, 8),
    st.integers(0, 10**6),
)
def test_batches_of_one_gate_with_known_prices_overspend_nothing(
    budget: float, costs: list[float], slots: int, seed: int
) -> None:
    """What runs in one batch is not there for another."""
    games = [Game(budget, {"p": Profile(12, [cost], likely=cost)}, slots, 1, random.Random(seed)) for cost in costs]
    night = _night(budget, [(game, False) for game in games])
    night.play()
    assert sum(game.told_usd for game in night.batches.values()) <= budget + 1e-6
