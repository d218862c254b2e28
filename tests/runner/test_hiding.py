"""What a run takes secrets out of when it is over: logs, and trials that nobody finished."""

from pathlib import Path

from terminalbench.experiments.batch import Batch
from terminalbench.files import append_jsonl, write_json
from terminalbench.llm.scrub import learn
from terminalbench.records import Event
from terminalbench.runner.hiding import scrub_leftovers

SECRET = "leftover-canary-7"


def test_logs_and_cut_off_trials_are_scrubbed_and_what_a_resume_reads_is_not(tmp_path: Path) -> None:
    learn([SECRET])
    batch = Batch(tmp_path / "s" / "0")
    config = batch.job_config("j")
    write_json(config, {"agents": [{"model_name": f"local/{SECRET}"}]})
    recorded = config.read_bytes()
    texts = [batch.job_log("j"), batch.job_folder("j") / "job.log", batch.superseded / "j" / "t-try1" / "log.txt"]
    cut_off = batch.job_folder("j") / "cut-off" / "agent" / "log.txt"
    ended = batch.job_folder("j") / "ended" / "agent" / "log.txt"
    for path in (*texts, cut_off, ended):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"it said {SECRET}")
    append_jsonl(batch.events_jsonl, Event("2026-01-01T00:00:00.000Z", "trial_ended", "j", 1, "p", "ended"))
    scrub_leftovers(batch)
    assert {path.read_text() for path in (*texts, cut_off)} == {"it said [redacted]"}
    assert config.read_bytes() == recorded
    assert ended.read_text() == f"it said {SECRET}", "Harbor's plugin has looked at it: it is not read again"


def test_a_batch_that_has_not_begun_has_nothing_to_hide(tmp_path: Path) -> None:
    learn([SECRET])
    scrub_leftovers(Batch(tmp_path / "s" / "0"))
