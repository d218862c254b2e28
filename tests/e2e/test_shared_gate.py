"""Two batches that run at once and share one gate: together they keep one budget, one 429 and one order hold both."""

import json

import pytest
from test_run import LIMIT_SEC, scripted, wait_for

from support.aftermath import cost
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.gate import read_shared, share_gate
from terminalbench.json_files import read_jsonl
from terminalbench.records.event import Event

BUDGET_USD = 5.5
AGENTS = """

from harbor.agents.installed.base import ApiRateLimitError


class Limited(Scripted):
    async def run(self, instruction, environment, context) -> None:
        (self.logs_dir / "log.txt").write_text("429 Too Many Requests, retry-after: 600")
        raise ApiRateLimitError("429: slow down")
"""


def pair(lab, one: str, other: str, run: str):
    """Two experiments of two slugs, started side by side on the gate `night.json`."""
    started = []
    for slug, profiles in (("one", one), ("two", other)):
        file = lab.experiment(profiles, tasks=("a",), run=run, name=f"{slug}.toml")
        file.write_text(file.read_text().replace('slug = "s"', f'slug = "{slug}"'))
        started.append(lab.start("run", file, "--gate", lab.root / "night.json"))
    return started


def batch(lab, slug: str) -> Batch:
    return Batch(lab.root / "results" / slug / "0")


def events(lab, slug: str) -> list[Event]:
    return read_jsonl(batch(lab, slug).events_jsonl, Event).records


def cells(lab, slug: str) -> list[dict]:
    return json.loads(batch(lab, slug).index_json.read_text())["runs"]


def test_together_they_overspend_by_at_most_one_trial_a_slot(lab) -> None:
    share_gate(lab.root / "night.json", budget_usd=BUDGET_USD)
    profile = scripted("p", cost_usd=1.0, sleep_sec=0.3)
    started = pair(lab, profile, profile, "attempts = 8\nparallel = 1")
    for process in started:
        out, err = process.communicate(timeout=LIMIT_SEC)
        assert process.returncode in (1, 3), out + err
        assert f"the budget of ${BUDGET_USD:.2f} of the shared gate night.json is used up" in out
        assert f"raise budget_usd in {lab.root / 'night.json'}, then: tbench resume results/" in out
    for slug in ("one", "two"):
        held = [event.error or "" for event in events(lab, slug) if event.kind == "trial_held"]
        assert all("of the shared gate night.json is used up" in text for text in held)
    spent = [cost(batch(lab, slug).folder) for slug in ("one", "two")]
    assert BUDGET_USD - 1.0 <= sum(spent) <= BUDGET_USD + 2 * 1.0
    told = read_shared(lab.root / "night.json").batches
    assert {name: share.accounts["p"].known.usd for name, share in told.items()} == pytest.approx(
        {str(batch(lab, slug).folder): usd for slug, usd in zip(("one", "two"), spent, strict=True)}
    )
    # The gate is closed for a resume and for a further batch: nothing is made, nothing is written.
    before = (lab.root / "night.json").read_bytes(), events(lab, "one")
    for command, then in ((["resume", batch(lab, "one").folder], "then resume"),
                          (["run", lab.root / "experiments" / "one.toml", "--gate", lab.root / "night.json"],
                           "or name another gate")):  # fmt: skip
        refused = lab.tbench(*command)
        assert refused.returncode == 2, refused.stdout + refused.stderr
        used_up = (
            f"{lab.root / 'night.json'}: the budget of ${BUDGET_USD:.2f} of the shared gate night.json is used up ("
        )
        assert used_up in refused.stderr
        assert f"raise budget_usd in it, {then}" in refused.stderr
    assert not Batch(lab.root / "results" / "one" / "1").folder.exists()
    assert ((lab.root / "night.json").read_bytes(), events(lab, "one")) == before
    # A raised budget opens it for one more trial; what is still held says why it is held now.
    raised = json.loads(before[0]) | {"budget_usd": sum(spent) + 1.0}
    (lab.root / "night.json").write_text(json.dumps(raised))
    again = lab.tbench("resume", batch(lab, "one").folder)
    assert again.returncode == 3, again.stdout + again.stderr
    assert cost(batch(lab, "one").folder) == pytest.approx(spent[0] + 1.0)
    reasons = {cell["reason"] for cell in cells(lab, "one") if cell["outcome"] == "not_run"}
    assert reasons == {f"the budget of ${sum(spent) + 1:.2f} of the shared gate night.json is used up "
                       f"(${sum(spent) + 1:.2f} spent)"}  # fmt: skip


