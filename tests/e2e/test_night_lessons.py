"""A night that learns, end to end: what iteration 1 teaches stands in the prompts of iteration 2, and is counted."""

import json
from pathlib import Path
from typing import Any

from support.tasks import write_task
from terminalbench.archivist.effects import count_trials
from terminalbench.archivist.inventory import each_lesson, history
from terminalbench.archivist.store import open_store
from terminalbench.files import read_json
from terminalbench.index.exposures import exposed_trials
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import NightConfig
from terminalbench.overnight.reflections import read_reflection
from terminalbench.records import Outcome
from terminalbench.runner.executors.forked import OWN_PROCESSES

LESSON = "look whether each file that the task asks for is in its place"
AGENT = f"""
[profiles.p]
agent = "simulated"
options = {{ solve_probability = {{ a = 0.0, b = 0.0, c = 1.0 }}, skill_text = {{ "{LESSON}" = -1.0 }} }}
"""
INSTRUCTION = "Write the answer to the file /app/answer.txt.\n"


def told(trial: Path) -> str:
    """What an agent was told, by its trajectory."""
    return json.loads((trial / "agent" / "trajectory.json").read_text())["steps"][0]["message"]


def test_a_lesson_of_iteration_1_stands_in_the_prompts_of_iteration_2_and_is_counted(lab: Any) -> None:
    """The failures of a and b teach a lesson that keeps the agent from solving c, whenever it is shown."""
    lab.env[OWN_PROCESSES] = "1"
    write_task(lab.root / "tasks" / "c")
    for task in "abc":
        (lab.root / "tasks" / task / "instruction.md").write_text(INSTRUCTION)
    suite = lab.experiment(AGENT, tasks=("a", "b", "c"), run="parallel = 2\nattempts = 3")
    night = NightFolder(lab.root / "night")
    process = lab.start(
        "overnight", "--suite", suite, "--output", night.folder, "--iterations", "2", "--lessons", "--seed", "3"
    )
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, out + err

    config = read_json(night.config_json, NightConfig)
    assert [model.profile for model in config.models] == ["p", "p-lessons"]
    first = read_reflection(night, 1)
    assert first is not None
    assert first.stopped is None
    (taught,) = first.active
    with open_store(lab.root / ".terminalbench", write=True) as store:
        (lesson,) = list(each_lesson(store))
        assert (lesson.id, lesson.simulated) == (taught, True)
        entry = history(store, taught)[-1]
        assert entry.lesson is not None
        assert sorted(task.id for task in entry.lesson.source_tasks) == ["a", "b"]
        assert (entry.op, entry.by, entry.trigger) == ("add", "rules", "batch")

        # Only c may see it, only in iteration 2, and only the profile with lessons.
        found = exposed_trials(night.results_root)
        assert {(one.profile, one.task, one.batch) for one in found} == {("p-lessons", "c", "night/2")}
        assert [[one.lesson for one in trial.exposures] for trial in found] == [[taught]] * 3
        for trial in found:
            shown = trial.exposures[0].shown
            folder = night.results_root / trial.batch / "runs" / trial.job / trial.trial
            assert (lesson.text in told(folder)) is shown
            assert trial.outcome is (Outcome.FAILED if shown else Outcome.PASSED)
        trials = list(night.results_root.glob("night/*/runs/*/*/agent/trajectory.json"))
        assert len(trials) == 36
        withheld = sum(LESSON not in told(file.parents[1]) for file in trials)
        assert withheld == 36 - sum(trial.exposures[0].shown for trial in found)

        # Each is counted once: the night has done it.
        assert lesson.utility is not None
        assert (lesson.utility.n, lesson.utility.simulated) == (3, True)
        assert count_trials(store, found).trials == 0
    report = night.report_md.read_text()
    assert "## Lessons (masked)" in report
    assert "Transfer gain of p-lessons against p: " in report
    assert "(simulated)" in report
    ran = lab.tbench("memory", "stats", "--results", night.folder)
    assert "p-lessons: simulated: no real agent was measured" in ran.stdout
    assert any(line.split()[:3] == ["transfer", "p-lessons", "p"] for line in ran.stdout.splitlines())
    assert max(map(len, ran.stdout.splitlines())) <= 80
