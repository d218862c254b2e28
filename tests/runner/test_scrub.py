"""What a run takes secrets out of when it is over: logs, and trials that nobody finished."""

from pathlib import Path

from terminalbench.experiments.batch import Batch
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.records.event import Event
from terminalbench.runner.deaths import scrub_leftovers
from terminalbench.secrets.values import Secrets

SECRET = "leftover-canary-7"


def test_logs_and_cut_off_trials_are_scrubbed_and_what_a_resume_reads_is_not(tmp_path: Path) -> None:
    batch = Batch(tmp_path / "s" / "0")
    config = batch.job_config("j")
    write_json(config, {"agents": [{"model_name": f"local/{SECRET}"}]})
    recorded = config.read_bytes()
    job, aside = batch.job_folder("j"), batch.superseded / "j"
    texts = [batch.job_log("j"), job / "job.log", job / "cut-off" / "agent" / "log.txt", aside / "old-try1" / "log.txt"]
    texts.append(job / "tried-twice" / "agent" / "log.txt")
    ended = [job / "ended" / "agent" / "log.txt", aside / "tried-twice-try1" / "log.txt"]
    for path in (*texts, *ended):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"it said {SECRET}")
    for trial, detail in (("ended", {}), ("tried-twice", {"retried": True})):
        event = Event("2026-01-01T00:00:00.000Z", "trial_ended", "j", 1, "p", trial, detail=detail)
        append_jsonl(batch.events_jsonl, event)
    scrub_leftovers(batch, Secrets.of([SECRET]))
    assert {path.read_text() for path in texts} == {"it said [redacted]"}
    assert config.read_bytes() == recorded
    assert {path.read_text() for path in ended} == {f"it said {SECRET}"}, "the plugin has been there: not read again"


def test_a_batch_that_has_not_begun_has_nothing_to_hide(tmp_path: Path) -> None:
    scrub_leftovers(Batch(tmp_path / "s" / "0"), Secrets.of([SECRET]))