def test_one_429_and_one_order_hold_both(lab, tbench) -> None:
    lab.project.write("lab_agents.py", (lab.root / "lab_agents.py").read_text() + AGENTS)
    share_gate(lab.root / "night.json")
    head = '[defaults]\nmodel = "some/model"\n'
    limited = f'{head}[profiles.p]\nagent = "lab_agents:Limited"\n'
    # The other has ended no trial when the first is rate limited; its second trial has to wait.
    patient = head + scripted("q", free=0)
    one, other = pair(lab, limited, patient, "attempts = 2\nparallel = 1")
    wait_for(lambda: any(event.kind == "trial_waiting" for event in events(lab, "one")) or one.poll() is not None)
    lab.go()
    wait_for(lambda: any(event.kind == "trial_waiting" for event in events(lab, "two")) or other.poll() is not None)
    waits = [event for event in events(lab, "two") if event.kind == "trial_waiting"]
    assert [(event.error, event.detail["cause"]) for event in waits] == [("rate limit of some/model", "rate_limit")]
    assert not [event for event in events(lab, "two") if "error_class" in event.detail], "it met no 429 itself"
    said = lab.tbench("ctl", "cancel", "--gate", lab.root / "night.json", "--reason", "enough")
    first, *ended = said.stdout.splitlines()
    assert (said.returncode, first) == (0, f"cancel: all profiles ({lab.root / 'night.json'})"), said.stderr
    waited = {event.trial for slug in ("one", "two") for event in events(lab, slug) if event.kind == "trial_waiting"}
    told = {line.partition(" has ended: ")[0]: line.partition(" has ended: ")[2] for line in ended}
    assert waited <= told.keys(), said.stdout
    assert set(told.values()) <= {"not_run", "cancelled"}, "in both batches, and it was waited for"
    for slug, process in (("one", one), ("two", other)):
        out, err = process.communicate(timeout=LIMIT_SEC)
        assert process.returncode in (1, 3), out + err
        again = "to continue: tbench ctl resume --gate night.json --reason TEXT, then: tbench resume"
        assert again in out
        orders = [event for event in events(lab, slug) if event.kind == "control" and event.detail.get("by")]
        assert [(event.error, event.detail["target"]) for event in orders] == [("enough", "*")]
    for command in (["run", lab.root / "experiments" / "one.toml", "--gate", lab.root / "night.json"],
                    ["resume", batch(lab, "one").folder]):  # fmt: skip
        refused = lab.tbench(*command)
        assert refused.returncode == 2, refused.stdout
        assert "all batches of this gate were cancelled: enough" in refused.stderr
        assert "tbench ctl resume --gate night.json" in refused.stderr
    assert not Batch(lab.root / "results" / "one" / "1").folder.exists()
    gone = tbench("ctl", "pause", "--gate", lab.root / "night.json", "--reason", "x")
    assert (gone.code, "no batch that shares this gate is running" in gone.err) == (2, True)


@pytest.mark.parametrize("text", ["nope", '{"budget_usd": "x"}', '{"budget": 20.0}', '{"budget_usd": -1.0}'])
def test_a_file_that_is_no_shared_gate_is_refused_before_a_batch_is_taken(lab, text: str) -> None:
    file = lab.experiment(scripted("p"), tasks=("a",))
    lab.project.write("night.json", text)
    ran = lab.tbench("run", file, "--gate", lab.root / "night.json")
    assert ran.returncode == 2, ran.stderr
    assert "night.json: is not a shared gate: " in ran.stderr
    assert not (lab.root / "results").exists()
    assert (lab.root / "night.json").read_text() == text


def test_a_gate_that_is_not_there_is_said(lab) -> None:
    told = lab.tbench("ctl", "resume", "--gate", lab.root / "nihgt.json", "--reason", "go")
    assert (told.returncode, "nihgt.json: there is no such gate" in told.stderr) == (2, True)
    assert not list(lab.root.glob("nihgt*"))
    file = lab.experiment(scripted("p"), tasks=("a",))
    ran = lab.tbench("run", file, "--gate", lab.root / "nowhere" / "night.json")
    assert (ran.returncode, "the folder of this shared gate does not exist" in ran.stderr) == (2, True)
    assert not (lab.root / "nowhere").exists()
    assert not (lab.root / "results").exists()
