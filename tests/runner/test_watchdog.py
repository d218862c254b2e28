"""Each thing that can go wrong is injected, named, and cleared again."""

import shutil
from typing import Any

import pytest

from support.results import make_plan
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.tables import RunTable
from terminalbench.harbor.limits.control import ControlFile
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.harbor.limits.pacing import Lane
from terminalbench.json_files import read_jsonl
from terminalbench.live.forecast import run_line
from terminalbench.live.notices import Alerts
from terminalbench.live.state import replay
from terminalbench.records.event import Event
from terminalbench.runner.watchdog import Alert, AlertChange, MachineSample, Watchdog, WatchdogOrder
from terminalbench.runner.watchdog_loop import Observer, WatchdogLoop, memory_mb
from terminalbench.sandbox.activity import Activity, live_hits
from terminalbench.text.numbers import duration


def event(kind: str, trial: str | None = "t", profile: str | None = "p", **fields: object) -> Event:
    return Event("2026-01-01T00:00:00Z", kind, "job", 1, profile, trial, **fields)  # ty: ignore[invalid-argument-type]


def ended(error_class: str | None, profile: str = "p", trial: str = "t", **detail: object) -> Event:
    told = {"error_class": error_class} if error_class else {}
    return event("trial_ended", trial, profile, error="said so", detail={**told, **detail})


def sample(now: float = 0.0, **fields: object) -> MachineSample:
    return MachineSample(**{"now": now, "wall": 1000.0 + now, **fields})  # ty: ignore[invalid-argument-type]


def raised(changes: list[AlertChange]) -> dict[str, str]:
    return {change.alert.cause: change.alert.message for change in changes if change.raised}


def cleared(changes: list[AlertChange]) -> list[str]:
    return [change.alert.cause for change in changes if not change.raised]


def test_a_trial_without_activity() -> None:
    dog = Watchdog(RunTable(stall_sec=60))
    dog.add(event("trial_started"))
    dog.add(event("trial_phase", phase="agent"))
    assert dog.look(sample(quiet_sec={"t": 59.0}))[0] == []
    changes, orders = dog.look(sample(quiet_sec={"t": 60.0}))
    assert raised(changes) == {"stall": "t: no activity for 60 s (phase agent)"}
    assert orders == []
    assert dog.look(sample(quiet_sec={"t": 65.0}))[0] == [], "once"
    assert cleared(dog.look(sample(quiet_sec={"t": 1.0}))[0]) == ["stall"]
    dog.look(sample(quiet_sec={"t": 70.0}))
    dog.add(ended(None))
    assert cleared(dog.look(sample(quiet_sec={"t": 80.0}))[0]) == ["stall"]


@pytest.mark.parametrize(
    ("policy", "order"),
    [("stop", WatchdogOrder("stop", "p", "{}")), ("pause", WatchdogOrder("pause", "p", "{}")), ("continue", None)],
)
@pytest.mark.parametrize("cause", ["auth", "credit", "setup"])
def test_everything_fails_for_one_profile(cause: str, policy: Any, order: WatchdogOrder | None) -> None:
    dog = Watchdog(RunTable(on_auth_failure=policy, on_setup_failure=policy))
    dog.add(ended(cause))
    dog.add(ended(None, "q"))
    assert dog.look(sample())[0] == []
    dog.add(ended(cause))
    changes, orders = dog.look(sample())
    (change,) = changes
    assert (change.alert.cause, change.alert.profile, change.alert.severity) == (cause, "p", "error")
    assert change.alert.message.endswith(" 2 times in a row: said so")
    assert orders == ([] if order is None else [WatchdogOrder(order.action, "p", change.alert.message)])
    dog.add(ended(None))
    assert cleared(dog.look(sample())[0]) == [cause]


def test_other_endings_in_between_are_no_streak() -> None:
    dog = Watchdog()
    for kind in ("auth", None, "auth", "network", "auth"):
        dog.add(ended(kind))
    assert dog.look(sample())[0] == []


def test_environments_that_do_not_start() -> None:
    dog = Watchdog()
    for profile in ("p", "q", "p"):
        dog.add(ended("environment", profile))
    assert raised(dog.look(sample())[0]) == {"environment": "3 environments in a row did not start or broke: said so"}
    dog.add(ended(None, "q"))
    assert cleared(dog.look(sample())[0]) == ["environment"]


