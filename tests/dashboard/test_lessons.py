"""The pages of lessons: what they show, of which memory, escaped, and when they change."""

import csv
import io
import json
from pathlib import Path

import pytest

from dashboard.lessons_shown import make_lessons, show
from support.dashboard import Root, trial
from support.nights import make_night
from terminalbench.archivist.memory import add
from terminalbench.archivist.store import memory_of, open_store
from terminalbench.dashboard.answers import export_site
from terminalbench.dashboard.frame import LESSONS, NotFound
from terminalbench.dashboard.pages.lessons import PAGE_SIZE
from terminalbench.json_files import write_json
from terminalbench.records.lesson import Evidence, Lesson
from terminalbench.records.trial import Exposure, LessonsDelivery


@pytest.fixture
def made(root: Root) -> dict[str, str]:
    return make_lessons(root.path)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_without_a_memory_the_page_says_how_to_begin_and_makes_nothing(root: Root) -> None:
    page = root.text("lessons/")
    assert "tbench memory add" in page
    assert "tbench memory reflect" in page
    assert not memory_of(root.path).exists()


def test_the_list_has_text_state_effect_and_exposure(root: Root, made: dict[str, str]) -> None:
    show(root, "a__1", Exposure(made["measured"], 0.7, shown=True, characters=40))
    show(root, "b__1", Exposure(made["measured"], 0.7, shown=False, characters=40))
    page = root.text("lessons/")
    assert f'href="./{made["measured"]}/"' in page
    assert "+5.1 pt" in page
    assert "+1.2 to +9.0 pt" in page
    assert "1 of 2" in page
    assert "4 lessons in all" in page


def test_it_is_filtered_searched_and_ordered_by_the_server(root: Root, made: dict[str, str]) -> None:
    def names(**query: str) -> list[str]:
        return [row["lesson"] for row in rows(root.text("lessons/lessons.csv", **query))]

    assert names() == [made["retired"], made["merged"], made["hostile"], made["measured"]]
    assert names(state="retired") == [made["retired"], made["merged"]]
    assert names(state="nonsense", q="NOTES first") == [made["merged"]]
    assert names(q="state") == []
    assert names(q="%") == []
    assert names(order="effect")[0] == made["measured"]
    page = root.text("lessons/", q="nothing like it")
    assert "No lesson matches" in page
    assert made["measured"] not in page


def test_a_long_list_has_pages(root: Root) -> None:
    with open_store(memory_of(root.path), write=True) as store:
        for number in range(PAGE_SIZE + 3):
            add(store, Lesson(id="", do=f"Look at file{number}.txt first."), by="ann")
    assert root.text("lessons/").count("<tr data-row>") == PAGE_SIZE
    assert root.text("lessons/", page="2").count("<tr data-row>") == 3
    assert "There is no page 9" in root.text("lessons/", page="9")
    assert len(rows(root.text("lessons/lessons.csv"))) == PAGE_SIZE + 3


def test_one_lesson_has_its_evidence_exposure_effect_and_log(root: Root, made: dict[str, str]) -> None:
    name = made["measured"]
    show(root, "a__1", Exposure(name, 0.7, shown=True, characters=40))
    show(root, "b__1", Exposure(name, 0.7, shown=False, characters=40))
    show(root, "a__2", Exposure(name, 0.7, shown=True, characters=40, own=True), mode="recall")
    page = root.text(f"lessons/{name}/")
    assert "Read the notes before you answer." in page
    assert f'href="../../{trial("a__1")}#step-3"' in page
    assert "not in this results folder" in page
    assert "<q>now cat notes</q>" in page
    assert f'It took up <a href="../{made["merged"]}/">' in page
    assert f'It is part of <a href="../{name}/">' in root.text(f"lessons/{made['merged']}/")
    assert "It is retired: not true" in root.text(f"lessons/{made['retired']}/")
    document = json.loads(root.text(f"lessons/{name}/data.json"))
    assert [entry["op"] for entry in document["log"]] == ["merge", "edit", "add"]
    masked, recall = document["exposure"]
    assert (masked["mode"], masked["eligible"], masked["shown"], masked["own"]) == ("masked", 2, 1, 0)
    assert (masked["shown_passed"], masked["shown_measured"], masked["withheld_passed"]) == (0, 1, 1)
    assert (recall["mode"], recall["eligible"], recall["shown"], recall["own"]) == ("recall", 1, 1, 1)
    assert [row["trial"] for row in rows(root.text(f"lessons/{name}/trials.csv"))] == ["b__1", "a__2", "a__1"]
    with pytest.raises(NotFound, match="there is no lesson l-none"):
        root.get("lessons/l-none/")


