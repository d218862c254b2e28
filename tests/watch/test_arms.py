"""The table of arms: golden at two widths, its counts, and how it ends."""

import io

import pytest
from rich.console import Console

from conftest import REPO
from support.live import START, Teller, plan
from terminalbench.experiments.batch import Batch
from terminalbench.live.state import LiveState, replay
from terminalbench.watch.follow import ArmsWatch, arm_lines

ARMS = ("singleshot", "s1_tdd_review_backtrack")
TASKS = ("instance_owner__repo-0123456789abcdef-v1", "b", "c", "d")


def at(step: str, attempt: int, cycle: int = 1, retries: int = 0) -> dict[str, object]:
    return {"at": {"step": step, "attempt": attempt, "cycle": cycle, "retries": retries}}


def busy() -> LiveState:
    """Two arms on four instances: ended in every way, and two that run."""
    one, two = ARMS
    events = [
        Teller("b__1", "b", one).started(0),
        Teller("b__1", "b", one).event(5, "trial_phase", phase="agent", detail=at("patch", 1)),
        Teller("b__1", "b", one).event(15, "trial_phase", phase="agent", detail=at("patch", 2, retries=1)),
        Teller("b__1", "b", one).event(16, "trial_phase", phase="agent", detail=at("patch", 2, retries=1)),
        Teller("b__1", "b", one).ended(60, "passed", 0.12),
        Teller("c__1", "c", one).started(60),
        Teller("c__1", "c", one).ended(100, "failed", 0.12),
        Teller("d__1", "d", one).started(100),
        Teller("d__1", "d", one).ended(130, "errored", None, None, error_class="provider", error="down"),
        Teller("b__2", "b", two).started(0),
        Teller("b__2", "b", two).ended(200, "passed", 0.12),
        Teller("a__1", TASKS[0], one).started(130),
        Teller("a__1", TASKS[0], one).event(140, "trial_phase", phase="agent", detail=at("patch", 1)),
        Teller("a__2", TASKS[0], two).started(200),
        Teller("a__2", TASKS[0], two).event(210, "trial_phase", phase="agent", detail=at("gen_patch", 3, 2, 4)),
    ]
    return replay(plan(ARMS, TASKS, agents=dict.fromkeys(ARMS, "guarded")), events)


@pytest.mark.parametrize("width", [80, 120])
def test_golden_table(golden, width: int) -> None:
    lines = [line.plain.rstrip() for line in arm_lines(busy(), START + 240, width)]
    assert max(map(len, lines)) <= width
    golden(REPO / "tests" / "golden" / "watch" / f"arms-{width}.txt", "\n".join(lines) + "\n")


def test_progress_is_that_of_each_arm_and_retries_are_those_of_steps() -> None:
    state = busy()
    assert [(arm.progress, arm.step_retries) for arm in state.profiles.values()] == [("3/4", 1), ("1/4", 4)]
    again = replay(state.plan, [])
    again.trials = state.trials
    again.replan(state.plan)
    assert [arm.step_retries for arm in again.profiles.values()] == [1, 4], "a plan that is read again changes nothing"


def test_a_terminal_is_left_as_it_is_and_a_broken_table_ends_no_run(tmp_path, capsys, monkeypatch) -> None:
    batch = Batch(tmp_path / "s" / "0")
    batch.folder.mkdir(parents=True)
    shown = io.StringIO()
    watch = ArmsWatch(Console(file=shown, force_terminal=True, width=80))
    watch.start(batch)
    assert watch.in_place
    monkeypatch.setattr("terminalbench.watch.follow.arm_lines", lambda *_: 1 / 0)
    watch.end()
    assert not watch.in_place
    assert "watching ended: ZeroDivisionError" in capsys.readouterr().err
    assert "ARM" in shown.getvalue()


def test_the_badge_of_an_oracle_is_shown_whole_however_long_its_name_is() -> None:
    arm = "s1_tdd_verified_by_the_hidden_tests_with_review_and_backtracking"
    state = replay(plan((arm, "singleshot"), ("a",)), [])
    state.profiles[arm].oracle = True
    line = arm_lines(state, START, 80)[1].plain
    assert line.startswith("s1_tdd_")
    assert "… (oracle) " in line
    assert len(line.rstrip()) <= 80


def test_a_running_trial_of_an_oracle_has_its_badge() -> None:
    state = replay(plan(("seer",), ("a",)), [Teller("a__1", "a", "seer").started(0)])
    state.profiles["seer"].oracle = True
    assert "seer (oracle)" in arm_lines(state, START + 1, 80)[-1].plain
