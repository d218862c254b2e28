"""Lists that the server sorts, filters and pages."""

import json
import re

import msgspec
import pytest

from support.dashboard import Root
from support.nights import make_night
from support.results import STAMP, make_plan, make_trial
from support.trainings import make_training
from terminalbench.dashboard.findings import classify
from terminalbench.dashboard.pages.compare import TASKS_PER_PAGE
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.index.store import open_index
from terminalbench.json_files import write_json
from terminalbench.overnight.summary import project_night


def names(page: str) -> list[str]:
    """The rows of the list, by the text of their links."""
    return re.findall(r'<tr data-row>\s*<th scope="row"><a [^>]*>([^<]*)', page)


def test_trials_are_sorted_by_every_column_and_what_is_unknown_stands_last(root: Root) -> None:
    with open_index(root.path) as index:
        for name, number in (("a__1", 15), ("b__1", 19), ("a__2", 17), ("a__3", None)):
            index.execute("UPDATE trials SET agent_steps = ? WHERE trial = ? AND batch = 'study/0'", (number, name))
        index.commit()
    first = {"batch": "study/0"}
    assert names(root.text("trials/", sort="steps", **first))[:3] == ["a__1", "a__2", "b__1"]
    assert names(root.text("trials/", sort="-steps", **first))[:3] == ["b__1", "a__2", "a__1"]
    assert names(root.text("trials/", sort="trial", **first)) == [
        "a__1",
        "a__2",
        "a__3",
        "a__4",
        "b__1",
        "b__2",
        "b__3",
    ]
    page = root.text("trials/", sort="-trial", **first)
    assert names(page) == ["b__3", "b__2", "b__1", "a__4", "a__3", "a__2", "a__1"]
    assert 'aria-sort="descending"' in page
    for column in re.findall(r"[?&;]sort=-?(\w+)", page):
        assert len(names(root.text("trials/", sort=column, **first))) == 7, column
    assert len(names(root.text("trials/", sort="record; DROP TABLE trials", **first))) == 7


def test_the_failure_class_is_shown_and_sorted_by(root: Root) -> None:
    classify(root.site, "study/0")
    page = root.text("trials/", sort="-failure", batch="study/0")
    assert names(page)[-1] in ("a__3", "a__4", "b__1", "b__3"), "what passed has no class"
    assert "<td>no output change</td>" in page or "wrong" in page or "error" in page


def test_every_task_can_be_filtered_by_and_a_part_of_its_name_is_enough(root: Root) -> None:
    batch = allocate(root.path, "wide")
    make_plan(batch, ("p",), [f"task{n}" for n in range(230)])
    for n in range(230):
        make_trial(batch, f"task{n}__1")
    root.scan()
    page = root.text("trials/", task="task22")
    assert len(names(page)) == 1, "the name of a task is that task"
    assert len(names(root.text("trials/", task="ask22", batch="wide/0"))) == 11
    assert page.count('<option value="task') == 230


def test_home_and_why_call_a_variant_by_its_reason(root: Root) -> None:
    keys = ("p0123456789ab", "p0123456789ac")
    batch = allocate(root.path, "training")
    plan = make_plan(batch, keys, "a", 1)
    records = tuple(ProfileRecord(key, key, {}, f"it <looks> before {key[-1]}") for key in keys)
    jobs = tuple(msgspec.structs.replace(job, profile_id=job.profile) for job in plan.jobs)
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=records, jobs=jobs))
    for key, reward in zip(keys, (1.0, 0.0), strict=True):
        make_trial(batch, f"a__{key}", profile=key, reward=reward)
    root.scan()
    home = root.text("")
    assert "it &lt;looks&gt; before b 100.0 %, it &lt;looks&gt; before c 0.0 %" in home
    assert f'it &lt;looks&gt; before b</i> <span class="id">{keys[0]}</span> <b>100.0 %' in home
    why = root.text(f"why/training/0/{keys[0]}/{keys[1]}/")
    assert f'it &lt;looks&gt; before b <span class="id">{keys[0]}</span></b> solves 1 task that it &lt;looks&gt;' in why
    assert "<h3>p0" not in why


