"""One gate for several batches: what they spend together, who counts, and orders to all of them."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import ExclusionKind
from terminalbench.harbor.limits.accounts import Account, KnownCost, LikelyCost
from terminalbench.harbor.limits.budget import GateState
from terminalbench.harbor.limits.control import ControlFile, shared_control
from terminalbench.harbor.limits.gate import Gate, read_shared, share_gate
from terminalbench.live.limits import read_limits
from terminalbench.locks import lock
from terminalbench.records.event import WaitKind
from terminalbench.runner.control import ControlOrder, check_orders, give_to_all


def join(tmp_path: Path, name: str, **fields: object) -> Gate:
    found = Gate(tmp_path / name / "gate.json", tmp_path / "night.json")
    found.create(GateState(**fields))  # ty: ignore[invalid-argument-type]
    return found


@pytest.fixture
def two(tmp_path: Path) -> tuple[Gate, Gate]:
    share_gate(tmp_path / "night.json", budget_usd=2.5)
    return join(tmp_path, "a"), join(tmp_path, "b")


def test_what_one_batch_has_spent_and_reserved_counts_for_the_other(tmp_path: Path, two: tuple[Gate, Gate]) -> None:
    one, other = two
    with lock(Batch(tmp_path / "a").lock), lock(Batch(tmp_path / "b").lock):
        assert one.enter("t1", "p") is None
        for gate, trial in ((one, "t2"), (other, "t1")):
            waits = gate.enter(trial, "p")
            assert waits is not None
            assert waits.waits_for is WaitKind.FIRST_COST
        one.leave("t1", "p", 0.2)
        assert other.enter("t1", "p") is None, "a trial of another batch may have the same name"
        other.leave("t1", "p", 2.4)
        for gate in two:
            refused = gate.enter("t3", "p")
            assert refused is not None
            assert (refused.final, refused.kind) == (True, ExclusionKind.BUDGET)
            assert "$2.60 spent" in refused.reason
            assert gate.why_closed("p") == refused


def test_a_batch_counts_once_however_often_it_is_put_up(tmp_path: Path, two: tuple[Gate, Gate]) -> None:
    one, _ = two
    assert one.enter("t1", "p") is None
    one.leave("t1", "p", 0.5)
    assert one.enter("t2", "p") is None
    for _ in range(2):  # a resume: what is on disk is what it has spent
        join(tmp_path, "a", accounts={"p": Account(known=KnownCost(2, 0.9))})
    shares = read_shared(tmp_path / "night.json").batches
    assert shares[str(tmp_path / "a")].accounts == {"p": Account(known=KnownCost(2, 0.9))}


def test_what_a_deleted_batch_has_spent_stays_spent(tmp_path: Path, two: tuple[Gate, Gate]) -> None:
    one, other = two
    for _ in range(2):
        assert one.enter("t1", "p") is None
        one.leave("t1", "p", 0.5)
        shutil.rmtree(tmp_path / "a")
        join(tmp_path, "a")  # a further run takes the same number
    assert read_limits(other, tmp_path / "b" / "control.json").shared_spend == "shared: $1.00 of $2.50"
    shares = read_shared(tmp_path / "night.json").batches
    assert sum(share.accounts["p"].known.usd for share in shares.values() if share.accounts) == 1.0


def test_nobody_waits_for_what_a_killed_batch_held(tmp_path: Path, two: tuple[Gate, Gate]) -> None:
    del two
    likely = {"p": Account(to_start=3, likely=LikelyCost(1.2))}
    one, other = join(tmp_path, "a", accounts=likely), join(tmp_path, "b", accounts=likely)
    with lock(Batch(tmp_path / "a").lock):
        assert one.enter("t1", "p") is None
        with lock(Batch(tmp_path / "b").lock):
            assert other.enter("t1", "p") is None
            waits = one.enter("t2", "p")
            assert waits is not None
            assert waits.waits_for is WaitKind.BUDGET
            other.leave("t1", "p", 1.2)
            waits = other.enter("t2", "p")
            assert waits is not None
            assert (waits.waits_for, waits.reason) == (
                WaitKind.SHARE,
                "p has used its share of the budget of $2.50 of the shared gate night.json; waiting for what other "
                "batches do not need",
            )
    refused = other.enter("t2", "p")  # the runner of the first is gone: its trials give nothing back
    assert refused is not None
    assert refused.final
    assert "$1.20 spent and 1 try of unknown cost, taken as $1.20" in refused.reason


def test_the_budget_of_a_batch_holds_beside_the_shared_one(tmp_path: Path) -> None:
    share_gate(tmp_path / "night.json", budget_usd=100.0)
    one, other = join(tmp_path, "a", budget_usd=1.0), join(tmp_path, "b")
    assert one.enter("t1", "p") is None
    one.leave("t1", "p", 1.2)
    refused = one.enter("t2", "p")
    assert refused is not None
    assert refused.final
    assert other.enter("t2", "p") is None, "closed for the batch that has spent its own"


def test_a_deadline_and_a_rate_limit_are_everybodys(tmp_path: Path) -> None:
    share_gate(tmp_path / "night.json", run_timeout_sec=3600.0)
    one, other = join(tmp_path, "a"), join(tmp_path, "b")
    now = other.read().clock.now()
    one.press("some/model", started_at=0.0, asked_sec=30.0, now=now)
    assert other.read().let_in_at("t", "some/model") >= now + 30.0
    other.ease("some/model", started_at=now + 40.0)
    assert one.read().lanes["some/model"].level == 0
    late = one.enter("t", "p", now=now + 3601.0)
    assert late is not None
    assert late.kind is ExclusionKind.DEADLINE


def test_a_missing_or_hand_written_gate_sets_what_it_says(tmp_path: Path) -> None:
    gate = join(tmp_path, "a")
    assert gate.enter("t1", "p") is None
    (tmp_path / "night.json").write_text('{"budget_usd": 0.5}')
    gate = join(tmp_path, "a", accounts={"p": Account(known=KnownCost(1, 0.6))})
    refused = gate.enter("t2", "p")
    assert refused is not None
    assert refused.final


def test_orders_to_all_and_to_one(tmp_path: Path) -> None:
    night = tmp_path / "night.json"
    one, other = (ControlFile(tmp_path / name / "control.json", night) for name in ("a", "b"))

    def pause(control) -> None:
        control.paused["*"] = "quota"

    one.change(pause)
    assert (one.read().why_paused("p"), other.read().why_paused("p")) == ("quota", None)
    one.clear()
    ControlFile(shared_control(night)).change(pause)
    assert (one.read().why_paused("p"), other.read().why_paused("p")) == ("quota", "quota")
    one.clear()
    assert one.read().why_paused("p") == "quota", "a batch that starts does not take back what was said to all"


def test_orders_stay_beside_the_gate_until_they_are_taken_back(tmp_path: Path) -> None:
    night = tmp_path / "night.json"
    share_gate(night)

    def order(control) -> None:
        control.paused["*"] = "quota"
        control.stopped["q"] = "cancelled: wrong"

    ControlFile(shared_control(night)).change(order)
    said = list(check_orders(night))
    assert [text.partition(" by an earlier order: ")[0] for text in said] == [
        "night.json: q does not run",
        "night.json: every profile waits",
    ]
    assert "cancelled: wrong; tbench ctl resume --gate" in said[0]
    with pytest.raises(UserError, match="no batch that shares this gate is running"):
        give_to_all(night, ControlOrder("pause", (), "more"))
    with pytest.raises(UserError, match="everything is paused: quota"):
        give_to_all(night, ControlOrder("resume", ("q",), "right after all"))
    ControlFile(shared_control(night)).change(lambda control: control.paused.clear())
    with pytest.raises(UserError, match='no profile is called "p"'):
        give_to_all(night, ControlOrder("resume", ("p",), "a typo"))
    back = give_to_all(night, ControlOrder("resume", ("q",), "right after all"))
    assert back.targets == ["q"], "by its name, though none runs"
    assert not list(check_orders(night))
    ControlFile(shared_control(night)).change(order)
    assert give_to_all(night, ControlOrder("resume", (), "a new night")).targets == ["*"]
    assert not list(check_orders(night)), "also when no batch runs"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "Input data was truncated"),
        (b"\xff", "JSON is malformed: invalid character (byte 0)"),
        ("[1]", "Expected `object`, got `array`"),
        ('{"budget": 1}', "Object contains unknown field `budget`"),
        ('{"budget_usd": "x"}', "Expected `float | null`, got `str` - at `$.budget_usd`"),
        ('{"budget_usd": -1}', "Expected `float` >= 0.0 - at `$.budget_usd`"),
        ('{"deadline": "noon"}', "Expected `float | null`, got `str` - at `$.deadline`"),
        (None, "it is a folder"),
    ],
)
def test_a_file_that_is_no_shared_gate_says_what_it_is(tmp_path: Path, text: str | bytes | None, what: str) -> None:
    path = tmp_path / "night.json"
    if text is None:
        path.mkdir()
    else:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UserError) as raised:
        read_shared(path)
    assert (raised.value.where, raised.value.what) == (str(path), f"is not a shared gate: {what}")
    assert raised.value.hint


def test_a_pipe_is_no_shared_gate(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is not a plain file"):
        read_shared(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"names that end in \.lock"):  # it would be its own lock
        read_shared(tmp_path / "night.lock")


def test_a_budget_that_is_raised_while_batches_run_opens_the_gate(tmp_path: Path, two: tuple[Gate, Gate]) -> None:
    one, other = two
    assert one.enter("t1", "p") is None
    one.leave("t1", "p", 2.6)
    for gate in two:
        assert gate.enter("t2", "p") is not None
    assert other.why_none(GateState(), ["p"]) is not None
    assert other.why_none(GateState(free=["o"]), ["p", "o"]) is None, "one that costs nothing can start"
    path = tmp_path / "night.json"
    path.write_text(path.read_text().replace('"budget_usd": 2.5', '"budget_usd": 20.0'))
    assert read_limits(other, tmp_path / "b" / "control.json").shared_lines == [
        "shared gate night.json: $2.60 of $20.00 spent by 2 batches"
    ]
    assert other.why_none(GateState(), ["p"]) is None
    assert other.enter("t3", "p") is None


def test_orders_that_cannot_be_read_name_their_file(tmp_path: Path, two: tuple[Gate, Gate]) -> None:
    del two
    shared_control(tmp_path / "night.json").write_text("nope")
    for say in (lambda gate: list(check_orders(gate)), lambda gate: give_to_all(gate, ControlOrder("resume", (), "x"))):
        with pytest.raises(
            UserError, match=r"night\.control\.json: these orders cannot be read: the file does not contain orders"
        ):
            say(tmp_path / "night.json")


def test_a_shared_gate_of_an_earlier_version_counts_what_its_batches_have_spent(tmp_path: Path) -> None:
    old = {"spent_usd": 1.5, "reserved_usd": 0.5, "known": {"trials": 3, "usd": 1.5}}
    shut = {"reason": "the budget of $2.00 is used up", "kind": "budget", "final": True}
    earlier = {"budget_usd": 2.5, "shut": shut, "shut_at_usd": 2.0, "batches": {str(tmp_path / "b"): old}}
    (tmp_path / "night.json").write_bytes(msgspec.json.encode(earlier))
    one = join(tmp_path, "a")
    assert read_limits(one, tmp_path / "a" / "control.json").shared_spend == "shared: $2.00 of $2.50"
    assert one.enter("t1", "p") is None
    one.leave("t1", "p", 0.5)
    refused = one.enter("t2", "p")
    assert refused is not None
    assert refused.final