def test_the_trials_of_nights_in_the_results_folder_count_too(root: Root, made: dict[str, str]) -> None:
    name = made["measured"]
    show(root, "a__1", Exposure(name, 0.7, shown=True, characters=40))
    night = make_night(root.path / "dark", [{"p": {"a": "+", "b": "x"}}])
    night.folder.events_jsonl.touch()
    (batch,) = night.folder.batches()
    for number, trial_folder in enumerate(sorted(file.parent for file in batch.runs.glob("*/*/result.json"))):
        told = [Exposure(name, 0.7, shown=number == 0, characters=40)]
        write_json(trial_folder / "lessons.json", LessonsDelivery("masked", "s1", told))
    assert "2 of 3" in root.text("lessons/")
    page = root.text(f"lessons/{name}/")
    assert 'href="../../nights/dark/"' in page
    assert 'href="../../batches/night/' not in page
    (counts,) = json.loads(root.text(f"lessons/{name}/data.json"))["exposure"]
    assert (counts["eligible"], counts["shown"], counts["shown_passed"]) == (3, 2, 1)
    found = rows(root.text(f"lessons/{name}/trials.csv"))
    assert sorted((row["night"], row["trial"].split("__")[0]) for row in found) == [
        ("", "a"),
        ("dark", "a"),
        ("dark", "b"),
    ]


def test_the_evidence_of_a_night_is_found_in_its_night(root: Root) -> None:
    night = make_night(root.path / "dark", [{"p": {"a": "x"}}])
    (batch,) = night.folder.batches()
    (folder,) = (file.parent for file in batch.runs.glob("*/*/result.json"))
    names = (f"night/{batch.folder.name}/{folder.parent.name}/{folder.name}", "night/1/gone__p/a__1")
    for place, name in enumerate(names):
        with open_store(memory_of(root.path), write=True) as store:
            told = Lesson(id="", do=f"Look at file{place}.txt first.", evidence=[Evidence(name, [2])])
            lesson = add(store, told, by="ann").lesson.id
        page = root.text(f"lessons/{lesson}/")
        assert ("not in this results folder" in page) is (place == 1)
        assert ('(in night <a href="../../nights/dark/">dark</a>)' in page) is (place == 0)


def test_foreign_words_are_escaped_wherever_they_stand(root: Root, made: dict[str, str]) -> None:
    for page in (
        root.text("lessons/"),
        root.text(f"lessons/{made['hostile']}/"),
        root.text("lessons/", q="<img src=x>"),
    ):
        assert "<script>document" not in page
        assert "<img" not in page
        assert "<b>" not in page.replace("<b>Do:</b>", "").replace("<b>Avoid:</b>", "")
        assert "\x1b" not in page
    found = [row["do"] for row in rows(root.text("lessons/lessons.csv", state="quarantined"))]
    assert [text for text in found if text.startswith("<script>")], "its control characters are why"


def test_it_changes_when_something_was_written_and_when_trials_end(root: Root, made: dict[str, str]) -> None:
    before = root.site.state(LESSONS)
    assert root.site.state(LESSONS) == before
    with open_store(memory_of(root.path), write=True) as store:
        add(store, Lesson(id="", do="Look twice."), by="ann")
    after = root.site.state(LESSONS)
    assert after != before
    show(root, "a__1", Exposure(made["measured"], 0.7, shown=True, characters=40))
    assert root.site.state(LESSONS) != after


def test_an_export_has_every_lesson(root: Root, made: dict[str, str], tmp_path: Path) -> None:
    show(root, "a__1", Exposure(made["measured"], 0.7, shown=True, characters=40))
    export_site(root.site, tmp_path / "site")
    page = (tmp_path / "site" / "lessons" / "index.html").read_text()
    assert 'role="search"' not in page
    for name in made.values():
        assert f'href="./{name}/index.html"' in page
        assert (tmp_path / "site" / "lessons" / name / "index.html").is_file()
