"""A whole analysis: the tables, the cache, selections, and files that no analysis should end on."""

import csv
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from results_kit import rewarded

from support.judging import point, recorded
from support.results import STAMP, make_plan, make_trial
from support.trajectories import bash, edit, put, trajectory
from terminalbench.analytics.judge.request import JudgeAsk
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.run import AnalysisRequest, AnalysisResult, run_analysis
from terminalbench.analytics.selection import Filter
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.json_files import read_json, read_jsonl, write_json
from terminalbench.lab.select import select
from terminalbench.records.trial import Finding

GOOD = trajectory(bash("grep foo a.py", "x"), edit("a.py"), bash("pytest", "== 3 passed in 1s =="))
BAD = trajectory(bash("ls"), bash("ls -a"), edit("a.py"), bash("./a.out"))


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    """Two profiles on two tasks, twice: p passes everything, q fails a and one trial of it never ran."""
    found = allocate(tmp_path / "results", "s")
    make_plan(found, ("p", "q"), "ab", 2)
    for task in "ab":
        for number in (1, 2):
            put(make_trial(found, f"{task}__{number}", second=number), GOOD)
            if (task, number) != ("b", 2):
                reward = 0.0 if task == "a" else 1.0
                put(make_trial(found, f"{task}__{number}", profile="q", reward=reward, second=number), BAD)
    return found


def analyse(batch: Batch, **fields: Any) -> AnalysisResult:
    return run_analysis(AnalysisRequest((batch,), **fields))


def details(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics_detail.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_the_tables_of_a_batch(batch: Batch) -> None:
    done = analyse(batch)
    assert done.output == batch.analytics
    assert (done.planned, done.analysed, done.read, done.reused) == (8, 7, 7, 0)
    assert done.missing == ("s/0: 1 trial not run",)
    rows = details(batch.analytics)
    assert len(rows) == 8, "a row a planned trial, also for one that did not run"
    gone = next(row for row in rows if row["outcome"] == "not_run")
    assert (gone["profile"], gone["task"], gone["trial"], gone["tool_calls"]) == ("q", "b", "", "")
    first = rows[0]
    assert (first["success"], first["tool_calls"], first["searched_before_edit"]) == ("true", "3", "true")
    assert json.loads(first["tool_mix"]) == {"edit": 1, "search": 1, "test": 1}
    aggregate = read_json(batch.analytics / "aggregate_metrics.json")
    q = aggregate["profiles"]["q"]
    assert (q["planned"], q["measured"], q["passed"], q["rate"], q["rate_all"]) == (4, 3, 1, 0.5, 0.25)
    compared = next(p for p in read_json(batch.analytics / "comparison.json", Comparison).profiles if p.profile == "q")
    assert (q["rate"], q["rate_all"]) == (compared.rate, compared.rate_all), "the mean over tasks, everywhere"
    assert q["failure_classes"] == {"untested": 2}
    assert q["measures"]["tool_calls"] == {
        "trials": 4, "known": 3, "mean": 4.0, "median": 4.0, "min": 4.0, "max": 4.0, "sum": 12.0,
    }  # fmt: skip
    findings = read_jsonl(batch.analytics / "findings.jsonl", Finding)
    assert not findings.bad
    assert {f.trial for f in findings.records} == {row["trial"] for row in rows if row["trial"]}
    lines = (batch.analytics / "metrics_summary.csv").read_text().splitlines()
    assert lines[0] == "profile,measure,trials,known,mean,median,min,max,sum"
    assert "q,success,4,3,0.333333,0,0,1,1" in lines


_opened: list[str] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    ours = _opened and threading.current_thread() is threading.main_thread()  # a dashboard of another test may read on
    if event == "open" and ours and isinstance(arguments[0], str | bytes | Path):
        _opened.append(str(arguments[0]))


sys.addaudithook(_hook)


def opened(work: Callable[[], Any]) -> list[str]:
    """The trial files that were opened meanwhile."""
    _opened.append("start")
    try:
        work()
        return [path for path in _opened if Path(path).name in ("trajectory.json", "result.json", "ctrf.json")]
    finally:
        _opened.clear()


def test_the_second_run_reads_only_what_changed(batch: Batch) -> None:
    assert len(opened(lambda: analyse(batch))) >= 14, "each result and each trajectory"
    before = (batch.analytics / "metrics_detail.csv").read_text()
    assert opened(lambda: analyse(batch)) == []
    assert (batch.analytics / "metrics_detail.csv").read_text() == before
    changed = put(batch.runs / f"{STAMP}__p" / "a__1", BAD)
    assert set(opened(lambda: analyse(batch))) == {str(changed)}
    assert details(batch.analytics)[0]["tool_calls"] == "4"


def test_a_new_version_of_an_analyzer_runs_again(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    analyse(batch)
    monkeypatch.setattr("terminalbench.analytics.findings.behaviour.TripwireAnalyzer.version", "99")
    assert analyse(batch).read == 7
    assert analyse(batch).read == 0


def test_findings_of_a_trial_that_is_gone_are_forgotten(batch: Batch) -> None:
    from terminalbench.index.store import open_index

    analyse(batch)
    folder = batch.runs / f"{STAMP}__p" / "a__1"
    (folder / "result.json").unlink()
    analyse(batch)
    with open_index(batch.folder.parent.parent) as connection:
        kept = {row[0] for row in connection.execute("SELECT trial FROM findings WHERE job LIKE '%p'")}
    assert kept == {"a__2", "b__1", "b__2"}


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (Filter(tasks=("a",)), 4),
        (Filter(tasks=("d/a", "b"), profiles=("q",)), 4),
        (Filter(only="succeeded"), 5),
        (Filter(only="failed"), 2),
        (Filter(limit=3), 3),
        (Filter(limit=300), 7),
    ],
)
def test_selections(batch: Batch, wanted: Filter, rows: int) -> None:
    whole = analyse(batch)
    before = (whole.output / "metrics_detail.csv").read_bytes()
    part = analyse(batch, wanted=wanted)
    assert part.output == batch.analytics / "selection"
    assert len(details(part.output)) == rows
    assert (whole.output / "metrics_detail.csv").read_bytes() == before, "a selection replaces nothing of the whole"


