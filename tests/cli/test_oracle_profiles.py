"""A profile whose workflow sees the hidden verdict: badged on every surface, in no comparison."""

import json
from pathlib import Path

import msgspec
import pytest

from support.experiments import BASE, good, problems
from support.results import make_plan, make_trial
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import ProfileRecord
from terminalbench.harbor.read.treatment import treatment
from terminalbench.index.pages import TrialFilter, Window, find_trials
from terminalbench.index.queries import view_batch
from terminalbench.json_files import write_json
from terminalbench.live.state import replay
from terminalbench.report.text import summary
from terminalbench.watch.tables import profile_lines

SAID = "cheat is an oracle (it sees the hidden verdict), so it is not compared"


@pytest.fixture
def made(tmp_path: Path) -> Batch:
    """`cheat` passes everything; of the others b is better than a."""
    batch = allocate(tmp_path, "s")
    names, tasks = ("a", "cheat", "b"), "abcdefgh"
    plan = make_plan(batch, names, tasks, 2, analysis={"alpha": 0.05, "infra_errors": "exclude"})
    records = tuple(
        ProfileRecord(n, f"id-{n}", {"agent": "codex", "model": n, **({"oracle": True} if n == "cheat" else {})})
        for n in names
    )
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=records))
    for profile in names:
        for task in tasks:
            for attempt in (0, 1):
                name = f"{task}__{profile}{attempt}"
                make_trial(
                    batch, name, profile=profile, reward=float(profile != "a"), cost=0.1 if profile == "cheat" else 0.5
                )
    return batch


def test_it_is_in_no_contrast_and_not_on_the_front(made: Batch, tbench) -> None:
    document = json.loads(tbench("compare", made.folder, "--json").out)
    assert [(c["new"], c["old"], c["verdict"]) for c in document["contrasts"]] == [("b", "a", "better")]
    assert "cheat" not in document["pareto"]
    assert [p.get("oracle", False) for p in document["profiles"]] == [False, True, False]
    assert SAID in document["warnings"]


def test_asked_for_by_name_it_is_refused(made: Batch, tbench) -> None:
    document = json.loads(tbench("compare", made.folder, "--compare", "cheat", "a", "--json").out)
    (contrast,) = document["contrasts"]
    assert (contrast["verdict"], contrast["refused"]) == ("inconclusive", [SAID])
    ran = tbench("compare", made.folder, "--baseline", "b", "--json")
    assert [(c["new"], c["old"]) for c in json.loads(ran.out)["contrasts"]] == [("a", "b")]


def test_it_has_a_badge_in_every_table_and_page(made: Batch, tbench, tmp_path: Path) -> None:
    shown = {
        "compare": tbench("compare", made.folder, "--details").out,
        "show": tbench("show", "a__cheat0", "--results", tmp_path).out,
        "run": summary(view_batch(made)),
        "list": tbench("list", "--results", tmp_path).out,
    }
    assert "cheat (oracle)" in shown["compare"]
    assert SAID in " ".join(shown["compare"].split())
    assert "profile   cheat (oracle)" in shown["show"]
    assert shown["run"].count("cheat (oracle)") == shown["run"].count("cheat") - 1, "but in the sentence about it"
    assert SAID in shown["run"]
    assert "with an oracle" in shown["list"]
    live = list(replay(view_batch(made).plan, ()).profiles.values())
    assert [line.plain.split("  ")[0] for line in profile_lines(live, 140)][1:4] == ["a", "cheat (oracle)", "b"]
    assert json.loads(tbench("list", "--results", tmp_path, "--json").out)[0]["oracle"] is True
    assert tbench("report", made.folder, "-o", tmp_path / "out").code == 0
    assert "cheat (oracle)" in (tmp_path / "out" / "comparison_report.md").read_text()
    html = next((tmp_path / "out").glob("*.html")).read_text()
    assert ">oracle</span>" in html
    assert SAID in html
    site = Site(tmp_path)
    home, batch = (answer(site, path, {}).body or b"" for path in ("", "batches/s/0/"))
    assert b">oracle</span>" in home
    assert batch.count(b">oracle</span>") == 1
    trials = (answer(site, "trials/", {}).body or b"").decode()
    assert trials.count(">oracle</span>") == trials.count("<td>cheat") > 0
    row = next(row for _, row in find_trials(site.index, TrialFilter(), Window(size=None)).items if row.profile == "a")
    page = (answer(site, f"batches/s/0/trials/{row.job}/{row.name}/", {}).body or b"").decode()
    assert page.count(">oracle</span>") == page.count("<td>cheat") > 0, "also beside another one's trial"


def test_it_can_be_no_baseline(project, tbench) -> None:
    project.write(
        "own.py", 'class G:\n    AGENT_INFO = {"workflow": True, "mcp": False}\n    def __init__(self, workflow): ...\n'
    )
    flow = 'name = "x"\noracle = true\n[steps.patch]\ngenerator = "patch"\nprompt = "Make it."\n'
    project.write("cheat.toml", flow)
    profiles = (
        '[profiles.cheat]\nagent = "own:G"\nmodel = "m"\nworkflow = "cheat.toml"\n[profiles.plain]\nagent = "nop"\n'
    )
    assert good(project, BASE + profiles).baseline.key == "plain"
    assert "own:G m  (oracle)" in tbench("plan", project.experiment(BASE + profiles)).out
    said = 'profile "cheat" is an oracle (it sees the hidden verdict), so it is not compared'
    assert problems(project, BASE + profiles + '[analysis]\nbaseline = "cheat"\n') == [
        f"analysis.baseline: {said} (name another)"
    ]
    assert problems(project, BASE + profiles + '[analysis]\ncontrasts = [["cheat", "plain"]]\n') == [
        f"analysis.contrasts[0]: {said} (remove the pair)"
    ]


@pytest.mark.parametrize("oracle", [True, False])
def test_a_harbor_job_that_no_plan_describes_is_known_by_its_workflow(oracle: bool) -> None:
    texts = {"file": f"name = 'x'\noracle = {str(oracle).lower()}\n", "prompt.patch": "Make it."}
    content = treatment({"agent": {"name": "guarded", "kwargs": {"workflow": texts, "seed": 1}}}, {})
    assert (content["workflow"], content["options"]) == (texts, {"seed": 1})
    assert content.get("oracle", False) is oracle
