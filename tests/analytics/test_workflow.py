"""What the trace of a guarded workflow becomes: findings, a part of the report, a part of the page of its trial."""

import pytest

from support.results import STAMP, make_plan, make_trial
from support.workflows import Script, gives_up, helped
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.index.results import open_results
from terminalbench.index.scan import scan_all
from terminalbench.lab.analyze import analyze


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """One that was given up, one that an escalation helped, one without a workflow; analysed."""
    batch = allocate(tmp_path_factory.mktemp("workflow") / "results", "pro")
    make_plan(batch, ("arm", "free"), "ab")
    gives_up().write(make_trial(batch, "a__1", profile="arm", reward=0.0))
    helped().write(make_trial(batch, "b__1", profile="arm", second=1))
    make_trial(batch, "a__2", profile="free")
    Script(oracle=True).attempt("<b>x</b>", guard="g", said="<script>alert(1)</script>").write(
        make_trial(batch, "b__2", profile="free", second=1)
    )
    analyze(batch)
    return batch


def found(batch: Batch, trial: str) -> dict[str, str | None]:
    """The findings of the analyzer."""
    rows = open_results(batch.results_root).findings()
    return {row["name"]: row["value"] for row in rows if row["analyzer"] == "workflow" and row["trial"].endswith(trial)}


def test_findings_tell_the_ending_retries_and_escalations(batch: Batch) -> None:
    bad = found(batch, "a__1")
    assert (bad["ending"], bad["given_up_at"], bad["failed_guard"]) == ("exhausted", "patch: answer", "answer")
    assert (bad["retries"], bad["escalations"], bad["escalations_helped"]) == ("2", "1", "0")
    assert (bad["rejected_by"], bad["unusable_answers"]) == ('{"test_green": 2, "answer": 1, "patch": 1}', "1")
    assert (bad["stagnant_guards"], bad["tokens.patch"]) == ('{"test_green": 1}', "440")
    good = found(batch, "b__1")
    assert (good["ending"], good["given_up_at"], good["escalations_helped"]) == ("done", None, "1")
    assert found(batch, "a__2") == {}
    assert found(batch, "b__2")["oracle"] == "true"


def test_the_report_has_them_by_profile(batch: Batch) -> None:
    text = next(batch.analytics.rglob("comparison_report.md")).read_text()
    assert "| arm | 2 | 1 | 2 | 2 | 1 |" in text
    assert "| 1 | arm | patch: answer | a |" in text
    page = next(batch.analytics.rglob("report.html")).read_text()
    assert 'id="workflows"' in page


def test_the_page_of_a_trial_shows_its_steps_and_guards(batch: Batch) -> None:
    scan_all(batch.results_root)
    site = Site(batch.results_root)

    def page(profile: str, name: str) -> str:
        body = answer(site, f"batches/pro/{batch.number}/trials/{STAMP}__{profile}/{name}/", {}).body
        assert body is not None
        return body.decode()

    shown = page("arm", "a__1").split('id="workflow"')[1].split("</section>")[0]
    assert shown.count("<tr>") == 7
    assert "test_green rejected" in shown
    assert "given up at patch by answer (rmax)" in shown
    assert "patch escalated to analysis" in shown
    assert 'id="workflow"' not in page("free", "a__2")
    assert "<script>alert" not in page("free", "b__2")


def test_a_changed_trace_is_read_again(batch: Batch) -> None:
    trial = batch.runs / f"{STAMP}__arm" / "b__1"
    before = (trial / "workflow" / "trace.jsonl").read_bytes()
    try:
        gives_up().write(trial)
        analyze(batch)
        assert found(batch, "b__1")["ending"] == "exhausted"
    finally:
        (trial / "workflow" / "trace.jsonl").write_bytes(before)
