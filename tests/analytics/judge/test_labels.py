"""People's labels, and how far the judge agrees with them."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.judging import ALL, recorded, write_trial
from support.results import make_plan, make_trial
from terminalbench.analytics.findings.analyzers import RECORDED
from terminalbench.analytics.findings.trial import TrialAnalyzer
from terminalbench.analytics.judge.output import findings_of
from terminalbench.analytics.judge.request import JudgeRequest
from terminalbench.analytics.judge.run import judge_batch
from terminalbench.analytics.labels import (
    Label,
    Labels,
    add_label,
    agreements,
    cohens_kappa,
    corrected,
    effective,
    make_label,
    parse_value,
    read_labels,
)
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch
from terminalbench.records.trial import Finding, Usage

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def label(trial: str, value: str | None, author: str = "ada", name: str = "root_cause") -> Label:
    return make_label(trial, name, value, author, "I looked", NOW)


def judged(trial: str, value: str | bool | float | None, name: str = "root_cause") -> Finding:
    return Finding(trial, "judge:root_cause", "v", name, value)


def test_labels_are_only_ever_added(tmp_path: Path) -> None:
    for value, author in (("gave_up", "ada"), ("too_slow", "bob"), (None, "ada"), ("poor_execution", "cy")):
        add_label(tmp_path, label("j/a", value, author))
    add_label(tmp_path, label("j/b", "gave_up"))
    found = read_labels(tmp_path)
    assert [(line.author, line.removed) for line in found.lines[:4]] == [
        ("ada", False),
        ("bob", False),
        ("ada", True),
        ("cy", False),
    ]
    assert {key: kept.value for key, kept in found.current().items()} == {
        ("j/a", "root_cause"): "poor_execution",
        ("j/b", "root_cause"): "gave_up",
    }


def test_a_torn_line_is_counted_and_the_rest_read(tmp_path: Path) -> None:
    add_label(tmp_path, label("j/a", "gave_up"))
    with (tmp_path / "labels.jsonl").open("a") as stream:
        stream.write('{"time": "x", "tri')
    add_label(tmp_path, label("j/b", "gave_up"))
    found = read_labels(tmp_path)
    assert (len(found.current()), found.unreadable) == (2, 1)


def test_a_persons_word_counts_and_both_are_kept() -> None:
    findings = [judged("j/a", "tool_misuse"), judged("j/b", "gave_up")]
    both = [*findings, label("j/a", "too_slow").as_finding()]
    assert [f.value for f in both if f.trial == "j/a"] == ["tool_misuse", "too_slow"]
    counts = effective(both)
    assert counts["j/a", "root_cause"].analyzer == "label:ada"
    assert counts["j/a", "root_cause"].reason == "I looked"
    assert counts["j/b", "root_cause"].value == "gave_up"
    assert effective(reversed(both)) == counts


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("root_cause", "gave_up", "gave_up"),
        ("adapted", "Yes", True),
        ("strategy_quality", "0.25", 0.25),
        ("critical_step", "7", 7),
        ("missed_insight", "it was in the log", "it was in the log"),
        ("failure_class", "loop", "loop"),
        ("backtracks", "3", 3),
        ("tool_mix.read", "3", 3),
        ("context_growth", "1.5", 1.5),
        ("tested_before_finish", "no", False),
        ("failure_signature", "out of disk", "out of disk"),
        ("mine", "nan", "nan"),
        ("mine", "2", 2),
    ],
)
def test_values_take_the_form_of_their_rubric(name: str, text: str, value: object) -> None:
    assert parse_value(name, text, [Finding("t", "own", "1", "mine", "x")]) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("root_cause", "gaveup", 'did you mean "gave_up"'),
        ("adapted", "perhaps", "true or false"),
        ("strategy_quality", "2", "between 0.0 and 1.0"),
        ("strategy_quality", "good", "is a number"),
        ("strategy_quality", "nan", "cannot be nan"),
        ("strategy_quality", "inf", "cannot be inf"),
        ("root_kause", "gave_up", 'did you mean "root_cause"'),
        ("failure_class", "lop", 'did you mean "loop"'),
        ("failure_class", "nonsense", "known: setup, environment"),
        ("failure_class", "unfinished", "cannot be"),
        ("backtracks", "notanumber", "is a whole number"),
        ("backtracks", "-1", "must not be below 0"),
        ("context_growth", "nan", "cannot be nan"),
        ("backtracks", "1" + "0" * 400, "cannot be"),
        ("tested_before_finish", "perhaps", "true or false"),
        ("tools", "{}", "is a table"),
        ("success", "yes", "is recorded, not judged"),
        ("cost_usd", "1", "is recorded, not judged"),
    ],
)
def test_values_that_do_not_fit_are_refused(name: str, text: str, said: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_value(name, text, [])
    assert said in str(caught.value)


def test_what_the_result_records_is_what_its_analyzer_finds(tmp_path: Path) -> None:
    files = write_trial(tmp_path).files
    found = {finding.name: finding.value for finding in TrialAnalyzer().analyze(files, None)}
    assert set(found) == set(RECORDED)
    told = replace(files, usage=Usage(all_tokens=77))
    assert {f.name: f.value for f in TrialAnalyzer().analyze(told, None)} == found | {
        **dict.fromkeys(("input_tokens", "output_tokens", "cost_usd", "usage_source", "cost_source")),
        "tokens": 77,
    }


def test_a_line_that_does_not_fit_is_counted_and_does_not_hold(tmp_path: Path) -> None:
    add_label(tmp_path, label("j/a", "loop", name="failure_class"))
    add_label(tmp_path, make_label("j/a", "backtracks", 2, "ada", "x", NOW))
    for name, value in (("failure_class", "nonsense"), ("backtracks", "many"), ("backtracks", True), ("success", True)):
        add_label(tmp_path, make_label("j/a", name, value, "ada", "x", NOW))
    found = read_labels(tmp_path)
    assert {name: held.value for (_, name), held in found.current().items()} == {
        "failure_class": "loop",
        "backtracks": 2,
    }
    assert found.unreadable == 4


def test_a_line_that_does_not_count_is_said(results: Path, tbench) -> None:
    analytics = results / "s/0/analytics"
    add_label(analytics, label("2026-01-23__16-26-48__p/a__one", "nonsense", name="failure_class"))
    said = "1 line of labels.jsonl does not count"
    assert said in tbench("label", "--list", "--results", results).out
    assert f"note: s/0: {said}" in tbench("analyze", results / "s/0", "--no-llm").out
    assert "nonsense" not in "".join(file.read_text() for file in analytics.iterdir() if file.name != "labels.jsonl")
    (analytics / "labels.jsonl").unlink()
    (analytics / "labels.jsonl").mkdir()
    assert read_labels(analytics).unreadable == 1


def test_a_persons_word_stands_in_the_rules_place() -> None:
    findings = [
        Finding("j/a", "failure", "1", "failure_class", "untested", "no test", [4]),
        Finding("j/b", "failure", "1", "failure_class", None, "it passed"),
        Finding("j/c", "failure", "1", "failure_class", "unfinished", "it runs"),
    ]
    people = Labels([label(f"j/{n}", "loop", name="failure_class") for n in "abc"]).current()
    assert corrected(findings, {}) == findings
    assert corrected(findings, people) == [
        Finding("j/a", "failure", "1", "failure_class", "loop", "ada says: I looked"),
        *findings[1:],
    ]


PAIRS = [("a", "a")] * 9 + [("b", "b")] * 6 + [("a", "b")] * 2 + [("b", "c")] * 3 + [("c", "c")] * 4


@pytest.mark.alone("statsmodels")
def test_kappa_and_its_error_are_those_of_statsmodels() -> None:
    values = ["a", "b", "c"]
    table = [[sum(pair == (v, w) for pair in PAIRS) for w in values] for v in values]
    from statsmodels.stats.inter_rater import cohens_kappa as oracle

    expected = oracle(table)
    kappa, error = cohens_kappa(PAIRS)
    assert (kappa, error) == (pytest.approx(expected.kappa), pytest.approx(expected.std_kappa))


@pytest.mark.alone("statsmodels")
def test_agreement_with_intervals_where_the_number_allows() -> None:
    findings = [judged(f"j/{n}", judge) for n, (judge, _) in enumerate(PAIRS)]
    labels = Labels([label(f"j/{n}", person) for n, (_, person) in enumerate(PAIRS)])
    [entry] = agreements(findings, labels)
    assert (entry.pairs, entry.agreed) == (24, 19)
    from statsmodels.stats.proportion import proportion_confint

    low, high = proportion_confint(19, 24, method="wilson")
    assert (entry.low, entry.high) == (pytest.approx(low), pytest.approx(high))
    assert entry.kappa_low is not None
    assert entry.kappa_high is not None
    assert entry.kappa_low < (entry.kappa or 0) < entry.kappa_high
    assert "79.2 % agree" in entry.sentence()


def test_few_pairs_have_no_interval_and_one_value_no_kappa() -> None:
    findings = [judged("j/1", "a"), judged("j/2", "b"), judged("j/3", None)]
    [entry] = agreements(findings, Labels([label(f"j/{n}", v) for n, v in ((1, "a"), (2, "a"), (3, "a"))]))
    assert (entry.pairs, entry.agreed, entry.unjudged, entry.kappa_low) == (2, 1, 1, None)
    assert "no interval" in entry.sentence()
    [entry] = agreements([judged("j/1", "a")], Labels([label("j/1", "a")]))
    assert entry.kappa is None
    assert "not defined" in entry.sentence()


def test_numbers_have_a_distance_and_what_the_judge_is_never_asked_is_left_out() -> None:
    findings = [judged("j/1", 0.5, "strategy_quality"), Finding("j/1", "failures", "1", "failure_class", "loop")]
    labels = Labels(
        [
            make_label("j/1", "strategy_quality", 0.75, "ada", "x", NOW),
            make_label("j/1", "failure_class", "auth", "ada", "x", NOW),
        ]
    )
    [entry] = agreements(findings, labels)
    assert (entry.name, entry.mean_difference, entry.agreed) == ("strategy_quality", 0.25, None)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    batch = Batch(tmp_path / "results" / "s" / "0")
    batch.folder.mkdir(parents=True)
    make_plan(batch)
    make_trial(batch, "a__one", reward=0.0)
    make_trial(batch, "b__two", reward=1.0)
    return tmp_path / "results"


def test_label_list_and_remove_on_the_command_line(results: Path, tbench, tmp_path: Path) -> None:
    by = ("--author", "ada", "--reason", "it never looked", "--results", results)
    done = tbench("label", "a__", "root_cause", "incomplete_exploration", *by)
    assert (done.code, done.err) == (0, "")
    assert "root_cause = incomplete_exploration" in done.out
    lines = (results / "s/0/analytics/labels.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["author"] == "ada"
    listed = tbench("label", "--list", "--results", results)
    assert "it never looked" in listed.out
    assert json.loads(tbench("label", "--list", "--json", "--results", results).out)["labels"][0]["batch"] == "s/0"
    assert tbench("label", "a__", "root_cause", "--remove", *by).code == 0
    assert tbench("label", "--list", "--results", results).out == "no labels yet\n"
    assert len((results / "s/0/analytics/labels.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("a__", "root_cause"), "give TRIAL NAME VALUE"),
        (("a__", "root_cause", "gave_up", "--remove"), "give TRIAL NAME VALUE"),
        (("a__", "root_cause", "gave_up"), "needs --author and --reason"),
        (("a__", "root_cause", "gave_up", "--author", "a", "--reason", " "), "the reason is empty"),
        (("zz", "root_cause", "gave_up", "--author", "a", "--reason", "x"), "no trial is called"),
        (("a__", "root_cause", "--remove", "--author", "a", "--reason", "x"), "has no label"),
        (
            ("b__", "failure_class", "loop", "--author", "a", "--reason", "x"),
            "b__two passed, so it has no failure_class",
        ),
        (("a__", "nothing_like_it", "x", "--author", "a", "--reason", "x"), "nothing is called"),
        (("a__", "root_cause", "--list"), "--list can be combined with one trial"),
    ],
)
def test_wrong_labels_are_refused(results: Path, tbench, arguments: tuple[str, ...], said: str) -> None:
    ran = tbench("label", *arguments, "--results", results)
    assert ran.code == 2
    assert said in ran.err
    assert not (results / "s/0/analytics").exists()


def test_agreement_is_listed_beside_the_labels(results: Path, tbench, tmp_path: Path) -> None:
    analytics = results / "s/0/analytics"
    trial = write_trial(tmp_path)
    key = "2026-01-23__16-26-48__p/a__one"
    trial = replace(trial, files=replace(trial.files, key=key))
    model = recorded(tmp_path / "answers.jsonl", ALL)
    judge_batch(JudgeRequest(model=model, trials=[trial], output=analytics, rubrics=["root_cause"]))
    assert {finding.name for finding in findings_of(analytics)} >= {"root_cause", "critical_step"}
    by = ("--author", "ada", "--reason", "no", "--results", results)
    assert tbench("label", "a__one", "root_cause", "gave_up", *by).code == 0
    out = tbench("label", "--list", "--results", results).out
    assert "agreement with the judge: root_cause: 1 labelled and judged, 0.0 % agree (0.0 to 79.3 %)" in out
