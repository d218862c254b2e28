"""What the pages show, and that all of it can be downloaded."""

import csv
import io
import json
import os
import time
from datetime import UTC, datetime
from html import escape

import msgspec
import pytest

from support.dashboard import Root, add_trajectory, steps, trial
from support.pace import seconds
from support.results import STAMP, make_plan, make_trial
from terminalbench.analytics.labels import add_label, make_label
from terminalbench.dashboard.findings import classify
from terminalbench.dashboard.frame import NotFound, Redirect
from terminalbench.dashboard.serve import Refresher
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.index.scan import scan_all
from terminalbench.json_files import append_jsonl, write_json
from terminalbench.records.event import Event
from terminalbench.records.trial import Finding


def rows(root: Root, path: str, **query: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(root.text(path, **query))))


def test_home_lists_batches_newest_first(root: Root) -> None:
    html = root.text("")
    assert html.index("batches/study/1/") < html.index("batches/study/0/")
    listed = rows(root, "batches.csv")
    assert [(r["batch"], r["passed"], r["failed"], r["not_measured"]) for r in listed] == [
        ("study/1", "7", "0", "1"),
        ("study/0", "4", "2", "2"),
    ]


def test_live_batches_come_first(root: Root) -> None:
    root.site.live = ("study/0",)
    html = root.text("")
    assert html.index("batches/study/0/") < html.index("batches/study/1/")
    assert "live 0/8" in html
    assert [r["batch"] for r in rows(root, "batches.csv", state="live")] == ["study/0"]


def test_a_success_without_a_model_has_no_price(root: Root) -> None:
    batch = allocate(root.site.root, "free")
    records = (ProfileRecord("p", "id-p", {"agent": "oracle"}), ProfileRecord("q", "id-q", {"agent": "claude-code"}))
    plan = make_plan(batch, ("p", "q"), "a", 1)
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=records))
    make_trial(batch, "a__1")
    make_trial(batch, "a__2", profile="q", cost=0.5)
    scan_all(root.site.root)
    table = root.text("batches/free/0/").split('aria-label="Profiles"')[1].split("</table>")[0]
    line, other = table.split("<tr>")[2:4]
    assert ("no model" in line, "$" in line) == (True, False)
    assert other.count("$0.50") == 2, "its cost, and that of a success"


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"q": "STUDY"}, 2),
        ({"q": "q"}, 2),
        ({"q": "100%"}, 0),
        ({"q": "_"}, 0),
        ({"q": "planned"}, 0),
        ({"state": "complete"}, 0),
        ({"state": "incomplete"}, 2),
        ({"slug": "x"}, 0),
    ],
)
def test_batches_are_searched(root: Root, query: dict[str, str], found: int) -> None:
    assert len(rows(root, "batches.csv", **query)) == found


def test_long_lists_come_in_pages(root: Root) -> None:
    for number in range(60):
        batch = allocate(root.path, f"many{number:02}")
        make_plan(batch, ("p",), "a", 1, provenance={"created_at": f"2026-02-01T00:{number:02}:00Z"})
    root.scan()
    first, second = root.text(""), root.text("", page="2")
    assert first.count("<tr data-row>") == 50
    assert second.count("<tr data-row>") == 12
    assert "page 1 of 2" in first
    assert "?page=2" in first
    assert len(rows(root, "batches.csv")) == 62
    beyond = root.text("", page="99", q="many")
    assert "There is no page 99" in beyond
    assert 'href="./?page=2&amp;q=many">Page 2 is the last</a>' in beyond
    assert "No batch" not in beyond
    assert "Page 1 is the last" in root.text("trials/", page="3")
    assert "Page 2 is the last" in root.text("experiments/", page="3")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({}, 14), ({"outcome": "failed"}, 2), ({"outcome": "errored"}, 1), ({"profile": "q", "task": "a"}, 4), ({"batch": "study/0"}, 7),
        ({"q": "b__"}, 6), ({"error": "unknown"}, 0), ({"outcome": "unfinished"}, 0), ({"q": "' OR 1=1 --"}, 0),
    ],
)  # fmt: skip
def test_trials_are_filtered(root: Root, query: dict[str, str], found: int) -> None:
    assert len(rows(root, "trials/trials.csv", **query)) == found
    html = root.text("trials/", **query)
    assert html.count("<tr data-row>") == found