def test_pressure_by_level_and_by_answers() -> None:
    dog = Watchdog(RunTable(on_rate_limit="slow"))
    assert dog.look(sample(lanes={"m": 1}))[0] == []
    changes, orders = dog.look(sample(lanes={"m": 2}))
    assert raised(changes) == {"rate_limit": "m: rate limited repeatedly; its trials wait"}
    assert orders == [], "no profile can be blamed"
    assert cleared(dog.look(sample(1.0, lanes={"m": 0}))[0]) == ["rate_limit"]
    dog.add(event("trial_started"))
    dog.look(sample(2.0, hits={"t": 2}))
    dog.add(ended(None, rate_limit_hits=4))  # two of them were seen while it ran
    dog.add(ended("rate_limit", trial="u"))
    changes, orders = dog.look(sample(100.0))
    assert raised(changes) == {"rate_limit": "p: 5 answers 429 in 5.0 min"}
    assert [(order.action, order.profile) for order in orders] == [("slow", "p")]
    changes, orders = dog.look(sample(303.0))
    assert cleared(changes) == ["rate_limit"]
    assert [order.action for order in orders] == ["unslow"]


def test_a_full_disk_pauses_everything_until_there_is_room() -> None:
    dog = Watchdog()
    assert dog.look(sample(free_mb=513.0, memory_mb=10_000.0))[0] == []
    changes, orders = dog.look(sample(free_mb=100.0))
    assert raised(changes) == {"disk": "only 100.0 MB are free on the disk of the results"}
    assert [(order.action, order.profile) for order in orders] == [("pause", "*")]
    changes, orders = dog.look(sample(free_mb=9999.0))
    assert cleared(changes) == ["disk"]
    assert [(order.action, order.profile) for order in orders] == [("resume", "*")]


def test_memory_and_unknown_memory() -> None:
    dog = Watchdog()
    assert dog.look(sample(memory_mb=None, free_mb=None))[0] == []
    assert raised(dog.look(sample(memory_mb=200.0))[0]) == {
        "memory": "only 200.0 MB of memory are free on this machine"
    }


@pytest.mark.parametrize("jump", [3600.0, -40.0])
def test_a_jump_of_the_clock(jump: float) -> None:
    dog = Watchdog()
    dog.look(sample(0.0))
    assert dog.look(sample(10.0))[0] == []
    changes, _ = dog.look(sample(20.0, wall=1020.0 + jump))
    assert list(raised(changes)) == ["clock"]
    assert f"jumped by {duration(jump, sign=True)};" in raised(changes)["clock"]
    assert dog.look(sample(300.0, wall=1300.0 + jump))[0] == []
    assert cleared(dog.look(sample(330.0, wall=1330.0 + jump))[0]) == ["clock"]


def test_a_dead_and_a_silent_child() -> None:
    dog = Watchdog()
    dog.add(event("note", None, error="Harbor ended its job (code -9): no words", detail={"code": -9}))
    changes, _ = dog.look(sample(silent_sec={"q": 61.0}))
    assert raised(changes) == {
        "dead_child": "p: Harbor ended its job (code -9): no words",
        "silent_child": "q: Harbor gave no sign of life for 61 s",
    }
    dog.add(event("job_started", None))
    assert sorted(cleared(dog.look(sample(silent_sec={"q": 1.0}))[0])) == ["dead_child", "silent_child"]


def test_a_child_that_died_between_two_looks_is_named_though_the_next_one_runs() -> None:
    dog = Watchdog()
    dog.add(event("job_started", None))
    dog.look(sample())
    dog.add(event("note", None, error="Harbor ended its job (code -9): no words", detail={"code": -9}))
    dog.add(event("job_started", None))
    assert raised(dog.look(sample())[0]) == {"dead_child": "p: Harbor ended its job (code -9): no words"}
    assert cleared(dog.look(sample())[0]) == ["dead_child"]
    assert dog.look(sample())[0] == []


class Machine:
    """A guard over a made-up batch, with clocks and a disk in our hands."""

    def __init__(self, folder, **settings: object) -> None:
        self.batch = Batch(folder / "s" / "0")
        self.batch.folder.mkdir(parents=True)
        self.plan = make_plan(self.batch, settings=settings)
        Gate(self.batch.gate_json).create(GateState())
        self.now, self.free = 0.0, 10_000.0
        observer = Observer(
            self.batch,
            Gate(self.batch.gate_json),
            lambda: self.now,
            lambda: self.now,
            lambda _: self.free,
            lambda: None,
        )
        self.told: list[Alert] = []
        self.guard = WatchdogLoop(self.batch, self.plan, observer, self.told.append, look_sec=5.0)

    def look(self, after: float = 5.0) -> None:
        self.now += after
        self.guard.add(event("heartbeat", None))
        self.guard.look()

    def alerts(self) -> list[tuple[str, str]]:
        found = read_jsonl(self.batch.events_jsonl, Event).records
        return [(e.detail["cause"], e.detail["state"]) for e in found if e.kind == "alert"]


