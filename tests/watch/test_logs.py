"""What `enter` shows of a trial."""

from pathlib import Path

from support.dashboard import add_trajectory, steps
from terminalbench.experiments.batch import Batch
from terminalbench.secrets.values import Secrets
from terminalbench.watch.logs import STORY, read_tail


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
    assert read_tail(batch, ("j", "a__1"), Secrets()).lines == ("its steps cannot be read: h and l show its logs",)
