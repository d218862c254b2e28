"""What a report says, and that it says it safely, completely and in bounded size."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from conftest import REPO
from support.reports import SMALL, large, make_comparison, make_view, measured
from terminalbench.analytics.error_groups import FailureCause
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.lab.analyze import write_report
from terminalbench.records.trial import Usage
from terminalbench.report.build import ReportInput, build_report
from terminalbench.report.documents import LINKED_TRIALS, render_html, render_markdown
from terminalbench.report.pictures import write_pictures
from terminalbench.report.sentences import headlines, next_steps
from terminalbench.version import __version__

GOLDEN = REPO / "tests" / "golden" / "report"
HOSTILE = "<script>alert(1)</script>|`x`*_[a](javascript:b) \x1b[2J \u202e \ud800"


def normal(text: str) -> str:
    return text.replace(__version__, "VERSION")


@cache
def many() -> ReportInput:
    return measured(large(3, 500, 5))


def test_the_page_and_the_text_are_as_agreed(golden) -> None:
    report = build_report(measured(SMALL), [measured(SMALL, number=1)])
    golden(GOLDEN / "small.html", normal(render_html(report)))
    golden(GOLDEN / "small.md", normal(render_markdown(report)))


@pytest.mark.parametrize("marks", [SMALL, large(3, 60, 3), {"only": {"a": "+"}}, {"p": {"a": "."}, "q": {"a": "E"}}])
def test_every_link_within_the_page_leads_somewhere(marks: dict[str, dict[str, str]]) -> None:
    view = make_view(marks)
    compared = any(cell.measured for cell in view.cells)
    if not compared:
        view = make_view({"p": marks["p"]})
    page = render_html(build_report(ReportInput(Batch(Path(view.batch)), view, make_comparison(view))))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'href="#([^"]+)"', page))
    assert wanted - set(ids) == set()


def test_many_attempts_are_counted_in_the_text() -> None:
    text = render_markdown(build_report(measured({"p": {"a": "+" * 37 + "x" * 11 + "EE"}, "q": {"a": "+" * 50}})))
    assert "| a | 37/48 2E | 50/50 |" in text
    assert "Passed/measured, then how many were not measured: `T` timed out, `E` errored" in text


def test_every_trial_is_linked_to_its_folder() -> None:
    made = measured(SMALL)
    page = render_html(build_report(made))
    for cell in made.view.cells:
        if cell.row is not None:
            assert f'href="../{cell.row.folder}"' in page


def test_a_large_report_stays_small_and_says_what_it_leaves_out() -> None:
    made = many()
    report = build_report(made)
    assert report.planned == 7500 > LINKED_TRIALS
    page = render_html(report)
    assert len(page.encode()) < 1_500_000
    assert "300 more are in the list of trials" in page
    assert "those that passed are not linked" in page
    assert page.count("<tr") > 1500
    folders = {cell.row.folder for cell in made.view.cells if cell.row is not None and cell.outcome != "passed"}
    assert len(folders) > 1000
    assert folders - set(re.findall(r'href="../([^"]+)"', page)) == set()
    assert len(render_markdown(report).encode()) < 100_000


def test_beyond_that_size_trials_are_named_but_not_linked() -> None:
    page = render_html(build_report(measured({"p": {f"t{n}": "x" * 50 for n in range(100)}})))
    assert "../runs/" not in page
    assert "too many to link each" in page


def test_long_reasons_do_not_make_a_large_report_larger() -> None:
    made = many()
    cells = [
        msgspec.structs.replace(cell, reason=f"{index} the environment could not be built: " + "x" * 3000)
        if cell.outcome in ("errored", "timed_out")
        else cell
        for index, cell in enumerate(made.view.cells)
    ]
    view = msgspec.structs.replace(made.view, cells=cells)
    page = render_html(build_report(ReportInput(Batch(Path(view.batch)), view, made.comparison, made.findings)))
    assert len(page.encode()) < 1_500_000
    assert "rarer ones, in metrics_detail.csv" in page


def test_hostile_words_stay_words() -> None:
    marks = {HOSTILE: {HOSTILE: "+xTE"}, "q": {HOSTILE: "x+xE"}}
    report = build_report(measured(marks, name=HOSTILE))
    page, text = render_html(report), render_markdown(report)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for letter in "\x1b\u202e\ud800":
        assert letter not in page
        assert letter not in text
    assert "<script" not in text
    assert re.search(r"(?<!\\)\]\(javascript", text) is None
    assert all(line.count("|") - line.count("\\|") in (0, *range(3, 20)) for line in text.splitlines())
    page.encode()
    text.encode()


def test_unknown_cost_is_never_zero() -> None:
    made = measured(SMALL)
    cells = [
        msgspec.structs.replace(cell, row=msgspec.structs.replace(cell.row, usage=Usage()) if cell.row else None)
        for cell in made.view.cells
    ]
    view = msgspec.structs.replace(made.view, cells=cells)
    profiles = [
        msgspec.structs.replace(p, cost_usd=None, cost_unknown_trials=p.planned, cost_per_success=None)
        for p in made.comparison.profiles
    ]
    comparison = msgspec.structs.replace(made.comparison, profiles=profiles)
    report = build_report(ReportInput(Batch(Path(view.batch)), view, comparison))
    page = render_html(report)
    assert [line.cost for line in report.profiles] == ["unknown"] * 3
    assert "$0" not in page
    assert "cost or the rate is not fully known: text, graph, canvas" in page


def test_limits_stand_beside_the_answer() -> None:
    report = build_report(measured(SMALL))
    found = [(line.kind, line.text) for line in headlines(report)]
    assert ("warning", "27 of 36 planned trials were measured; 9 were not.") in found
    assert any("MCP server canvas: connected in" in text for kind, text in found if kind == "warning")
    assert found[0][0] in ("better", "worse", "equivalent", "inconclusive")


def test_why_they_failed_is_told_with_the_verifiers_line_and_the_deciding_step() -> None:
    made = measured(SMALL)
    row = next(cell.row for cell in made.view.cells if cell.row is not None and cell.profile == "graph")
    cause = FailureCause(
        profile="graph", what="untested", count=4, of=6, trial=row.key, task="fix-ocaml-gc", check=f"gc.ml {HOSTILE}",
        step=7, did="bash: make",
    )  # fmt: skip
    report = build_report(replace(made, causes=(cause,)))
    page, text = render_html(report), render_markdown(report)
    assert '<b>4</b> <span class="dim">of 6</span> it changed files and ran no test' in page
    assert f'<a href="../{row.folder}">fix-ocaml-gc</a>: the verifier said <q>gc.ml &lt;script&gt;' in page
    assert "step 7: <code>bash: make</code>" in page
    assert "graph most often failed because it changed files and ran no test: tell it to run what it wrote" in page
    assert "- 4 of 6 it changed files and ran no test" in text
    assert "<script" not in page + text


def test_what_is_undecided_says_how_to_go_on() -> None:
    made = measured(SMALL)
    undecided = [msgspec.structs.replace(one, verdict="inconclusive", effect=0.05) for one in made.comparison.contrasts]
    comparison = msgspec.structs.replace(made.comparison, contrasts=undecided)
    [first, *_] = next_steps(comparison, "results/s/0", "results/s/0")
    assert first.startswith("graph vs text is undecided: a gap of 5.0 pt takes about ")
    assert first.endswith(": take more tasks, or leave it open"), "no command for more attempts than anybody would pay"
    assert "tbench" not in " ".join(next_steps(comparison, ""))
    found = undecided[0].estimate
    now = round(found.trials / 2 / (found.tasks or found.units))
    near = msgspec.structs.replace(undecided[0], trials_needed=4 * found.trials)
    [first, *_] = next_steps(msgspec.structs.replace(comparison, contrasts=[near]), "r/s/0", "r/s/0")
    assert first.startswith(
        f"graph vs text is undecided: a gap of 5.0 pt takes about {4 * now} attempts at each task ("
    )
    assert first.endswith(f"): tbench resume r/s/0 --attempts {4 * now}"), "four times the trials"
    seen = msgspec.structs.replace(near, effect=None, trials_needed=None)
    steps = next_steps(msgspec.structs.replace(comparison, contrasts=[seen]), "r/s/0", "r/s/0")
    assert steps[0].startswith("graph vs text is undecided: more tasks may decide it; analysis.effect, "), (
        "nothing is promised of the gap that happened to be seen"
    )


def test_what_is_proven_comes_first_and_simulated_agents_prove_nothing() -> None:
    made = measured(SMALL).comparison
    played = [msgspec.structs.replace(one, simulated=True) for one in made.profiles]
    best = 'Use canvas from now on: baseline = "canvas" in [analysis] compares what comes next with it'
    assert next_steps(made, "s/0")[:2] == [best, "See where canvas and text differ: tbench errors s/0 --vs canvas text"]
    assert next_steps(msgspec.structs.replace(made, contrasts=made.contrasts[:1]), "s/0")[0] == (
        "Stay with text: graph is worse"
    )
    said = "Try canvas and text with a real agent: simulated ones prove nothing of it"
    assert next_steps(msgspec.structs.replace(made, profiles=played), "s/0")[0] == said


def test_several_batches_give_a_trend_in_order_of_time() -> None:
    report = build_report(measured(SMALL, number=2), [measured(SMALL, number=1), measured(SMALL, number=3)])
    assert [line.batch for line in report.trend] == ["s/1", "s/2", "s/3"]
    assert [line.href for line in report.trend] == ["../analytics/report.html", None, "../analytics/report.html"]
    assert build_report(measured(SMALL)).trend == ()


def test_links_are_relative_to_where_the_report_is_written(tmp_path: Path) -> None:
    made, other = measured(SMALL), measured(SMALL, number=1)
    first, second = (Batch(tmp_path / "my results" / "s" / str(n)) for n in (0, 1))
    source = replace(made, batch=first)
    page, text = write_report(source, [replace(other, batch=second, findings=None)])
    assert page == first.analytics / "report.html"
    assert text.read_text().startswith("# Canvas or text")
    assert 'href="../../1/analytics/report.html"' in page.read_text()
    assert 'href="../runs/' in page.read_text()
    page, _ = write_report(source, output=tmp_path / "elsewhere")
    assert 'href="../my%20results/s/0/runs/' in page.read_text()


def test_charts_are_files_with_their_style_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of CSS, no link, nothing from outside: a drawing program reads them. A PNG where a program makes it."""
    report = build_report(measured(SMALL), [measured(SMALL, number=1)])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert {file.suffix for file in write_pictures(report, tmp_path / "out")} == {".svg"}
    drawn = tmp_path / "out" / "forest.svg"
    picture = ElementTree.fromstring(drawn.read_text())
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert picture.get("width"), picture.get("height")
    style = picture.findtext("{http://www.w3.org/2000/svg}style") or ""
    assert ".chart .s1.curve{fill: none; stroke: #8a6100; stroke-width: 2;}" in style
    assert "var(" not in style
    assert "<a " not in drawn.read_text()
    program = tmp_path / "bin" / "rsvg-convert"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nwhile [ "$1" != --output ]; do shift; done\n/bin/cp "$3" "$2"\n')
    program.chmod(0o755)
    (tmp_path / "out" / "failures.png").write_text("of an earlier report")
    assert {file.suffix for file in write_pictures(report, tmp_path / "out")} == {".svg", ".png"}
    assert (tmp_path / "out" / "forest.png").read_text() == drawn.read_text()
    empty = build_report(measured({"only": {"a": "+"}}))
    write_pictures(empty, tmp_path / "out")
    assert not (tmp_path / "out" / "forest.svg").exists(), "no chart of an earlier report stays"
    program.write_text("#!/bin/sh\necho no fonts >&2\nexit 3\n")
    with pytest.raises(UserError, match="rsvg-convert could not make a PNG: exit code 3: no fonts"):
        write_pictures(report, tmp_path / "out")
