"""A gate that several batches share is shown by the run line, `watch`, `status` and the dashboard, as a shared one."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from support.live import START, Teller, plan
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.accounts import Account, KnownCost
from terminalbench.harbor.limits.control import ControlFile, shared_control
from terminalbench.harbor.limits.gate import Gate, GateState, gate_of, read_shared, share_gate
from terminalbench.index.scan import scan_all
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import run_line
from terminalbench.locks import lock
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render


def sharing(root: Path, budget_usd: float | None = 5.5) -> Batch:
    """A batch that has spent $0.50 of a gate which another batch, that is over, has spent $2.25 of."""
    batch, other = (Batch(root / "results" / slug / "0") for slug in ("s", "t"))
    planned = msgspec.structs.replace(plan(), gate=str(root / "night.json"))
    share_gate(root / "night.json", budget_usd=budget_usd)
    for one, spent in ((batch, 0.5), (other, 2.25)):
        one.runs.mkdir(parents=True)
        write_json(one.plan_json, planned)
        gate_of(one, planned).create(GateState(accounts={"p": Account(known=KnownCost(1, spent))}))
    append_jsonl(batch.events_jsonl, Teller("a__1").started(0))
    return batch


def shown(batch: Batch, tbench) -> dict[str, str]:
    feed, root = Feed(batch), batch.folder.parents[1]
    feed.read()
    scan_all(root)
    site = Site(root, lambda: datetime.fromtimestamp(START + 5, UTC))
    site.live = ("s/0",)
    with lock(batch.lock, "test"):
        status = tbench("status", "--results", root).out
    return {
        "run line": run_line(feed.state, START + 5),
        "watch": "\n".join(line.plain for line in render(Frame(feed, START + 5), 160, 30)),
        "status": status,
        "dashboard": (answer(site, "batches/s/0/", {}).body or b"").decode(),
    }


def test_every_surface_shows_what_all_batches_of_a_shared_gate_have_spent(tmp_path: Path, tbench) -> None:
    batch = sharing(tmp_path)
    for surface, text in shown(batch, tbench).items():
        assert "shared gate night.json: $2.75 of $5.50 spent by 2 batches" in text, surface
    assert "shared: $2.75 of $5.50" in shown(batch, tbench)["watch"].splitlines()[1]


def test_orders_to_all_batches_and_a_closed_gate_are_said_to_be_shared(tmp_path: Path, tbench) -> None:
    batch = sharing(tmp_path, budget_usd=None)
    orders = ControlFile(shared_control(tmp_path / "night.json"))
    orders.change(lambda control: control.paused.update({"*": "quota"}))
    orders.change(lambda control: control.parallel.update({"p": 1}))
    for surface, text in shown(batch, tbench).items():
        assert "shared gate night.json: $2.75 spent by 2 batches; paused: quota; p 1 trial at once" in text, surface
    spent = msgspec.structs.replace(read_shared(tmp_path / "night.json"), budget_usd=2.5)
    write_json(tmp_path / "night.json", spent)
    for surface, text in shown(batch, tbench).items():
        assert "2 batches; nothing new starts: the budget is used up; paused: quota" in text, surface
        assert "the budget of $2.50 of the shared gate night.json is exceeded by $0.25" in text, surface


def test_a_view_that_is_open_sees_what_other_batches_spend_and_orders_that_come_later(tmp_path: Path) -> None:
    batch = sharing(tmp_path)
    feed = Feed(batch)
    feed.read()
    assert not feed.read()
    other = Gate(tmp_path / "results" / "t" / "0" / "gate.json", tmp_path / "night.json")
    other.leave("b__1", "p", 1.0)
    assert feed.read()
    assert "$3.75 of $5.50 spent by 2 batches" in run_line(feed.state, START)
    version = feed.version
    ControlFile(shared_control(tmp_path / "night.json")).change(lambda control: control.paused.update({"*": "quota"}))
    assert feed.read()
    assert feed.version > version
    assert "paused: quota" in run_line(feed.state, START)


def test_a_gate_of_its_own_is_not_called_shared(tmp_path: Path, tbench) -> None:
    batch = Batch(tmp_path / "results" / "s" / "0")
    batch.runs.mkdir(parents=True)
    write_json(batch.plan_json, plan())
    Gate(batch.gate_json).create(GateState(budget_usd=3.0, accounts={"p": Account(known=KnownCost(1, 1.0))}))
    append_jsonl(batch.events_jsonl, Teller("a__1").started(0))
    found = shown(batch, tbench)
    assert "$1.00 of $3.00" in found["watch"]
    assert not [surface for surface, text in found.items() if "shared" in text]


def test_what_is_paused_is_read_from_the_orders_of_the_batch_and_of_the_gate(tmp_path: Path) -> None:
    batch = sharing(tmp_path)
    feed = Feed(batch)
    feed.read()
    assert feed.state.limits.told.why_paused("p") is None
    ControlFile(batch.control_json).change(lambda told: told.paused.update({"p": "quota"}))
    feed.read()
    assert feed.state.limits.told.why_paused("p") == "quota"
    ControlFile(batch.control_json).clear()
    ControlFile(shared_control(tmp_path / "night.json")).change(lambda told: told.paused.update({"*": "lunch"}))
    feed.read()
    assert feed.state.limits.told.why_paused("p") == "lunch"