def test_the_batch_page_says_it_all(root: Root) -> None:
    html = root.text("batches/study/0/")
    assert "q vs p" in html  # a sentence
    assert html.count('class="mark passed"') >= 4
    assert "attempt 2: errored" in html
    assert "not run" in html
    assert "side-by-side/study/0/" in html
    assert "Think twice." in html  # the profile diff
    assert "Not measured, and why" in html
    profiles = {r["profile"]: r for r in rows(root, "batches/study/0/profiles.csv")}
    assert (profiles["p"]["passed"], profiles["p"]["not_measured"], profiles["q"]["coverage"]) == ("1", "1", "0.75")
    assert len(rows(root, "batches/study/0/cells.csv")) == 8
    assert rows(root, "batches/study/0/contrasts.csv")[0]["new"] == "q"
    data = json.loads(root.text("batches/study/0/data.json"))
    assert data["comparison"]["contrasts"][0]["verdict"] == "inconclusive"
    assert (len(data["cells"]), data["live"]) == (8, None)
    (difference,) = data["profile_differences"]
    assert (difference["profile"], difference["baseline"]) == ("q", "p")
    assert {change["aspect"] for change in difference["changes"]} >= {"agent", "prompt"}


def test_failures_are_classified_in_the_background(root: Root) -> None:
    assert "0 of 3 trials that did not pass are classified" in root.text("batches/study/0/")
    deadline = time.monotonic() + seconds(60)
    while "study/0" not in root.site.analyses and time.monotonic() < deadline:
        time.sleep(0.05)
    html = root.text("batches/study/0/")
    assert "How trials failed" in html
    assert "are classified" not in html
    listed = rows(root, "batches/study/0/failures.csv")
    assert sum(int(r["trials"]) for r in listed) == 3
    told = json.loads(root.text("batches/study/0/data.json"))["failures"]
    assert (told["failed"], told["classified"]) == (3, 3)
    assert [
        (one["failure_class"], profile, str(count))
        for one in told["classes"]
        for profile, count in one["profiles"].items()
    ] == [(r["failure_class"], r["profile"], r["trials"]) for r in listed]


def test_a_persons_word_is_the_failure_class(root: Root) -> None:
    classify(root.site, "study/0")
    before = {r["failure_class"]: r for r in rows(root, "batches/study/0/failures.csv")}
    assert "loop" not in before
    failed = next(r for r in rows(root, "trials/trials.csv") if r["outcome"] == "failed" and r["batch"] == "study/0")
    label = make_label(f"{failed['job']}/{failed['trial']}", "failure_class", "loop", "ada", "look", datetime.now(UTC))
    add_label(root.site.batch("study/0").analytics, label)
    after = {r["failure_class"]: r for r in rows(root, "batches/study/0/failures.csv")}
    assert (after["loop"]["trials"], after["loop"]["example_reason"]) == ("1", "ada says: look")
    assert sum(int(r["trials"]) for r in after.values()) == sum(int(r["trials"]) for r in before.values())
    assert "(1 by a person)" in root.text("batches/study/0/")


def test_the_matrix_is_filtered_and_paged(root: Root) -> None:
    batch = allocate(root.path, "wide")
    make_plan(batch, ("p", "q"), [f"t{n:03}" for n in range(70)], 1)
    make_trial(batch, "t001__1", profile="p", reward=1.0)
    make_trial(batch, "t001__2", profile="q", reward=0.0)
    root.scan()
    assert root.text("batches/wide/0/").count("<tr data-row>") == 60
    assert root.text("batches/wide/0/", page="2").count("<tr data-row>") == 10
    assert root.text("batches/wide/0/", show="differ").count("<tr data-row>") == 1
    assert root.text("batches/wide/0/", task="T06").count("<tr data-row>") == 10
    assert "Page 2 is the last" in root.text("batches/wide/0/", page="3")
    assert "No task fits" in root.text("batches/wide/0/", task="none")


def test_a_batch_is_shown_as_it_changes(root: Root) -> None:
    assert "4/8" not in root.text("batches/study/0/")
    make_trial(root.batch, "b__4", profile="q", reward=0.0)
    root.scan()
    assert "4/4" in root.text("batches/study/0/")