def test_a_sample_is_the_same_for_the_same_seed(batch: Batch) -> None:
    def drawn(seed: int) -> list[str]:
        analyse(batch, wanted=Filter(limit=4, seed=seed))
        return [f"{r['profile']}/{r['task']}/{r['attempt']}" for r in details(batch.analytics / "selection")]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in range(6)}) > 1


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Filter(profiles=("pp",)), 'no profile is called "pp" (did you mean "p"?)'),
        (Filter(tasks=("zzz",)), 'no task is called "zzz"'),
        (Filter(tasks=("b",), profiles=("q",), only="failed"), "no trial failed"),
    ],
)
def test_nothing_to_analyse_is_said(batch: Batch, wanted: Filter, message: str) -> None:
    with pytest.raises(UserError) as caught:
        analyse(batch, wanted=wanted)
    assert message in str(caught.value)


def test_a_batch_in_which_nothing_ran(tmp_path: Path) -> None:
    empty = allocate(tmp_path / "results", "s")
    make_plan(empty)
    with pytest.raises(UserError, match="nothing has run yet"):
        analyse(empty)


def test_several_batches_are_one_table(batch: Batch) -> None:
    other = allocate(batch.folder.parent.parent, "s")
    make_plan(other, ("p",), "a")
    put(make_trial(other, "a__1"), GOOD)
    done = run_analysis(AnalysisRequest((batch, other)))
    assert done.output == batch.folder.parent / "analytics"
    assert [row["batch"] for row in details(done.output)] == ["s/0"] * 8 + ["s/1"]


ANALYZER = """
from terminalbench.records.trial import Finding

class Claims:
    name, version, targets = "claims", "1", ("canvas",)

    def analyze(self, trial, trajectory):
        path = trial.artifacts("canvas") / "state.txt"
        if trial.record is not None and trial.record.task == "b":
            raise ValueError("no b please")
        return [trial.finding((self.name, self.version), "count", len(path.read_text()) if path.is_file() else None)]
"""


