"""Tables and JUnit as tools write them: what is recognised, what the rows say, and what is not used of broken files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from formats.outcomes import outcomes
from terminalbench.errors import UserError
from terminalbench.formats.row import ReadOptions
from terminalbench.formats.source import ORDER, read_results
from terminalbench.index.results import TRIALS
from terminalbench.records.trial import Outcome

PASSED, FAILED, ERRORED, NOT_RUN = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.NOT_RUN


CSV = """Task ID;model;Success;cost;Time;notes
a;small;yes;0.5;10;x
a;small;no;;20;x
b;small;maybe;;;x
;small;yes;;;x
b;large;0.5;1;1;x
b;large;1;-3;nan;x

c;large;error;1;1;x
short;row
"""


def test_a_table_with_names_of_its_own(written: Callable[..., Path]) -> None:
    found = read_results(written("t.csv", CSV.replace(";", ",")))
    assert outcomes(found) == {
        ("small", "a", 1): PASSED,
        ("small", "a", 2): FAILED,
        ("large", "b", 1): PASSED,
        ("large", "c", 1): ERRORED,
    }
    assert found.rejected == {
        "passed is neither true nor false": 2,
        "the task is missing": 1,
        "the row has more or fewer fields than the header": 1,
    }
    assert 'the first value that is neither true nor false: Success is "maybe"' in found.notes
    assert found.rows[0].cost_usd == 0.5
    assert found.rows[0].seconds == 10
    assert found.rows[1].cost_usd is None
    assert "columns guessed: task = Task ID, passed = Success, seconds = Time; columns not used: notes" in found.notes
    assert "1 value of cost cannot be read (counted as unknown)" in found.notes
    assert outcomes(read_results(written("semicolons.csv", CSV))) == outcomes(found)
    assert [row.task for row in read_results(written("i.csv", "instance,score\na,1\n")).rows] == ["a"]
    assert outcomes(read_results(written("wide.csv", CSV.encode("utf-16")))) == outcomes(found)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("true", PASSED), ("FALSE", FAILED), ("1", PASSED), ("0.0", FAILED), ("Resolved", PASSED), ("timeout", ERRORED),
     ("", ERRORED), ("skipped", NOT_RUN), ("NaN", ERRORED)],
)  # fmt: skip
def test_a_word_for_passed(written: Callable[..., Path], value: str, expected: Outcome) -> None:
    found = read_results(written("t.csv", f"task,passed,profile\na,{value},p\n"))
    assert outcomes(found) == {("p", "a", 1): expected}


def test_rewards_decide_where_no_verdict_is_told(written: Callable[..., Path]) -> None:
    rows = [{"task": t, "score": s, "profile": "p"} for t, s in (("a", 1), ("b", 0.99), ("c", None))]
    text = json.dumps([*rows, {"task": "d", "score": float("nan"), "profile": "p"}, {"task": "e", "score": "1e999"}])
    found = read_results(written("t.json", text))
    assert outcomes(found) == {
        ("p", "a", 1): PASSED, ("p", "b", 1): FAILED, ("p", "c", 1): ERRORED, ("p", "d", 1): ERRORED,
    }  # fmt: skip
    assert found.rejected == {"the reward is not a finite number": 1}


@pytest.mark.parametrize("scores", [(85.5, 12.5), (100, 0), (2, 1)])
def test_rewards_beyond_one_need_a_word_on_what_passes(written: Callable[..., Path], scores: tuple[float, ...]) -> None:
    path = written("t.csv", "task,profile,score\n" + "".join(f"t{n},p,{score}\n" for n, score in enumerate(scores)))
    with pytest.raises(UserError, match=f"go up to {scores[0]:g}, and the reward needed to pass is unknown") as told:
        read_results(path)
    assert "--pass-at N" in (told.value.hint or "")
    found = read_results(path, ReadOptions(pass_at=scores[0]))
    assert list(outcomes(found).values()) == [PASSED, FAILED]


def test_numbers_as_people_write_them(written: Callable[..., Path]) -> None:
    head = "task;profile;reward;cost;tokens;seconds\n"
    found = read_results(written("t.csv", f"# by hand\n{head}a;p;100%;0,25;12345;1e308\nb;p;67 %;$1.5;-3;9\n"))
    first, second = found.rows
    assert list(outcomes(found).values()) == [PASSED, FAILED]
    assert (first.cost_usd, first.tokens, first.seconds) == (0.25, 12345, None)
    assert (second.reward, second.cost_usd, second.tokens) == (0.67, 1.5, None)
    assert "1 value of seconds cannot be read (counted as unknown)" in found.notes
    commas = read_results(written("c.csv", 'task,profile,passed,tokens\na,p,1,"1,234,567"\n'))
    assert commas.rows[0].tokens == 1234567
    low = read_results(written("low.csv", f"{head}a;p;0,4;;;\nb;p;0,6;;;\n"), ReadOptions(pass_at=0.5))
    assert list(outcomes(low).values()) == [FAILED, PASSED]


def test_rows_inside_a_document(written: Callable[..., Path]) -> None:
    rows = [{"task_id": "a", "agent": "p", "score": 1.0}]
    assert outcomes(read_results(written("d.json", {"meta": {"n": 1}, "data": rows}))) == {("p", "a", 1): PASSED}
    with pytest.raises(UserError, match="no result format"):
        read_results(written("two.json", {"old": rows, "new": rows}))


def test_rows_deeper_in_a_document_and_values_inside_their_objects(written: Callable[..., Path]) -> None:
    """As tau2-bench, tau-bench and OpenHands write them: an attempt whose run broke is no failure."""
    sims = [
        {"task_id": "0", "trial": n, "seed": 7, "reward_info": {"reward": told} if told is not None else None, "agent_cost": 0.5}
        for n, told in enumerate((1.0, 0.0, None))
    ]  # fmt: skip
    found = read_results(written("m.json", {"tasks": [{"id": "0"}], "run": {"simulations": sims}}))
    assert outcomes(found) == {("m", "0", 1): PASSED, ("m", "0", 2): FAILED, ("m", "0", 3): ERRORED}
    assert found.rows[0].cost_usd == 0.5
    tau = [{"task_id": n, "reward": 0.0, "info": info, "trial": 0} for n, info in enumerate(({}, {"error": "429"}))]
    assert list(outcomes(read_results(written("tau.json", tau))).values()) == [FAILED, ERRORED]
    lines = "".join(
        json.dumps({"instance_id": f"d__d-{n}", "test_result": {"report": {"resolved": n == 1}}}) + "\n" for n in (1, 2)
    )
    assert list(outcomes(read_results(written("output.jsonl", lines))).values()) == [PASSED, FAILED]


def test_a_value_inside_an_object_is_a_column_by_its_dotted_name(written: Callable[..., Path]) -> None:
    rows = [{"id": n, "doc": {"key": f"k{n}"}, "scores": {"exact": n % 2}} for n in range(2)]
    path = written("s.json", {"samples": rows})
    with pytest.raises(UserError) as told:
        read_results(path)
    assert "--column passed=COLUMN; it has id, doc.key, scores.exact" in (told.value.hint or "")
    columns = {"task": "doc.key", "passed": "scores.exact"}
    assert outcomes(read_results(path, ReadOptions(columns=columns))) == {
        ("s", "k0", 1): FAILED,
        ("s", "k1", 1): PASSED,
    }
    text = 'id,scores\na,"{""exact"": 1}"\nb,"{""exact"": 0}"\n'
    in_cells = read_results(written("s.csv", text), ReadOptions(columns={"passed": "scores.exact"}))
    assert list(outcomes(in_cells).values()) == [PASSED, FAILED]
    with pytest.raises(UserError, match='has no column "scores.exat"'):
        read_results(path, ReadOptions(columns={"task": "doc.key", "passed": "scores.exat"}))


def test_names_in_camel_case_times_in_milliseconds_and_split_tables(written: Callable[..., Path]) -> None:
    row = {"instanceId": "a__a-1", "model": "m", "costUsd": 0.5, "durationMs": 1500, "isResolved": True}
    (found,) = read_results(written("t.jsonl", json.dumps(row))).rows
    assert (found.task, found.passed, found.cost_usd, found.seconds) == ("a__a-1", True, 0.5, 1.5)
    assert found.dataset == "swe-bench", "the same instance as in a report of SWE-bench"
    split = {
        "columns": ["question_id", "task", "score"],
        "index": [0, 1],
        "data": [["q1", "math", 1], ["q2", "math", 0]],
    }
    assert outcomes(read_results(written("w.json", split))) == {("w", "q1", 1): PASSED, ("w", "q2", 1): FAILED}


def test_a_status_by_which_nothing_fails_is_said(written: Callable[..., Path]) -> None:
    text = "id,status,score_a\nx,success,1\ny,error,0\n"
    said = "no row has failed by its status; if it says only that the attempt ended, name the verdict"
    assert any(note.startswith(said) for note in read_results(written("runs.csv", text)).notes)
    assert not any(
        "no row has failed" in note
        for path in (written("f.csv", f"{text}z,failed,0\n"), written("p.csv", "id,passed\na,1\n"))
        for note in read_results(path).notes
    )


def test_an_error_beside_a_failure_broke_and_a_pass_with_one_passed(written: Callable[..., Path]) -> None:
    text = "task,profile,passed,error\na,p,false,rate limit\nb,p,true,late warning\nc,p,failed,assertion 3\nd,p,0,\n"
    found = read_results(written("t.csv", text))
    assert list(outcomes(found).values()) == [ERRORED, PASSED, FAILED, FAILED]
    left_out = read_results(written("t.csv", text), ReadOptions(columns={"error": ""}))
    assert list(outcomes(left_out).values()) == [FAILED, PASSED, FAILED, FAILED]


def test_attempts_are_told_or_counted(written: Callable[..., Path]) -> None:
    rows = [("a", 2, 1), ("a", 1, 0), ("a", 2, 0), ("b", "x", 1)]
    lines = [json.dumps({"task": t, "attempt": n, "passed": p, "profile": "p"}) for t, n, p in rows]
    found = read_results(written("t.jsonl", "\n".join([*lines, "{torn", "[]"])))
    assert outcomes(found) == {("p", "b", 1): PASSED, ("p", "a", 1): FAILED, ("p", "a", 2): PASSED}
    assert found.rejected == {
        "the line is not a JSON object": 2,
        "an earlier row has the same attempt at the same task": 1,
    }
    assert "1 value of attempt cannot be read (counted as unknown)" in found.notes


def test_a_task_a_row_and_a_profile_a_column(written: Callable[..., Path]) -> None:
    path = written("wide.csv", "task,note,old,new\na,x,pass,fail\nb,y,1,0.4\nc,z,,1\n")
    found = read_results(path)
    assert outcomes(found) == {
        ("old", "a", 1): PASSED, ("new", "a", 1): FAILED, ("old", "b", 1): PASSED, ("new", "b", 1): FAILED,
        ("new", "c", 1): PASSED,
    }  # fmt: skip
    assert "each of these columns is read as a profile, its cells as verdicts: old, new" in found.notes
    assert found.rejected == {"the cell of a profile is empty": 1}
    assert any(
        note.startswith("1 reward between 0 and 1 counts as not passed; with --pass-at N") for note in found.notes
    )
    assert [row.passed for row in read_results(path, ReadOptions(pass_at=0.3)).rows if row.task == "b"] == [True, True]
    named = read_results(written("named.csv", "what,old,new\na,1,0\n"), ReadOptions(columns={"task": "what"}))
    assert outcomes(named) == {("old", "a", 1): PASSED, ("new", "a", 1): FAILED}


@pytest.mark.parametrize(
    "document",
    [
        {"old": {"a": 1, "b": [0, 1], "c": None}, "new": {"a": False, "b": ["fail"], "c": True}},
        {"a": {"old": 1, "new": 0}, "b": {"old": [0, 1], "new": "failed"}, "c": {"old": "", "new": 1}},
    ],
)
def test_verdicts_by_profile_and_task_or_by_task_and_profile(document: object, written: Callable[..., Path]) -> None:
    found = read_results(written("nested.json", document))
    assert outcomes(found) == {
        ("old", "a", 1): PASSED, ("old", "b", 1): FAILED, ("old", "b", 2): PASSED, ("new", "a", 1): FAILED,
        ("new", "b", 1): FAILED, ("new", "c", 1): PASSED,
    }  # fmt: skip
    assert "names read as profiles: old, new; as tasks: a, b, c" in found.notes
    assert found.rejected == {"the cell of a profile is empty": 1}


@pytest.mark.parametrize("told", [{"acc": 0.5, "acc_stderr": 0.1}, {"cost": 1, "time": 0}, {"x": 1, "y": 2}, {}, 1])
def test_json_that_is_no_table_of_verdicts(told: object, written: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="no result format"):
        read_results(written("sums.json", {"a": told, "b": told}))


@pytest.mark.parametrize("table", ["task,old\na,1\n", "task,old,new\na,1,maybe\n", "task,model,f1,f2\na,m,1,0\n"])
def test_columns_that_are_no_profiles(table: str, written: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match="so no row has a verdict"):
        read_results(written("t.csv", table))


def test_columns_that_are_named(written: Callable[..., Path]) -> None:
    path = written("t.csv", "what,who,ok\na,p,1\n")
    with pytest.raises(UserError, match="no column for the task"):
        read_results(path)
    found = read_results(path, ReadOptions(columns={"task": "what", "profile": "who", "passed": "ok"}, dataset="mine"))
    assert [(r.task, r.profile, r.dataset, r.passed) for r in found.rows] == [("a", "p", "mine", True)]
    with pytest.raises(UserError, match="so no row has a verdict"):
        read_results(written("scores.csv", "task,model,error,f1\na,m,,0.3\nb,m,,0.4\n"))
    for columns in ({"task": "wat"}, {"tsk": "what"}):
        with pytest.raises(UserError):
            read_results(path, ReadOptions(columns=columns))


def test_predictions_without_results_are_refused_and_those_with_results_are_read(written: Callable[..., Path]) -> None:
    rows = [{"instance_id": "a__a-1", "model_name_or_path": "m", "model_patch": "diff"}]
    with pytest.raises(UserError, match="so no row has a verdict") as told:
        read_results(written("preds.jsonl", json.dumps(rows[0])))
    assert "run the evaluation of the benchmark" in (told.value.hint or "")
    with pytest.raises(UserError, match="it has predictions, which have no verdict"):
        read_results(written("mini.json", {"a__a-1": rows[0]}))
    found = read_results(written("preds.json", [{**rows[0], "resolved": True}]))
    assert [(r.task, r.profile, r.dataset, r.passed) for r in found.rows] == [("a__a-1", "m", "swe-bench", True)]


def test_parquet_and_our_own_export(written: Callable[..., Path], tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"task": ["a", "b"], "profile": ["p", "p"], "passed": [True, None], "cost": [1.0, None]})
    pq.write_table(table, tmp_path / "t.parquet")
    found = read_results(tmp_path / "t.parquet")
    assert outcomes(found) == {("p", "a", 1): PASSED, ("p", "b", 1): ERRORED}
    with pytest.raises(UserError, match="cannot be read as Parquet"):
        read_results(written("broken.parquet", b"PAR1" + b"\0" * 40))
    row: dict[str, Any] = dict.fromkeys(TRIALS, "")
    row |= {"task": "a", "profile": "p", "outcome": "failed", "passed": "false", "reason": "", "superseded": "false"}
    lines = [",".join(TRIALS), ",".join(row.values()), ",".join({**row, "superseded": "true"}.values())]
    own = read_results(written("export.csv", "\n".join(lines)))
    assert (outcomes(own), own.rejected) == ({("p", "a", 1): FAILED}, {"a superseded try": 1})


JUNIT = """<?xml version="1.0"?><testsuites><testsuite name="{one}">
<testcase classname="m.T" name="a" time="1.5"/><testcase classname="m.T" name="b"><failure message="no">x</failure></testcase>
<testcase classname="m.T" name="c"><error>boom</error></testcase><testcase classname="m.T" name="d"><skipped/></testcase>
</testsuite>{more}</testsuites>"""


def test_junit(written: Callable[..., Path]) -> None:
    found = read_results(written("base.xml", JUNIT.format(one="pytest", more="")))
    assert outcomes(found) == {
        ("base", "m.T::a", 1): PASSED, ("base", "m.T::b", 1): FAILED, ("base", "m.T::c", 1): ERRORED, ("base", "m.T::d", 1): NOT_RUN,
    }  # fmt: skip
    assert found.rows[2].error == "boom"
    suites = '<testsuite name="new"><testcase classname="m.T" name="a"/></testsuite>'
    by_suite = read_results(written("ours.xml", JUNIT.format(one="old", more=suites)))
    assert {row.profile for row in by_suite.rows} == {"old", "new"}


def test_ctrf(written: Callable[..., Path], tmp_path: Path) -> None:
    tests = [{"name": word, "status": word, "duration": 1500} for word in ("passed", "failed", "skipped", "other")]
    report = {"results": {"tool": {"name": "pytest"}, "summary": {"tests": 4}, "tests": tests}}
    found = read_results(written("d/new.json", report))
    assert outcomes(found) == {
        ("new", "passed", 1): PASSED, ("new", "failed", 1): FAILED, ("new", "skipped", 1): NOT_RUN, ("new", "other", 1): ERRORED,
    }  # fmt: skip
    assert found.rows[0].seconds == 1.5
    written("d/results.csv", "task,passed\na,1\n")
    assert read_results(tmp_path / "d").format == "table", "beside results of agents it holds the tests of one trial"


XFAILS = """<?xml version="1.0" encoding="utf-8"?><testsuites name="pytest tests"><testsuite name="pytest" tests="6">
<testcase classname="test_x" name="test_known" time="0.016"><skipped type="pytest.xfail" message="known" /></testcase>
<testcase classname="test_x" name="test_held" time="0.000"><skipped type="pytest.xfail" message="[NOTRUN] slow" /></testcase>
<testcase classname="test_x" name="test_mended"><failure message="[XPASS(strict)] ">[XPASS(strict)] </failure></testcase>
<testcase classname="test_x" name="test_lucky" time="0.000" />
<testcase classname="test_x" name="test_inside" time="0.000"><skipped type="pytest.xfail" message="mid" /></testcase>
<testcase classname="test_x" name="test_skipped"><skipped type="pytest.skip" message="unconditional skip">x</skipped></testcase>
</testsuite></testsuites>"""


def test_an_expected_failure_ran_and_is_passed(written: Callable[..., Path]) -> None:
    """As pytest 9 writes it: its run is green, and only what it did not run at all did not run."""
    found = read_results(written("run.xml", XFAILS))
    assert {task.rpartition("::test_")[2]: outcome for (_, task, _), outcome in outcomes(found).items()} == {
        "known": PASSED, "held": NOT_RUN, "mended": FAILED, "lucky": PASSED, "inside": PASSED, "skipped": NOT_RUN,
    }  # fmt: skip
    assert found.notes == ["run.xml: 2 expected failures count as passed (pytest's xfail)"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '<?xml version="1.0"?><!DOCTYPE t [<!ENTITY a "aaaa">]><testsuite><testcase name="&a;"/></testsuite>',
            "document type",
        ),
        ('<!DOCTYPE t SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        ("<testsuite><testcase name='a'>", "is not XML"),
        (f"<testsuite>{'<a>' * 60}", "elements deep"),
        ("<testsuite/>", "contains no usable result"),
    ],
)
def test_xml_that_is_not_taken(written: Callable[..., Path], text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_results(written("t.xml", text))


ODD = {
    "empty.csv": "", "header.csv": "task,passed\n", "prose.txt": "hello", "list.json": "[1, 2]", "other.json": '{"a": 1}',
    "deep.json": "[" * 100_000, "torn.json": '{"results": [', "latin.csv": b"task,passed\n\xe9,1\n", "zero.csv": b"\0" * 500,
    "zip.eval": b"PK\x03\x04rubbish", "all-bad.csv": "task,passed\na,maybe\n", "twice.csv": "task,task,passed\na,b,1\n",
    "zip.csv.gz": b"\x1f\x8b\x08\0" + b"\xff" * 40, "wide.csv": "task,passed\na,1\n".encode("utf-16-le"),
    "coded.xml": '<?xml version="1.0" encoding="utf-7"?><testsuite/>', "latin.jsonl": b'{"task": "\xe9", "passed": true}\n',
    "quote.csv": 'task,passed\n"a,1\n', "config.json": '{"eval": {"model": "m"}, "status": "x"}', "nan.json": '{"results": NaN}',
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file_is_one_clear_message(written: Callable[..., Path], name: str) -> None:
    with pytest.raises(UserError) as told:
        read_results(written(name, ODD[name]))
    assert told.value.where
    assert name in told.value.where


_ROW = '{"task": "a", "profile": "p", "passed": true}'


@pytest.mark.parametrize(
    ("name", "held", "unread"),
    [
        ("mark.jsonl", _ROW.encode("utf-16"), {}),
        ("mark.json", f"[{_ROW}]".encode("utf-16"), {}),
        ("mark.csv", "\ufefftask,profile,passed\na,p,1\n", {}),
        ("excel.csv", "sep=;\ntask;profile;passed\na;p;1\n", {}),
        ("huge.jsonl", _ROW.replace("}", f', "tokens": {"9" * 5000}}}'), {}),
        ("huge.json", f'[{_ROW}, {{"task": {"9" * 5000}, "passed": true}}]', {"the task is missing": 1}),
        ("lists.json", f'[{_ROW}, {{"task": ["a"], "passed": true}}, 5]', {"the task is missing": 1, "the line is not a JSON object": 1}),
    ],
)  # fmt: skip
def test_what_else_a_table_may_be(written: Callable[..., Path], name: str, held: Any, unread: dict[str, int]) -> None:
    found = read_results(written(name, held))
    assert (outcomes(found), found.rejected) == ({("p", "a", 1): PASSED}, unread)


def test_names_are_made_fit_to_be_shown(written: Callable[..., Path]) -> None:
    task, other = "x" * 300 + "1", "x" * 300 + "2"
    rows = [{"task": t, "profile": "p\u001b[31m\n\ud800", "passed": True} for t in (task, other, "a\nb")]
    found = read_results(written("t.json", json.dumps(rows)))
    assert len({row.task for row in found.rows}) == 3
    assert all(len(row.task) <= 200 and (row.task + row.profile).isprintable() for row in found.rows)


def test_a_folder_of_several_formats_is_named_and_can_be_told(written: Callable[..., Path], tmp_path: Path) -> None:
    written("d/a.csv", "task,passed\na,1\n")
    written("d/b.xml", JUNIT.format(one="s", more=""))
    written("d/notes.json", {"mine": 1})
    with pytest.raises(UserError, match="1 file of table, 1 file of junit"):
        read_results(tmp_path / "d")
    assert read_results(tmp_path / "d", ReadOptions(format="junit")).format == "junit"
    with pytest.raises(UserError, match="no result format is called"):
        read_results(tmp_path / "d", ReadOptions(format="junitt"))
    (tmp_path / "link.csv").symlink_to(tmp_path / "d" / "a.csv")
    assert read_results(tmp_path / "link.csv").rows[0].task == "a"


def test_a_format_of_a_package_is_asked_first(written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from terminalbench import registry

    class Mine:
        def recognises(self, file: Any) -> bool:
            return file.head.startswith(b"MINE")

        def read(self, files: Any, reader: Any) -> None:
            reader.add("a", "p", "d", passed=True)

    monkeypatch.setitem(registry.BUILTIN["result formats"], "mine", f"{__name__}:MINE")
    monkeypatch.setitem(globals(), "MINE", Mine)
    assert read_results(written("x.csv", "MINE,task")).format == "mine"
    assert {*ORDER, "mine"} == set(registry.names("result formats"))
