"""The pages of trainings: champion, challengers, lineage, and every declared comparison with its batches."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from support.dashboard import Root
from support.results import make_plan
from support.trainings import CHECK, HURRY, PLAN, REASONS, START, make_training
from terminalbench.dashboard.answers import export_site
from terminalbench.dashboard.frame import TRAININGS, NotFound
from terminalbench.experiments.batch import allocate


def test_without_a_training_the_page_says_how_to_begin_and_makes_nothing(root: Root) -> None:
    assert "tbench trainer run PLAN.toml" in root.text("trainings/")
    assert not (root.site.project / ".terminalbench").exists()
    with pytest.raises(NotFound):
        root.text("trainings/none/")


def test_a_training_shows_all_that_was_declared(root: Root) -> None:
    before = root.site.state(TRAININGS)
    make_training(root.site.project)
    assert root.site.state(TRAININGS) != before
    listed = root.text("trainings/")
    assert 'href="./prompts/"' in listed
    assert "night 4 of 6" in listed
    page = root.text("trainings/prompts/")
    for said in (
        f"promoted, +12.0 pt over “where the training starts” ({START}) on canary nights",  # champion
        "not decided yet",  # evidence so far
        "1 of 2",
        "not shown to be better in 2 looks",  # rejected
        "copy the answer: holds text of a solution",  # refused
        "goes on: look at the result",
        "plan first",
    ):
        assert said in page
    assert '<a href="../../batches/study/0/">study/0</a>' in page
    assert "gone/9" in page
    assert ">gone/9</a>" not in page
    lineage = page.split("<h2>Lineage</h2>")[1].split("</section>")[0]
    called = [
        f'<b>{why}</b> <span class="id">{name}</span>'
        for why, name in zip(REASONS, (START, CHECK, HURRY, PLAN), strict=True)
    ]
    assert lineage.index(called[0]) < lineage.index(called[1]) < lineage.index(called[3])
    assert "<summary>prompt changed</summary>" in lineage
    assert "look at the result" in lineage.split("<summary>prompt changed</summary>")[1]
    gains = page.split("Gain over the champion by night</title>")[1].split("</svg>")[0]
    assert "night 2: look at the result: +12.0 pt (+2.0 to +22.0), better." in gains
    assert "night 4: plan first: +5.0 pt, inconclusive." in gains
    assert "<script>document" not in page
    rows = list(csv.DictReader(io.StringIO(root.text("trainings/prompts/comparisons.csv"))))
    assert [row["part"] for row in rows] == ["explore", "refused", "canary", "confirm", "watch", "confirm", "watch"]
    assert [row["action"] for row in rows][2:4] == ["promote", "drop"]
    states = {
        one["profile"]: one["state"] for one in json.loads(root.text("trainings/prompts/data.json"))["challengers"]
    }
    assert states == {CHECK: "promoted", HURRY: "dropped", PLAN: "confirm"}


def test_an_export_has_the_trainings(root: Root, tmp_path: Path) -> None:
    make_training(root.site.project)
    export_site(root.site, tmp_path / "site")
    page = (tmp_path / "site/trainings/prompts/index.html").read_text()
    assert 'href="../../batches/study/0/index.html"' in page
    assert (tmp_path / "site/trainings/prompts/comparisons.csv").is_file()


def test_a_batch_of_a_training_leads_to_it(root: Root) -> None:
    batch = allocate(root.path, "prompts")
    make_plan(batch, ("p",), "a", labels={"training": "prompts", "night": "1"})
    root.scan()
    assert "of training prompts" not in re.sub("<[^>]+>", "", root.text("batches/prompts/0/")), "there is none yet"
    make_training(root.site.project)
    assert 'of <a href="../../../trainings/prompts/">training prompts</a>' in root.text("batches/prompts/0/")