def test_an_analyzer_of_the_user_reads_artifacts(batch: Batch, tmp_path: Path) -> None:
    (tmp_path / "claims_analyzer.py").write_text(ANALYZER)
    state = batch.artifacts / "canvas" / "a__1" / "state.txt"
    state.parent.mkdir(parents=True)
    state.write_text("four")
    request: dict[str, Any] = {"analyzers": ("claims_analyzer:Claims",), "import_root": tmp_path}
    done = analyse(batch, **request)
    assert details(done.output)[0]["claims.count"] == "4"
    assert any('analyzer "claims" failed (ValueError: no b please) in 3 trials' in line for line in done.missing)
    state.write_text("more")
    assert analyse(batch, **request).read == 2, "both profiles have a trial of that name"
    sys.path.remove(str(tmp_path))


@pytest.mark.parametrize("spec", ["nosuch", "json:loads", "no.such.module:X"])
def test_what_is_no_analyzer_is_refused(batch: Batch, spec: str) -> None:
    with pytest.raises(UserError):
        analyse(batch, analyzers=(spec,))


def test_any_folder_of_harbor_jobs(tmp_path: Path, tbench: Any) -> None:
    jobs = tmp_path / "jobs"
    for number, reward in enumerate((1.0, 0.0)):
        job = jobs / f"job-{number}"
        document = rewarded(reward, trial_name=f"answer__{number}")
        (job / document["trial_name"]).mkdir(parents=True)
        (job / document["trial_name"] / "result.json").write_text(json.dumps(document))
        (job / document["trial_name"] / "config.json").write_text("{}")
        put(job / document["trial_name"], GOOD)
        (job / "config.json").write_text("{}")
        (job / "result.json").write_text("{}")
    ran = tbench("analyze", jobs)
    assert ran.code == 0, ran.err
    rows = details(jobs / "analytics")
    assert [(row["profile"], row["attempt"], row["outcome"]) for row in rows] == [
        ("scripted", "1", "passed"),
        ("scripted", "2", "failed"),
    ]
    page = (jobs / "analytics" / "report.html").read_text()
    assert 'href="../job-1/answer__1' in page, "links lead to the trials of the foreign folder"
    assert tbench("analyze", jobs / "job-0").code == 0
    assert [row["trial"] for row in details(jobs / "analytics" / "job-0")] == ["job-0/answer__0"]
    assert tbench("analyze", jobs / "analytics").code == 2
    again = tbench("analyze", jobs)
    assert (again.code, "2 trials: 0 read, 2 unchanged" in again.out) == (0, True), "its own tables are no job"


def test_each_folder_of_harbor_jobs_has_its_own_analytics(tmp_path: Path, tbench: Any) -> None:
    for name in ("one", "two", "runs"):
        trial = tmp_path / name / "job" / f"answer__{name}"
        trial.mkdir(parents=True)
        (trial / "result.json").write_text(json.dumps(rewarded(0.0, trial_name=trial.name)))
        for folder in (trial, trial.parent):
            (folder / "config.json").write_text("{}")
        (trial.parent / "result.json").write_text("{}")
        put(trial, GOOD)
        assert tbench("analyze", tmp_path / name).code == 0
    places = {
        "one": tmp_path / "one" / "analytics",
        "two": tmp_path / "two" / "analytics",
        "runs": tmp_path / "analytics",
    }
    assert {name: details(place)[0]["trial"] for name, place in places.items()} == {
        name: f"job/answer__{name}" for name in places
    }
    for name, place in places.items():
        by = ("--author", "ada", "--reason", "seen", "--results", tmp_path / name)
        assert tbench("label", f"answer__{name}", "failure_class", "loop", *by).code == 0
        lines = read_jsonl(place / "findings.jsonl", Finding).records
        assert [line.value for line in lines if line.analyzer == "label:ada"] == ["loop"]
        listed = tbench("label", "--list", "--results", tmp_path / name).out
        assert f"answer__{name}  failure_class = loop" in listed
        assert tbench("analyze", tmp_path / name).code == 0
        assert "label:ada" in (place / "findings.jsonl").read_text(), "an analysis keeps it"
        assert details(place)[0]["failure_class"] == "loop", "and counts it"


def test_the_runs_folder_of_a_batch_is_the_batch(batch: Batch) -> None:
    assert select(batch.runs).batches == (batch,)
    assert select(batch.runs / f"{STAMP}__p").batches == (batch,)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"steps": 3}', b"[" * 100_000, b'{"steps": [1, null, {}]}']
)
def test_a_broken_trajectory_is_reported(batch: Batch, content: bytes) -> None:
    put(batch.runs / f"{STAMP}__p" / "a__1", content)
    done = analyse(batch)
    assert len(details(done.output)) == 8
    said = [*done.missing, *done.notes]
    assert any("trajectory" in line and "in 1 trial" in line for line in said), said