def test_home_has_the_best_profile_first_and_no_rate_over_all_profiles(root: Root) -> None:
    page = root.text("")
    rates = [re.findall(r"<i title=\"(\w)\">", part.split("</td>")[0]) for part in page.split('class="names"')[1:]]
    assert rates[1] == ["q", "p"]
    assert "Trials passed" not in page
    listed = [names(root.text("", sort=word)) for word in ("created", "-created", "measured", "-cost", "batch")]
    assert all(sorted(found) == ["study", "study"] for found in listed)
    assert "sort=-created" in page
    assert root.text("experiments/", sort="-trials").count("data-row") == 1


@pytest.mark.parametrize(
    ("query", "shown"),
    [({}, ["a", "b"]), ({"order": "worst"}, ["b", "a"]), ({"show": "all"}, ["a", "c", "b"])],
)
def test_a_comparison_lists_where_profiles_differ_each_with_its_side_by_side(
    root: Root, query: dict[str, str], shown: list[str]
) -> None:
    batch = allocate(root.path, "three")
    make_plan(batch, ("p", "q"), "abc")
    for profile, rewards in (("p", (0.0, 1.0, 1.0)), ("q", (1.0, 0.0, 1.0))):
        for task, reward in zip("abc", rewards, strict=True):
            make_trial(batch, f"{task}__{profile}", profile=profile, reward=reward)
    root.scan()
    page = root.text("compare/three/0/q/three/0/p/", **query)
    assert re.findall(r'<tr data-row><th scope="row">(\w)</th>', page) == shown
    for task in shown:
        assert f"side-by-side/three/0/{STAMP}__q/{task}__q/three/0/{STAMP}__p/{task}__p/" in page
    assert ("They differ at 2 of 3 tasks." in page) == (query.get("show") != "all")


def test_a_profile_without_a_model_has_no_price_on_any_page(root: Root) -> None:
    """Both profiles of the study are such: its batch, its trials and their pages say so alike."""
    pair = f"side-by-side/study/0/{STAMP}__p/a__1/study/0/{STAMP}__q/a__3/"
    for path in ("", "batches/study/0/", "trials/", f"batches/study/0/trials/{STAMP}__p/a__1/", pair):
        page = root.text(path)
        assert "no model" in page, path
        assert "$0.25" not in page, path


def test_the_profiles_of_a_batch_are_sorted_and_the_matrix_keeps_its_columns_and_filters(root: Root) -> None:
    path = "batches/study/0/"

    def profiles(page: str) -> list[str]:
        return re.findall(r'<th scope="row">(\w)(?: <|<)', page.split('id="profiles"')[1].split("</section>")[0])

    assert profiles(root.text(path)) == ["p", "q"]
    page = root.text(path, sort="-rate", show="differ")
    assert profiles(page) == ["q", "p"]
    assert 'aria-sort="descending"' in page
    assert '?sort=rate&amp;show=differ#profiles"' in page
    assert re.findall(r'<th scope="col">(\w)</th>', page.split('class="matrix"')[1].split("</thead>")[0]) == ["p", "q"]
    for column in re.findall(r"sort=-?(\w+)", page.split('id="profiles"')[1]):
        assert sorted(profiles(root.text(path, sort=column))) == ["p", "q"], column


@pytest.mark.parametrize(
    ("order", "tasks"),
    [
        ("", ["b", "a", "c", "d"]),
        ("task", ["a", "b", "c", "d"]),
        ("worst", ["c", "b", "a", "d"]),
        ("apart", ["b", "a", "c", "d"]),
    ],
)
def test_the_tasks_of_a_batch_are_ordered_and_what_did_not_run_stands_last(
    root: Root, order: str, tasks: list[str]
) -> None:
    batch = allocate(root.path, "ordered")
    make_plan(batch, ("p", "q"), "bacd")
    for profile, rewards in (("p", (0.0, 1.0, 0.0)), ("q", (1.0, 1.0, 0.0))):
        for task, reward in zip("bac", rewards, strict=True):
            make_trial(batch, f"{task}__{profile}", profile=profile, reward=reward)
    root.scan()
    page = root.text("batches/ordered/0/", order=order)
    assert re.findall(r'<tr data-row>\s*<th scope="row">(\w)</th>', page) == tasks


