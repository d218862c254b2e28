"""A batch that runs, as its pages show it."""

import json
import time

import pytest

from support.dashboard import Root, add_trajectory, steps, trial
from support.results import STAMP, make_trial
from terminalbench.dashboard import site
from terminalbench.dashboard.pages import verdicts
from terminalbench.index.pages import BatchSummary
from terminalbench.json_files import append_jsonl

BATCH = "batches/study/0/"


def start(root: Root, name: str, *, folder: bool = True) -> None:
    """A trial of q begins at its task; its folder is there unless the index has not seen it yet."""
    job = {"time": "2026-01-23T16:40:00Z", "job": f"{STAMP}__q", "pid": 1}
    about = job | {"profile": "q", "trial": name, "task": name[0], "dataset": "d"}
    for event in (
        job | {"kind": "job_started"},
        about | {"kind": "trial_started"},
        about | {"kind": "trial_phase", "phase": "agent"},
    ):
        append_jsonl(root.batch.events_jsonl, event)
    if folder:
        made = root.batch.runs / f"{STAMP}__q" / name
        (made / "agent").mkdir(parents=True)
        (made / "config.json").write_text("{}")
        root.scan()
    root.site.live = ("study/0",)


@pytest.mark.parametrize("folder", [True, False])
def test_a_running_trial_is_neither_cancelled_nor_not_run(root: Root, folder: bool) -> None:
    """q has one trial left at task b: it runs, whether or not the index knows its folder."""
    assert "mark running" not in root.text(BATCH)
    start(root, "b__4", folder=folder)
    page = root.text(BATCH)
    matrix = page.split('id="matrix"')[1].split("</section>")[0]
    assert f'<a class="mark running" href="./trials/{STAMP}__q/b__4/"' in matrix
    assert "q, attempt 2: running, agent" in matrix
    assert "cancelled" not in matrix.split('class="legend"')[0]
    assert 'class="mark running" aria-hidden' in matrix.split('class="legend"')[1]
    bar = page.split("1 of them running")[1].split("</svg>")[0]
    assert 'class="running"' in bar
    assert 'class="cancelled"' not in bar
    listed = page.split('id="live"')[1].split("Ended last")[0]
    assert f'<a href="./trials/{STAMP}__q/b__4/">b</a> q' in listed
    assert "interrupted" not in page.split('id="reasons"')[1].split("</section>")[0]


def test_a_trial_that_a_resume_runs_again_is_not_called_cancelled(root: Root) -> None:
    make_trial(root.batch, "b__5", profile="q", reward=None, error="CancelledError")
    root.scan()
    assert "q, attempt 2: cancelled" in root.text(BATCH)
    start(root, "b__4")
    page = root.text(BATCH)
    assert "q, attempt 2: running, agent" in page
    assert "0 of 8 trials ended, 1 running" in page.split('id="verdict"')[1].split("</summary>")[0]
    row = page.split("1 of them running")[1].split("</tr>")[0]
    assert 'class="running"' in row
    assert 'class="cancelled"' not in row
    assert '<td class="num">0<span class="sub">1 running</span></td>' in row
    assert "study/0 is still running" in page


def test_a_live_batch_folds_what_is_not_decided_into_one_line(root: Root) -> None:
    whole = root.text(BATCH)
    assert "<details" not in whole.split('id="verdict"')[1].split("</section>")[0]
    assert "it never started" in whole.split('id="reasons"')[1]
    start(root, "b__4", folder=False)
    page = root.text(BATCH)
    verdict = page.split('id="verdict"')[1].split("</section>")[0]
    assert "No verdict yet: 0 of 8 trials ended, 1 running" in verdict.split("</summary>")[0]
    assert "it never started" not in page.split('id="reasons"')[1].split("</section>")[0]
    head = page.split('id="head" data-live')[1].split("</p>")[0]
    assert "0 of 8 trials ended" in head
    assert "no model" in head


def test_a_batch_of_which_nothing_has_ended_has_no_cost_yet(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    start(root, "b__4", folder=False)
    monkeypatch.setattr(BatchSummary, "no_model", False)
    page = root.text(BATCH)
    assert (page.count("no cost known yet"), "$0" in page.split('id="live"')[-1].split("</section>")[0]) == (2, False)


def test_a_running_trial_is_running_wherever_it_is_listed(root: Root) -> None:
    start(root, "b__4")
    assert 'class="badge running"' in root.text(trial("b__4", "q"))
    assert 'class="badge running"' in root.text("trials/", q="b__4")
    assert 'class="badge running"' in root.text(f"side-by-side/study/0/{STAMP}__q/b__3/study/0/{STAMP}__q/b__4/")
    root.site.live = ()
    assert 'class="badge running"' not in root.text(trial("b__4", "q"))


def test_the_steps_of_claude_code_come_as_its_stream_grows_and_then_from_its_trajectory(root: Root) -> None:
    """Its trajectory is written at the end."""
    start(root, "b__4")
    path, feed = trial("b__4", "q"), f"study/0//{STAMP}__q/b__4"
    agent = root.batch.runs / f"{STAMP}__q" / "b__4" / "agent"
    seen, told = [root.site.state(feed)], [root.site.state("study/0")]
    for number in (1, 2):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Bash", "input": {"command": f"echo {number}"}}
        said = [{"type": "text", "text": "<script>no</script>"}, call]
        message = {"id": f"m{number}", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 1000}, "content": said}
        append_jsonl(agent / "claude-code.txt", {"type": "assistant", "message": message})
        page = root.text(path)
        used = ("1 step, 1,000 tokens, at least $0.003", "2 steps, 2,000 tokens, at least $0.006")[number - 1]
        assert f"<dt>so far</dt><dd>{used}</dd>" in page
        assert used in root.text(BATCH).split('id="live"')[1].split("Ended last")[0]
        told.append(root.site.state("study/0"))
        assert page.count('<article class="step agent') == number
        assert f"echo {number}" in page
        assert "<script>no" not in page
        seen.append(root.site.state(feed))
    add_trajectory(agent.parent, steps("ls", "cat", "exit"))
    assert root.text(path).count('<article class="step agent') == 3
    seen.append(root.site.state(feed))
    assert len(set(seen)) == 4, "each time the page is told"
    assert len(set(told)) == 3, "and the page of the batch"


def test_a_running_trial_is_not_superseded_and_its_contrasts_are_folded(root: Root) -> None:
    start(root, "b__4")
    for path in (trial("b__4", "q"), "trials/"):
        assert "superseded" not in root.text(path), path
    contrasts = root.text(BATCH).split('id="contrasts"')[1].split("</section>")[0]
    assert "so far, no verdict yet</summary>" in contrasts


def test_a_batch_of_many_trials_is_shown_before_its_comparison(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page comes at once and says what it waits for; when that is there, the page is told."""
    monkeypatch.setattr(verdicts, "MANY_TRIALS", 7)
    monkeypatch.setattr(site, "_LATER_SEC", 0.0)
    before = root.site.state("study/0")
    first = root.text(BATCH)
    assert "The comparison of 8 trials is being made" in first
    assert "Contrasts" not in first
    for _ in range(600):
        if root.site.state("study/0") != before:
            break
        time.sleep(0.1)
    later = root.text(BATCH)
    assert "is being made" not in later
    assert "Contrasts" in later
    fresh = Root(root.path, site.Site(root.path))
    assert json.loads(fresh.text(f"{BATCH}data.json"))["comparison"]["contrasts"], "a file is whole"