def test_a_trial_step_by_step(root: Root) -> None:
    html = root.text(trial("a__1"))
    for expected in (
        "Do it.",
        "echo wrong &gt; answer",
        "what next?",
        'id="step-4"',
        "$0.02 so far",
        "exit code 0",
        "1 failed",
        "result.json",
    ):
        assert expected in html, expected
    listed = rows(root, f"{trial('a__1')}steps.csv")
    assert [r["prompt_tokens_so_far"] for r in listed] == ["", "100", "200", "300", "400"]
    assert json.loads(root.text(f"{trial('a__1')}data.json"))["trial"]["name"] == "a__1"


def test_what_the_agent_had_is_told_as_show_tells_it(root: Root) -> None:
    html = root.text(trial("a__1"))
    assert '<h2>What the agent had</h2>\n<ul class="plain"><li>CLI 1 (from its trajectory)</li></ul>' in html
    assert "What the agent had" not in root.text(trial("b__2")), "it does not tell"


def test_a_command_works_where_the_dashboard_was_started(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.path.parent)
    for page in ("batches/study/0/", "compare/study/0/q/study/0/p/"):
        assert "<code>tbench resume results/study/0 --retry-errors</code>" in root.text(page)
    monkeypatch.chdir("/")
    assert f"<code>tbench resume {root.path.relative_to('/')}/study/0 --retry-errors</code>" in root.text(
        "batches/study/0/"
    )


def test_long_trajectories_come_in_pages(root: Root) -> None:
    folder = root.batch.runs / f"{STAMP}__p" / "b__1"
    add_trajectory(folder, steps(*(f"echo {n}" for n in range(120))))
    os.utime(folder / "result.json", (1, 1))  # read again
    root.scan()
    first = root.text(trial("b__1"))
    assert 'id="step-50"' in first
    assert 'id="step-51"' not in first
    third = root.text(f"{trial('b__1')}steps/1/3/")
    assert 'id="step-121"' in third
    assert "steps/1/2/" in first
    with pytest.raises(NotFound):
        root.text(f"{trial('b__1')}steps/7/1/")


def test_findings_lead_to_their_steps(root: Root) -> None:
    found = Finding(f"{STAMP}__p/a__1", "loops", "1", "repeats itself", True, "twice the same", [2, 4, 99])
    append_jsonl(root.batch.analytics / "findings.jsonl", found)
    html = root.text(trial("a__1"))
    assert "repeats itself" in html
    assert '#step-4">4</a>' in html
    assert "step-99" not in html
    assert "tested_before_finish" in html  # what the built-in analyzers say is found on the spot


def test_two_trials_side_by_side(root: Root) -> None:
    path = f"side-by-side/study/0/{STAMP}__p/a__1/study/0/{STAMP}__q/a__3/"
    html = root.text(path)
    assert html.count('class="together"') == 4  # the instruction, ls, cat notes, exit
    assert html.rindex("cat notes") < html.index("Here they part") < html.rindex("python solve.py")
    assert "The decision that sets them apart" in html
    assert "p beside q" in html.split("<h1>")[1]
    assert "Before it, 3 lines are the same on both sides." in html
    data = json.loads(root.text(f"{path}data.json"))
    assert (data["divergence"]["a"]["step"], data["divergence"]["b"]["step"]) == (4, 4)
    assert data["first_difference"] == {"left": 3, "right": 3, "same": False}
    assert [r["same"] for r in rows(root, f"{path}steps.csv")] == ["True"] * 3 + ["False", "False", "True"]


def test_two_trials_that_did_the_same_are_not_said_to_part(root: Root) -> None:
    for name, number in (("a__1", "7"), ("a__2", "8")):
        add_trajectory(root.batch.runs / f"{STAMP}__p" / name, steps("ls", f"echo {number} > answer{number}"))
    html = root.text(f"side-by-side/study/0/{STAMP}__p/a__1/study/0/{STAMP}__p/a__2/")
    assert "They never part." in html
    assert "sets them apart" not in html
    assert "p 1 beside p 2" in html