def test_a_guard_writes_alerts_and_carries_out_orders(tmp_path) -> None:
    machine = Machine(tmp_path, on_auth_failure="stop")
    machine.free = 10.0
    machine.look()
    machine.look(1.0)
    control = ControlFile(machine.batch.control_json)
    assert control.read().why_paused("p") == "only 10.0 MB are free on the disk of the results"
    machine.free = 10_000.0
    machine.look()
    assert control.read().why_paused("p") is None
    control.change(lambda told: told.paused.update({"*": "lunch"}))
    for _ in range(2):
        machine.guard.add(ended("auth"))
    machine.look()
    assert "authentication failed 2 times" in (control.read().why_stopped("p") or "")
    assert control.read().why_stopped("q") is None
    assert control.read().why_paused("p") == "lunch", "what a person said stays"
    assert machine.alerts() == [("disk", "raised"), ("disk", "cleared"), ("auth", "raised")]
    assert [alert.cause for alert in machine.told] == ["disk", "auth"]
    orders = [e for e in read_jsonl(machine.batch.events_jsonl, Event).records if e.kind == "control"]
    assert [(e.detail["action"], e.detail["target"], e.detail["by"]) for e in orders] == [
        ("pause", "*", "watchdog"),
        ("resume", "*", "watchdog"),
        ("stop", "p", "watchdog"),
    ]
    machine.guard.end()
    assert machine.alerts()[-1] == ("auth", "cleared")


def test_fewer_trials_at_once_while_the_pressure_lasts(tmp_path) -> None:
    machine = Machine(tmp_path, on_rate_limit="slow", parallel=8)
    machine.guard.add(ended(None, rate_limit_hits=9))
    machine.look()
    control = ControlFile(machine.batch.control_json)
    assert control.read().at_once("p") == 4
    machine.look(400.0)
    assert control.read().at_once("p") is None


def test_slower_is_half_of_what_runs_now_and_then_as_before(tmp_path) -> None:
    machine = Machine(tmp_path, on_rate_limit="slow", parallel=2)
    control = ControlFile(machine.batch.control_json)
    control.change(lambda found: found.parallel.update({"*": 12}))
    machine.guard.add(ended(None, rate_limit_hits=9))
    machine.look()
    assert control.read().at_once("p") == 6
    machine.look(400.0)
    assert control.read().at_once("p") == 12
    orders = [e.detail["value"] for e in read_jsonl(machine.batch.events_jsonl, Event).records if e.kind == "control"]
    assert orders == [6, 12]


def test_activity_is_new_bytes_in_the_logs_or_the_sandboxs_sign_of_life(tmp_path) -> None:
    machine = Machine(tmp_path, stall_sec=30.0)
    folder = machine.batch.job_folder("job") / "t"
    (folder / "agent").mkdir(parents=True)
    machine.guard.add(event("trial_started"))
    machine.look(29.0)
    (folder / "agent" / "log.txt").write_text("works")
    machine.look(29.0)
    (folder / ".activity").touch()
    machine.look(29.0)
    assert machine.alerts() == []
    machine.look(30.0)
    assert machine.alerts() == [("stall", "raised")]
    for found in read_jsonl(machine.batch.events_jsonl, Event).records:
        machine.guard.add(found)  # as a run does: the alert itself is no activity
    machine.look()
    assert machine.alerts() == [("stall", "raised")]
    with (folder / "agent" / "log.txt").open("a") as log:
        log.write('{"error_status":429}\n' * 5)
    machine.look()
    assert machine.alerts() == [("stall", "raised"), ("rate_limit", "raised"), ("stall", "cleared")]
    machine.look()
    assert len(machine.alerts()) == 3, "every answer counts once"


@pytest.mark.parametrize("looks", [0, 1, 2])
def test_an_answer_counts_once_however_long_its_trial_takes(tmp_path, looks: int) -> None:
    """Those of a slow trial are seen in its log while it runs, and its end tells of all of them again."""
    machine = Machine(tmp_path)
    folder = machine.batch.job_folder("job") / "t"
    (folder / "agent").mkdir(parents=True)
    machine.guard.add(event("trial_started"))
    with (folder / "agent" / "log.txt").open("a") as log:
        for _ in range(2):
            log.write('"error_status":429\n' * 2)
            log.flush()
            if looks:
                looks -= 1
                machine.look()
    machine.guard.add(ended(None, rate_limit_hits=4))
    machine.look()
    assert machine.alerts() == []
    machine.guard.add(ended("rate_limit", trial="u"))
    machine.look()
    assert machine.alerts() == [("rate_limit", "raised")]
    assert machine.told == [Alert("rate_limit", "p: 5 answers 429 in 5.0 min", profile="p")]


