"""Small runs of the simulated trainings; `make simulate` has the large ones."""

from simulate.training import (
    ALLOWED,
    DEAR,
    DEV,
    MIXED,
    OVERFIT,
    QUITTER,
    USELESS,
    Setup,
    Told,
    TrainingState,
    Truth,
    differs_from_itself,
    many,
    np,
    one_night,
    priced,
    run_nights,
    worsened,
)

RUNS = 8


def test_useless_mutants_are_not_promoted_and_nothing_is_claimed() -> None:
    told = many(USELESS, range(RUNS))
    assert (told.promoted, told.harmful, told.claimed) == (0, 0, 0.0)


def test_an_evolver_that_overfits_train_is_stopped_by_dev() -> None:
    told = [run_nights(OVERFIT, seed) for seed in range(3)]
    assert all(one.promoted == 0 for one in told)
    assert all(len(one.reasons) > 5 for one in told)  # they did reach dev


def test_of_mixed_mutants_the_gain_is_real_and_inside_what_is_claimed() -> None:
    told = many(MIXED, range(RUNS))
    assert told.gain > 0.01
    assert told.promoted >= 3
    assert told.covered == told.promoted
    assert told.harmful == 0


def test_a_gain_at_three_times_the_cost_is_refused() -> None:
    told = [run_nights(DEAR, seed, 14) for seed in range(3)]
    assert all(one.promoted == 0 for one in told)
    assert any("the cost (1.25 was declared as the limit)" in reason for one in told for reason in one.reasons)


def test_a_gain_is_promoted_at_a_price_that_a_person_can_afford() -> None:
    """One variant, 40 dev tasks, 10 cents a trial, all defaults; `make simulate` has more runs."""
    some, more = priced(0.10, range(16)), priced(0.18, range(20))
    assert some.promoted >= 14
    assert some.usd <= 216
    assert more.promoted == 20
    assert more.usd < 60


def test_a_champion_that_worsens_is_rolled_back_and_an_equal_one_stays() -> None:
    assert [worsened(0.0, seed) for seed in range(6)] == [None] * 6
    assert sum(worsened(0.5, seed) is not None for seed in range(4)) == 4


def test_the_champion_against_itself_is_no_alarm_and_a_broken_night_is_one() -> None:
    assert sum(differs_from_itself(seed) > 0 for seed in range(20)) <= 2
    assert all(differs_from_itself(seed, broken=0.5) > 0 for seed in range(5))


def test_a_mutant_that_quits_is_never_a_challenger() -> None:
    class Quits:
        name = "quits"

        def mutant(self, parent: Truth, random: np.random.Generator) -> Truth:
            return QUITTER

    chances = np.full(len(DEV), 0.3)
    start = Truth(chances, chances)
    setup = Setup(np.random.default_rng(0), TrainingState(champion="p0", allowed=ALLOWED), {"p0": start})
    told = Told()
    for _ in range(5):
        one_night(setup, Quits(), told)  # ty: ignore[invalid-argument-type]
    assert (setup.state.champion, setup.state.known, told.reasons) == ("p0", (), [])