def test_a_trial_without_a_trajectory_has_a_page(root: Root) -> None:
    assert "There is none." in root.text(trial("b__2"))
    side = root.text(f"side-by-side/study/0/{STAMP}__p/b__2/study/0/{STAMP}__p/a__1/")
    assert "left no trajectory" in side


def test_profiles_of_two_batches_are_compared(root: Root) -> None:
    html = root.text("compare/study/1/p/study/0/p/")
    assert "p (study/1) vs p (study/0)" in html
    assert "the same treatment" in html
    with pytest.raises(Redirect) as moved:
        root.get("compare/", new="study/1|p", old="study/0|p")
    assert (moved.value.path, moved.value.query) == ("compare/study/1/p/study/0/p/", {})
    with pytest.raises(Redirect) as moved:
        root.get("compare/data.json", new="study/1|p", old="study/0|p")
    assert moved.value.path == "compare/study/1/p/study/0/p/data.json"
    with pytest.raises(NotFound, match="there is no batch nonsense"):
        root.get("compare/", new="nonsense|p", old="study/0|p")
    every = json.loads(root.text("compare/study/1/~/study/0/~/data.json"))
    assert [c["new"] for c in every["comparison"]["contrasts"]] == ["p (study/1)", "q (study/1)"]
    tasks = rows(root, "compare/study/0/q/study/0/p/tasks.csv")
    assert [(t["task"], t["difference"]) for t in tasks] == [("a", "1.0"), ("b", "0.0")]


def test_a_comparison_by_families_says_so_and_that_it_is_simulated(root: Root) -> None:
    here = "compare/study/0/q/study/0/p/"
    assert '<td class="num">2</td>' in root.text(here)
    assert "simulated" not in root.text(here)
    plan = json.loads(root.batch.plan_json.read_bytes())
    for task in [task for made in plan["jobs"] for task in made["tasks"]]:
        task["ref"]["family"] = "f"
    write_json(root.batch.plan_json, plan)
    result = root.batch.runs / f"{STAMP}__q" / "a__3" / "result.json"
    document = json.loads(result.read_bytes())
    document["agent_info"]["name"] = "simulated"
    result.write_text(json.dumps(document))
    root.scan()
    html = root.text(here)
    assert '<td class="num">2<span class="sub">in 1 family</span></td>' in html
    assert "simulated: not a measurement" in html.split("</h1>")[0]
    [line] = rows(root, f"{here}contrasts.csv")
    assert (line["tasks"], line["unit"], line["units"]) == ("2", "family", "1")


def test_the_trend_of_an_experiment(root: Root) -> None:
    listed = rows(root, "experiments/study/trend.csv")
    assert [(r["batch"], r["profile"], r["passed"], r["measured"]) for r in listed][:2] == [
        ("study/0", "p", "1", "3"),
        ("study/0", "q", "3", "3"),
    ]
    assert "study" in root.text("experiments/")
    assert "<polyline" in root.text("experiments/study/")


@pytest.mark.parametrize(
    "path",
    [
        "batches/study/9/",
        "experiments/none/",
        trial("none"),
        "compare/study/0/none/study/0/p/",
        "compare/study/0/p/none/0/p/",
        "nothing.csv",
        "x/data.json",
    ],
)
def test_what_is_not_there_is_said(root: Root, path: str) -> None:
    with pytest.raises(NotFound):
        root.get(path)


def test_a_folder_of_harbor_jobs(root: Root) -> None:
    jobs = root.path / "jobs"
    make_trial(allocate(root.path, "x"), "a__9")
    (root.path / "x" / "0" / "runs" / f"{STAMP}__p").rename(jobs)
    for name in ("config.json", "result.json"):
        (jobs / name).write_text("{}")
    root.scan()
    assert "Harbor jobs" in root.text("")
    assert "no plan" in root.text("batches/~/0/")
    html = root.text("batches/~/0/trials/jobs/a__9/")
    assert "result.json" in html


def test_the_index_may_be_deleted_meanwhile(root: Root) -> None:
    root.text("")
    for file in root.path.glob("index.db*"):
        file.unlink()
    assert "No batches yet" in root.text("")
    root.scan()
    assert "batches/study/1/" in root.text("")