def test_a_trial_that_belongs_to_no_cell_is_mentioned(batch: Batch) -> None:
    make_trial(batch, "zzz__1")
    assert any("1 trial superseded" in line for line in analyse(batch).notes)


def test_the_comparison_of_a_batch(batch: Batch) -> None:
    done = analyse(batch)
    assert done.comparison is not None
    assert done.comparison == read_json(batch.analytics / "comparison.json", Comparison)
    tests = read_json(batch.analytics / "statistical_tests.json")["tests"]
    assert [(t["new"], t["old"], t["metric"]) for t in tests] == [
        ("q", "p", m) for m in ("pass", "reward", "cost", "tokens", "time")
    ]
    assert (tests[0]["estimate"]["losses"], tests[0]["estimate"]["ties"]) == (1, 1)
    assert tests[0]["verdict"] == "inconclusive"
    other = analyse(batch, compare=("p", "q")).comparison
    assert other is not None
    assert [(c.new, c.old) for c in other.contrasts] == [("p", "q")]


def test_a_sample_is_not_compared(batch: Batch) -> None:
    assert analyse(batch, wanted=Filter(tasks=("a",))).comparison is not None
    sample = analyse(batch, wanted=Filter(tasks=("a",), limit=2))
    assert sample.comparison is None
    assert "trials selected by outcome or at random are not compared" in sample.notes
    assert not (sample.output / "comparison.json").exists(), "that of other trials is taken away"


def test_an_unknown_profile_is_found_before_anything_is_read(batch: Batch) -> None:
    with pytest.raises(UserError, match='no profile is called "r"'):
        analyse(batch, compare=("p", "r"))
    assert not batch.analytics.exists()


def test_batches_that_differ_in_a_profile_are_kept_apart(batch: Batch) -> None:
    other = allocate(batch.folder.parent.parent, "s")
    plan = make_plan(other, ("p",), "a")
    write_json(
        other.plan_json, msgspec.structs.replace(plan, jobs=(msgspec.structs.replace(plan.jobs[0], profile_id="new"),))
    )
    put(make_trial(other, "a__1"), GOOD)
    assert list(run_analysis(AnalysisRequest((batch, other))).profiles) == ["p@0", "q", "p@1"]


def test_the_judge_adds_its_findings_and_they_stay(batch: Batch, tmp_path: Path) -> None:
    quote = (4, "== 3 passed in 1s ==")
    answers = {"strategy": {name: point(value, quote) for name, value in STRATEGY_VALUES.items()}}
    ask = JudgeAsk(recorded(tmp_path / "answers.jsonl", answers), rubrics=("strategy",))

    def by_judge(folder: Path) -> dict[str, Any]:
        lines = read_jsonl(folder / "findings.jsonl", Finding).records
        assert any(line.analyzer == "behaviour" for line in lines)
        return {f.trial: f.value for f in lines if f.analyzer == "judge:strategy" and f.name == "strategy"}

    done = analyse(batch, wanted=Filter(profiles=("p",)), judge=ask)
    assert done.judged is not None
    assert (done.judged.judged, done.judged.not_judged) == (4, [])
    assert list(by_judge(done.output).values()) == ["trial_and_error"] * 4
    assert analyse(batch, wanted=Filter(profiles=("p",))).judged is None
    assert len(by_judge(done.output)) == 4, "an analysis without a model keeps what was judged"
    only = analyse(batch, wanted=Filter(profiles=("p",)), judge=ask, judge_only=True)
    assert only.judged is not None
    assert (only.read, only.judged.cache_hits, len(by_judge(done.output))) == (0, 4, 4)


def test_a_judge_that_cannot_be_asked_leaves_the_tables(batch: Batch, tmp_path: Path) -> None:
    done = analyse(batch, judge=JudgeAsk(f"replay:{tmp_path / 'nothing.jsonl'}"))
    assert done.judge_error is not None
    assert len(details(done.output)) == 8


STRATEGY_VALUES = {"strategy": "trial_and_error", "strategy_quality": 0.5, "adapted": False, "verified_own_work": True}