def test_the_batches_of_an_experiment_the_nights_and_the_trainings_are_sorted(root: Root) -> None:
    numbers = [
        re.findall(r"<b> (\d)</b>", root.text("experiments/study/", sort=word)) for word in ("created", "-created")
    ]
    assert numbers == [["0", "1"], ["1", "0"]]
    for name, marks in (("first", {"a": "+", "b": "x"}), ("second", {"a": "+", "b": "+"})):
        project_night(make_night(root.path / name, [{"p": marks}]).folder)
    for slug in ("prompts", "tools"):
        make_training(root.site.project, slug)
    for path, column, rows in (
        ("nights/", "night", ["first", "second"]),
        ("nights/", "rate", ["first", "second"]),
        ("trainings/", "training", ["prompts", "tools"]),
    ):
        assert names(root.text(path, sort=column)) == rows
        page = root.text(path, sort=f"-{column}")
        assert names(page) == rows[::-1]
        assert 'aria-sort="descending"' in page
        for other in re.findall(r"[?]sort=-?(\w+)", page):
            assert sorted(names(root.text(path, sort=other))) == rows, other


@pytest.mark.parametrize(("prompt", "marks"), [("be brief", 0), ("be thorough", 1)])
def test_a_profile_whose_memory_learned_has_not_changed_one_with_another_prompt_has(
    root: Root, prompt: str, marks: int
) -> None:
    for said, snapshot in (("be brief", "1" * 16), (prompt, "2" * 16)):
        batch = allocate(root.path, "learns")
        plan = make_plan(batch, ("p",), "a")
        content = {"agent": "oracle", "prompt": said, "lessons": {"limit": 3, "snapshot": snapshot}}
        record = ProfileRecord("p", f"id-{said}-{snapshot}", content)
        write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=(record,)))
        make_trial(batch, "a__1")
    root.scan()
    assert root.text("experiments/learns/").count("its content changed") == marks


def test_a_comparison_of_many_tasks_is_paged_and_its_pages_keep_what_was_asked_for(root: Root) -> None:
    batch = allocate(root.path, "many")
    tasks = [f"task{n:03}" for n in range(TASKS_PER_PAGE + 5)]
    make_plan(batch, ("p", "q"), tasks)
    for place, task in enumerate(tasks):
        make_trial(batch, f"{task}__p", profile="p", reward=0.0)
        make_trial(batch, f"{task}__q", profile="q", reward=float(place > 2))
    root.scan()
    path = "compare/many/0/q/many/0/p/"

    def listed(**query: str) -> list[str]:
        return re.findall(r'<tr data-row><th scope="row">(\w+)</th>', root.text(path, **query))

    assert len(listed()) == TASKS_PER_PAGE
    assert len(listed(page="2")) == 2, "where they differ"
    assert sorted(listed(show="all") + listed(show="all", page="2")) == tasks
    assert listed(show="all", order="worst")[:3] == tasks[:3]
    assert '?page=2&amp;show=all&amp;order=worst"' in root.text(path, show="all", order="worst")
    assert "There is no page 7." in root.text(path, page="7")
    assert root.text(f"{path}tasks.csv").count("\n") == len(tasks) + 1, "a file is whole"


def test_home_says_what_runs_what_ended_and_what_needs_its_reader(root: Root) -> None:
    night = make_night(root.path / "20260123", [{"p": {"a": "+"}}])
    project_night(night.folder)
    night.state([], status="running")  # no process holds its lock: it was cut off
    make_training(root.site.project)
    now = json.loads(root.text("data.json"))["overview"]
    assert now["running"] == []
    ended = {(line["kind"], line["path"]) for line in now["ended"]}
    assert ended == {
        ("batch", "batches/study/0/"), ("batch", "batches/study/1/"), ("night", "nights/20260123/"),
        ("training", "trainings/prompts/"),
    }  # fmt: skip
    needs = {line["path"]: line for line in now["needs"]}
    assert "cut off" in needs["nights/20260123/"]["said"]
    assert needs["nights/20260123/"]["command"].startswith("tbench overnight --resume ")
    assert needs["trainings/prompts/"]["command"] == "tbench trainer run PLAN.toml --resume"
    assert "without a verdict" in needs["batches/study/1/"]["said"]
    page = root.text("")
    assert [part for part in ("Running", "Ended last", "Needs you") if f"<h2>{part}</h2>" in page] != []
    for path in (*needs, *(path for _, path in ended)):
        assert f'href="./{path}"' in page
    assert "<h2>Needs you</h2>" not in root.text("", q="study"), "a search shows what was searched"