def test_what_the_sandbox_tells_of_while_it_runs_counts_once(tmp_path) -> None:
    machine = Machine(tmp_path)
    folder = machine.batch.job_folder("job") / "t"
    (folder / "agent").mkdir(parents=True)
    machine.guard.add(event("trial_started"))
    activity = Activity(folder)
    activity.hit(4)
    machine.look()
    (folder / "agent" / "log.txt").write_text('"error_status":429\n' * 4)  # now it came out
    machine.look()
    machine.guard.add(ended(None, rate_limit_hits=4))
    machine.look()
    assert machine.alerts() == []
    machine.guard.add(event("trial_started"))  # tried again, in a new folder
    shutil.rmtree(folder)
    folder.mkdir()
    Activity(folder).hit(1)
    machine.look()
    (alert,) = machine.told
    assert alert.message == "p: 5 answers 429 in 5.0 min"


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"rate_limit_hits": "x"}', b"\xff", b"9" * 10_000])
def test_a_sign_of_life_that_makes_no_sense_tells_nothing(tmp_path, content: bytes) -> None:
    (tmp_path / ".activity").write_bytes(content)
    assert live_hits(tmp_path) == 0


def test_a_sign_of_life_is_not_read_through_a_link(tmp_path) -> None:
    (tmp_path / "other").write_text('{"rate_limit_hits": 7}')
    (tmp_path / ".activity").symlink_to("other")
    assert live_hits(tmp_path) == 0


def test_a_lane_under_pressure_is_named(tmp_path) -> None:
    machine = Machine(tmp_path)
    Gate(machine.batch.gate_json).create(GateState(lanes={"some/model": Lane(3, 1.0, 1.0)}))
    machine.look()
    state = replay(None, read_jsonl(machine.batch.events_jsonl, Event).records)
    (alert,) = state.alerts.worst_first()
    assert (alert.cause, alert.model, alert.trial) == ("rate_limit", "some/model", None)
    assert "warning (rate_limit): some/model: rate limited repeatedly" in run_line(state, 1.0)


def test_the_end_of_an_alert_leaves_a_persons_pause_alone(tmp_path) -> None:
    machine = Machine(tmp_path)
    control = ControlFile(machine.batch.control_json)
    control.change(lambda found: found.paused.__setitem__("*", "waiting for quota"))
    machine.free = 100.0
    machine.look()
    machine.free = 1e6
    machine.look()
    assert control.read().paused == {"*": "waiting for quota"}


def test_what_a_killed_run_left_standing_is_cleared_by_the_next(tmp_path) -> None:
    machine = Machine(tmp_path)
    machine.free = 1.0
    machine.look()
    machine.guard = WatchdogLoop(machine.batch, machine.plan, machine.guard.observer)
    machine.guard.begin()
    board = Alerts()
    for found in read_jsonl(machine.batch.events_jsonl, Event).records:
        board.add(found)
    assert board.standing == {}


def test_an_alert_that_cannot_be_written_is_told_once_and_written_when_there_is_room(tmp_path) -> None:
    machine = Machine(tmp_path)
    machine.batch.events_jsonl.mkdir()  # as a full disk: every append fails
    machine.free = 10.0
    for _ in range(3):
        machine.look()
    assert [alert.cause for alert in machine.told] == ["disk"]
    machine.batch.events_jsonl.rmdir()
    machine.look()
    machine.look()
    assert machine.alerts() == [("disk", "raised")]
    machine.batch.events_jsonl.rename(tmp_path / "kept")
    machine.batch.events_jsonl.mkdir()
    machine.free = 10_000.0
    machine.look()
    machine.batch.events_jsonl.rmdir()
    (tmp_path / "kept").rename(machine.batch.events_jsonl)
    machine.look()
    assert machine.alerts() == [("disk", "raised"), ("disk", "cleared")]
    assert [alert.cause for alert in machine.told] == ["disk"]


def test_an_alert_that_is_over_before_it_could_be_written_leaves_no_trace(tmp_path) -> None:
    machine = Machine(tmp_path)
    machine.batch.events_jsonl.mkdir()
    machine.free = 10.0
    machine.look()
    machine.free = 10_000.0
    machine.look()
    machine.batch.events_jsonl.rmdir()
    machine.look()
    assert machine.alerts() == []


def test_the_memory_of_this_machine_is_known() -> None:
    found = memory_mb()
    assert found is None or found > 0


def test_what_an_agent_said_does_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from terminalbench.cli.progress import RunTeller

    told = event("alert", None, error="x\x1b[2Jy", detail={"cause": "auth", "severity": "error", "state": "raised"})
    RunTeller(quiet=False).event(told)
    RunTeller(quiet=True).event(told)
    RunTeller(quiet=False).event(event("alert", None, error="z", detail={"cause": "auth", "state": "cleared"}))
    assert capsys.readouterr().err == "error (auth): x␛[2Jy\n"