def test_changes_on_disk_reach_the_pages(root: Root) -> None:
    refresher = Refresher(root.site)
    refresher.look()
    make_trial(root.batch, "b__4", profile="q", reward=1.0)
    event = Event("2026-01-23T16:40:00Z", "trial_ended", f"{STAMP}__q", 1, profile="q", trial="b__4", outcome="passed")
    append_jsonl(root.batch.events_jsonl, event)
    refresher.look()
    assert root.site.summary("study/0").passed == 5
    new = allocate(root.path, "fresh")
    make_plan(new)
    refresher.look()
    assert root.site.summary("fresh/0").trials == 0


def test_the_form_to_compare_begins_with_what_makes_sense(root: Root) -> None:
    page = root.text("compare/")
    assert [line.partition('"')[2].partition('"')[0] for line in page.split("<option ") if "selected" in line] == [
        "study/1|q",
        "study/1|p",
    ]


def test_names_that_say_nothing_new_are_left_out(root: Root) -> None:
    assert '<span class="sub">study</span>' not in root.text("") + root.text("experiments/")
    assert '<p class="lead">study</p>' not in root.text("batches/study/0/") + root.text("experiments/study/")


def test_a_torn_plan_still_has_a_page(root: Root) -> None:
    root.batch.plan_json.write_text("{")
    root.scan()
    page = root.text("batches/study/0/")
    assert "plan.json is missing or broken" in page
    assert "of another origin" not in page
    assert "Do it." in root.text(trial("a__1"))
    assert msgspec.json.decode(root.text("data.json"))["batches"]


def test_why_two_profiles_differ_leads_to_both_trials(root: Root) -> None:
    here = "why/study/0/q/p/"
    (task,) = rows(root, f"{here}tasks.csv")
    assert (task["task"], task["solved_by"], task["passed"], task["not_by"]) == ("a", "q", "2", "p")
    page = root.text(here)
    assert "<b>q</b> solves 1 task that p never solves" in page
    assert "<b>p</b> solves 0 tasks that q never solves" in page
    for name in ("a__1", "a__3"):
        assert f"/{name}/" in page
    assert "side-by-side/" in page
    assert escape(task["failing_call"]) in page
    assert "why/study/0/q/p/" in root.text("batches/study/0/")
    assert "why/study/0/q/p/" in root.text("compare/study/0/q/study/0/p/")
    for nowhere in ("why/study/0/q/q/", "why/study/0/q/none/", "why/study/9/q/p/"):
        with pytest.raises(NotFound):
            root.get(nowhere)


def test_the_charts_of_swebench_pro_are_a_page_between_its_batch_and_its_trials(root: Root) -> None:
    batch = allocate(root.site.root, "swe-bench-pro")
    make_plan(batch, ("singleshot", "s1_tdd"), "ab", 1)
    for number, (arm, reward) in enumerate((("singleshot", 0.0), ("s1_tdd", 1.0))):
        make_trial(batch, f"a__{number}", profile=arm, reward=reward, second=number, cost=0.1)
    root.scan()
    here = "batches/swe-bench-pro/0/"
    assert 'href="./charts/"' in root.text(here)
    page = root.text(f"{here}charts/")
    assert 'href="../">swe-bench-pro 0</a>' in page
    for name in ("pass_rate", "cost_pass_rate", "wall_time", "outcomes", "paired_effects"):
        assert f'<figure id="{name}">' in page
    for number, arm in enumerate(("singleshot", "s1_tdd")):
        assert f'<a href="../trials/{STAMP}__{arm}/a__{number}/">' in page, "a cell leads to its trial"
    said = msgspec.json.decode(root.text(f"{here}charts/data.json"))
    assert [(one["profile"], one["passed"], one["planned"]) for one in said["comparison"]["profiles"]] == [
        ("singleshot", 0, 2),
        ("s1_tdd", 1, 2),
    ]
    assert "charts/" not in root.text("batches/study/0/")
    with pytest.raises(NotFound, match="no instances"):
        root.get("batches/study/0/charts/")


def test_why_two_profiles_differ_is_empty_before_any_trial(root: Root) -> None:
    make_plan(allocate(root.site.root, "waiting"), ("p", "q"), "ab", 1)
    root.scan()
    assert "No task measured on both profiles" in root.text("why/waiting/0/q/p/")
