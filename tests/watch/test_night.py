"""The live view of a night: golden pictures, any size, its files as they grow, and `tbench watch` on its folder."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import REPO
from support.live import START, Teller, at, feed_of, plan
from terminalbench.campaign import GateStatus
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.live.state import replay
from terminalbench.locks import lock
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    IterationWork,
    NightConfig,
    NightEvent,
    NightEventKind,
    NightModel,
    NightState,
    Role,
    WithdrawnTask,
    WorkEnd,
    WorkerLease,
    WorkerPhase,
)  # fmt: skip
from terminalbench.runner.worktree import CodePin
from terminalbench.watch.night import IterationTally, NightFeed, NightPage, render_night, total_line
from terminalbench.watch.terminal import Controls, ViewEnd

HOSTILE = "evil\x1b[2J\nname"


def config() -> NightConfig:
    return NightConfig(
        run_id="tbrun-1", created_at=at(0), suite="suite.toml", suite_name="starter", suite_version="1", suite_digest="d",
        models=[NightModel("ollama:qwen3:8b", "ollama-qwen3-8b", "p1")], tasks=["a", "b"], iterations=10, attempts=2, seed=1,
        workers="auto", code=CodePin("copy", "/r", "/s"), until="2026-01-02T07:00:00+00:00", budget_usd=5.0,
    )  # fmt: skip


def ended(number: int, status: IterationStatus = IterationStatus.DONE, **changes: object) -> IterationWork:
    end = WorkEnd(0, trials=4, measured=4, passed=3, cost_usd=0.12)
    work = IterationWork(
        number, Role.ITERATION, 1, status, f"night/{number}", 1, started_at=at(0), finished_at=at(300), end=end
    )
    return msgspec.structs.replace(work, **changes)


def leased(number: int, worker: int, role: Role = Role.ITERATION, starts: int = 1) -> IterationWork:
    lease = WorkerLease(worker, 4000 + worker, 1, "here", at(400), START + 400)
    return IterationWork(
        number, role, 1, IterationStatus.LEASED, f"night/{number}", starts, lease=lease, started_at=at(400)
    )


def state() -> NightState:
    work = [
        ended(1), ended(2, IterationStatus.INCOMPLETE, end=WorkEnd(3, trials=4, measured=2, passed=1), reason=f"the disk is full: {HOSTILE}"),
        ended(3, IterationStatus.GIVEN_UP, end=None, reason="5 workers ended"), leased(4, 1), leased(5, 2, starts=2),
        leased(2, 3, Role.VALIDATION),
    ]  # fmt: skip
    clock = SharedClock("another boot", 0.0, START)
    return NightState(
        "tbrun-1",
        clock,
        "running",
        work,
        [WithdrawnTask("b", "d", "ended two workers")],
        workers=4,
        deadline=START + 14_400,
    )


def feed(place: Path) -> NightFeed:
    folder = NightFolder(place / "20260102")
    write_json(folder.config_json, config())
    write_json(folder.state_json, state())
    made = NightFeed(folder)
    events = [
        *Teller("a__1", "a").whole(400, 60, cost=0.1), Teller("b__1", "b").started(410), Teller("b__1", "b").phase(415, "agent"),
    ]  # fmt: skip
    made.batches = {"night/4": feed_of(replay(plan(("p",), ("a", "b"), 2), events), "night/4")}
    made.beats = {
        (4, Role.ITERATION): Heartbeat(4001, 1, START + 999, WorkerPhase.RUNNING, "night/4"),
        (5, Role.ITERATION): Heartbeat(4002, 1, START + 940, WorkerPhase.STARTING),
    }
    made.standing = GateStatus(1.25, 2)
    made.events = [
        NightEvent(at(0), NightEventKind.STARTED, "starter with ollama:qwen3:8b"),
        NightEvent(at(10), NightEventKind.SCALED, "16,000 MB of memory are available, load 0.5", workers=4),
        NightEvent(at(310), NightEventKind.WORKER_LOST, f"worker 2 was killed {HOSTILE}", iteration=5, worker=2),
        NightEvent(at(320), NightEventKind.ITERATION_ENDED, "iteration 1: 3 passed of 4 measured"),
        NightEvent(at(330), NightEventKind.QUARANTINED, "b is left out: it ended two workers"),
        NightEvent(at(340), NightEventKind.INCIDENT, "the endpoint does not answer"),
    ]
    return made


def text(made: NightFeed, width: int, height: int) -> str:
    lines = render_night(NightPage(made, START + 1000), width, height)
    return "\n".join(line.plain.rstrip() for line in lines) + "\n"


@pytest.mark.parametrize("width", [80, 120])
def test_golden_pictures(golden, width: int, tmp_path: Path) -> None:
    golden(REPO / "tests" / "golden" / "watch" / f"night-{width}.txt", text(feed(tmp_path), width, 24))


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> NightFeed:
    return feed(tmp_path_factory.mktemp("night"))


@given(width=st.integers(1, 220), height=st.integers(1, 60))
def test_it_fits_every_terminal(shown: NightFeed, width: int, height: int) -> None:
    lines = render_night(NightPage(shown, START + 1000), width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    assert all(char.isprintable() for line in lines for char in line.plain)


def test_its_own_view_asks_before_it_leaves_or_stops_the_night(shown: NightFeed) -> None:
    page = NightPage(shown, controls=Controls(owner=True))
    for key, found in (
        ("?", "Ctrl-C           stop the night"),
        ("x", "q leave or stop   ? help"),
        ("q", "s  stop the night"),
    ):
        page.press(key)
        lines = [line.plain for line in page.lines(80, 24)]
        assert len(lines) == 24
        assert any(found in line for line in lines), key
    assert page.controls.wish is None
    page.press("s")
    assert page.controls.wish is ViewEnd.STOP
    page.stopping = True
    assert "stopping" in page.lines(80, 24)[0].plain
    other = NightPage(shown, controls=Controls(owner=False))
    other.press("q")
    assert other.controls.wish is ViewEnd.LEFT


def test_without_a_terminal_all_that_happens_is_a_line_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    from terminalbench.cli.night_progress import NightTeller

    event = NightEvent(at(10), NightEventKind.WORKER_STARTED, "iteration 1 is started", iteration=1)
    for quiet in (False, True):
        with NightTeller(quiet=quiet, watch=True) as teller:
            teller.event(event)
    with NightTeller(quiet=False) as teller:
        teller.event(event)
    out, err = capsys.readouterr()
    assert (msgspec.json.decode(out, type=NightEvent), err) == (event, "03:00:10  iteration 1 is started\n")


def test_the_pass_rate_is_of_measured_trials_and_counts_those_that_run(tmp_path: Path) -> None:
    made = feed(tmp_path)
    assert made.tally == IterationTally(trials=12, measured=7, passed=5)
    assert "1 of 10 iterations  2 incomplete  5 of 7 passed  7/12 measured  $1.25 + 2 unknown of $5.00" in total_line(
        made
    )


def test_it_follows_the_files_of_a_night(tmp_path: Path) -> None:
    made = feed(tmp_path)
    made.batches.clear()
    said: list[str] = []
    made.each = lambda event: said.append(event.said)
    folder = made.folder
    with lock(folder.lock, "tbench overnight"):
        append_jsonl(folder.events_jsonl, NightEvent(at(1), NightEventKind.NOTE, "one"))
        write_json(
            folder.heartbeat(4, Role.ITERATION), Heartbeat(os.getpid(), 1, START + 5, WorkerPhase.RUNNING, "night/7")
        )
        assert made.poll()
        assert not made.over
        assert said == ["one"]
        assert set(made.batches) == {"night/7", "night/5", "night/2"}
        assert not made.poll(), "nothing new"
        now = state()
        now.work[3].lease = None
        write_json(folder.state_json, now)
        assert made.poll()
        assert [work.number for work in made.at_work] == [5, 2]
    made.poll()
    assert made.over
    assert total_line(made).startswith("cut off: ")


def test_watch_knows_the_folder_of_a_night(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from terminalbench.cli.live_run import watch_command

    made = feed(tmp_path)
    for event in made.events:
        append_jsonl(made.folder.events_jsonl, event)
    for target in (made.folder.folder, made.folder.state_json):
        ran = CliRunner().invoke(watch_command, [str(target)], standalone_mode=False)
        assert ran.exception is None, ran.output
        assert "03:05:40  the endpoint does not answer\n" in ran.output
        assert "cut off: 1 of 10 iterations" in ran.output
        assert ran.return_value == 3
    as_json = CliRunner().invoke(watch_command, [str(made.folder.folder), "--json"], standalone_mode=False)
    kinds = [msgspec.json.decode(line)["kind"] for line in as_json.output.splitlines()]
    assert kinds == [str(event.kind) for event in made.events]
