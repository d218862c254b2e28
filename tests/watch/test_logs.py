"""What `enter` shows of a trial."""

import os
from pathlib import Path

from support.dashboard import add_trajectory, steps
from support.live import Teller, job, plan
from terminalbench.experiments.batch import Batch
from terminalbench.live.feed import Feed
from terminalbench.live.state import replay
from terminalbench.secrets.values import Secrets
from terminalbench.watch.logs import STORY, read_tail
from terminalbench.watch.view import BatchPage


def test_a_trial_is_read_as_steps_first_and_its_logs_after(tmp_path: Path) -> None:
    batch = Batch(tmp_path / "s" / "0")
    folder = batch.job_folder("j") / "a__1"
    folder.mkdir(parents=True)
    (folder / "trial.log").write_text("started\n")
    assert read_tail(batch, ("j", "a__1"), Secrets()).name == "trial.log"
    add_trajectory(folder, steps("ls", "echo hidden-value-1234"))
    shown = read_tail(batch, ("j", "a__1"), Secrets.of(["hidden-value-1234"]))
    assert shown.names == (STORY, "agent/trajectory.json", "trial.log")
    text = "\n".join(shown.lines)
    assert "Do it." in text
    assert "> bash ls" in text
    assert "hidden-value-1234" not in text
    add_trajectory(folder, steps("ls", "cat notes", "exit"))
    assert "> bash exit" in "\n".join(read_tail(batch, ("j", "a__1"), Secrets()).lines), "what is new is read"
    add_trajectory(folder, b"{")
    assert read_tail(batch, ("j", "a__1"), Secrets()).lines == ("its steps cannot be read; h and l show its logs",)


def test_what_runs_has_its_steps_and_what_failed_its_check_on_the_page(tmp_path: Path) -> None:
    """Read from the logs of both trials; a log that grew is read again, a verdict once."""
    batch = Batch(tmp_path / "s" / "0")
    running, failed = Teller("a__1", "a"), Teller("b__1", "b")
    events = [running.started(0), running.phase(1, "agent"), *failed.whole(0, 5, "failed")]
    page = BatchPage(Feed(batch, replay(plan(), events)))
    agent, verifier = (batch.job_folder(job("p")) / name for name in ("a__1/agent", "b__1/verifier"))
    agent.mkdir(parents=True)
    verifier.mkdir(parents=True)
    (verifier / "test-stdout.txt").write_text(
        "FAILED tests/test_b.py::test_rows - AssertionError: 3 rows are missing\n"
    )
    for steps_so_far in (1, 2):
        with (agent / "stdout.txt").open("a") as log:
            log.write('{"role": "assistant", "content": "on", "usage": {"prompt_tokens": 900}}\n')
        os.utime(agent / "stdout.txt", (steps_so_far, steps_so_far))
        page._signs_at = 0.0
        shown = "\n".join(line.plain for line in page.lines(140, 30))
        assert f"{steps_so_far} step{'s' if steps_so_far > 1 else ''}  {900 * steps_so_far:,} tokens" in shown
        assert "tests/test_b.py::test_rows: AssertionError: 3 rows are missing" in shown
    told = read_tail(batch, (job("p"), "a__1"), Secrets())
    assert told.names[0] == STORY
    assert "#2 agent  (900 in)" in "\n".join(told.lines)
