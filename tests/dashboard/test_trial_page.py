"""The page of one trial: what a reader asks first stands first, and steps can be found."""

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from support.dashboard import Root, add_trajectory, steps, trial
from support.results import STAMP
from terminalbench.analytics import long_trajectory
from terminalbench.analytics.findings import trial_files
from terminalbench.dashboard.findings import classify
from terminalbench.dashboard.pages import trial as pages_trial
from terminalbench.dashboard.pages.trial import _sent
from terminalbench.dashboard.render import rendered, shown, terminal
from terminalbench.dashboard.site import ResultCache, Site
from terminalbench.index.scan import scan_batch
from terminalbench.index.store import open_index
from terminalbench.json_files import encode_json
from terminalbench.records.trial import Usage
from terminalbench.text.reasons import doubt, failure_advice, failure_words

FAILED = "FAIL: test_sum (x)\n----------\nAssertionError: 3 != 4\n\n" + "".join(f"line {n}\n" for n in range(100))


def work(root: Root, document: dict, output: str = FAILED) -> None:
    folder = root.batch.runs / f"{STAMP}__p" / "a__1"
    add_trajectory(folder, document)
    (folder / "verifier" / "test-stdout.txt").write_text(output)


def test_the_first_failing_check_stands_before_everything_else(root: Root) -> None:
    work(root, steps("ls"))
    page = root.text(trial("a__1"))
    assert page.index("<b>test_sum</b> failed<pre>AssertionError: 3 != 4</pre>") < page.index("<dl")
    assert "check" not in root.text(trial("a__3", "q")).split("<dl")[0].split("<main")[1]


def test_a_verifier_without_a_report_gives_its_last_words_as_the_reason(root: Root) -> None:
    work(root, steps("ls"), "wanted 142, found nothing\n")
    page = root.text(trial("a__1"))
    assert page.index("<b>The verifier</b> said<pre>wanted 142, found nothing</pre>") < page.index("<dl")


def test_the_verifier_has_a_box_of_thirty_lines_and_all_of_it(root: Root) -> None:
    work(root, steps("ls"))
    said = root.text(trial("a__1")).split('id="verifier"')[1].split("</section>")[0]
    assert "Show all 104 lines" in said
    end = said.split('<pre class="file end">')[1].split("</pre>")[0]
    assert end.splitlines() == [f"line {n}" for n in range(70, 100)]
    work(root, steps("ls"), "short\n")
    assert "Show all" not in root.text(trial("a__1")).split('id="verifier"')[1]


def test_the_instruction_stands_once_and_is_rendered(root: Root) -> None:
    work(root, steps("ls", first="# Aim\n\nMake `x` **good**.\n\n- one\n\n<script>no()</script>"))
    page = root.text(trial("a__1"))
    assert "<code>x</code> <strong>good</strong>" in page
    assert "<li>one</li>" in page
    assert page.count("good") == 1
    assert "<script>no" not in page
    assert '<a href="#instruction">the instruction</a>' in page.split('id="step-1"')[1].split("</article>")[0]


def test_without_a_trajectory_the_instruction_is_that_of_the_task(root: Root) -> None:
    assert "Neither in the trajectory nor in a task on this machine." in root.text(trial("b__2"))
    task = root.path.parent / "task"
    task.mkdir()
    (task / "instruction.md").write_text("Count **all** words.\n")
    config = root.batch.runs / f"{STAMP}__p" / "b__2" / "config.json"
    config.write_text(json.dumps({"task": {"path": str(task)}}))
    assert "Count <strong>all</strong> words." in root.text(trial("b__2"))


def test_markdown_leads_nowhere() -> None:
    made = rendered("![x](http://e.example/a.png) [y](javascript:z) <http://e.example> <b onclick=x>b</b>\n\n# h")
    for bad in ("<img", "<a", "<b", "<h1"):
        assert bad not in made


def test_steps_are_searched_and_filtered_over_all_pages(root: Root) -> None:
    document = steps(*(f"echo {n}" for n in range(118)), "touch made", "needle here")
    document["steps"][60]["observation"]["results"][0]["extra"]["exit_code"] = 3
    work(root, document)

    def ids(**query: str) -> list[str]:
        found = root.text(trial("a__1"), **query).split('<article class="step ')[1:]
        return [part.split('id="step-')[1].split('"')[0] for part in found]

    assert len(ids()) == 50
    assert ids(find="NEEDLE") == ["121"]
    assert ids(only="errors") == ["61"]
    assert ids(only="edits") == ["120"]
    assert ids(only="errors", find="needle") == []
    assert "No step fits." in root.text(trial("a__1"), only="errors", find="needle")
    page = root.text(f"{trial('a__1')}steps/1/2/")
    step = page.split('id="step-61"')[1].split("</article>")[0]
    assert '<span class="wrong">failed</span>' in step
    assert 'data-marks="errors ' in step
    assert '<span class="gist mono">echo 59</span>' in step
    assert 'steps/1/3/#step-121">last</a>' in page.replace("../3/", "steps/1/3/")


def test_tokens_written_to_the_cache_are_told(root: Root) -> None:
    assert "written to it" not in root.text(trial("a__1"))
    with open_index(root.path) as index:
        index.execute("UPDATE trials SET cache_write_tokens = 1234 WHERE trial = 'a__1'")
        index.commit()
    assert "1,234 written to it" in root.text(trial("a__1"))


def test_a_doubtful_result_says_why_and_what_to_do(root: Root) -> None:
    folder = root.batch.runs / f"{STAMP}__p" / "a__1"
    (folder / "safety.json").write_text(json.dumps({"mode": "shared", "rewards_found": ["reward.txt"]}))
    os.utime(folder / "result.json", (1_700_000_000, 1_700_000_000))
    scan_batch(root.batch)
    assert f"<b>doubtful</b> {doubt('tampering:reward_file')}" in root.text(trial("a__1"))


def opened(page: str) -> list[str]:
    """The ids of the steps that are open."""
    found = page.split('<article class="step ')[1:]
    return [
        part.split('id="step-')[1].split('"')[0] for part in found if "<details open>" in part.split("<summary>")[0]
    ]


def test_a_step_is_a_line_and_those_that_tell_most_are_open(root: Root) -> None:
    document = steps(*(f"echo {name}" for name in "abcdefghijklmnopqrstuvwxyz"))
    for place in (3, 9, 12, 20):
        document["steps"][place]["observation"]["results"][0]["extra"]["exit_code"] = 3
    work(root, document)
    page = root.text(trial("a__1"))
    shown = set(opened(page))
    assert {"10", "13", "21"} <= shown, "the last that failed"
    assert len(shown) <= 6
    work(root, steps("ls", "cat x"))
    assert opened(root.text(trial("a__1"))) == ["1", "2", "3"]


def test_a_long_trajectory_makes_no_long_page(root: Root) -> None:
    """What a page holds of the other pages does not grow with them."""
    sizes = []
    for count in (600, 6000):
        work(root, steps(*(f"echo {n}" for n in range(count)), output="x"))
        sizes.append(len(root.text(trial("a__1"))))
    assert sizes[1] < 1.02 * sizes[0]


def test_a_long_trajectory_is_left_in_its_file_and_shown_as_a_short_one(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = steps(*(f"echo {n}" for n in range(118)), "touch made", "needle here")
    document["steps"][60]["observation"]["results"][0]["extra"]["exit_code"] = 3
    document["steps"][70]["timestamp"] = None
    page = trial("a__1")
    asked: list[tuple[str, dict[str, str]]] = [(page, {}), (page, {"find": "needle"}), (page, {"only": "errors"})]
    asked += [(f"{page}{rest}", {}) for rest in ("steps/1/2/", "step-text/1/61/4.txt", "steps.csv", "data.json")]

    def answers() -> list[str]:
        monkeypatch.setattr(root, "site", Site(root.path))
        return [root.text(path, **query) for path, query in asked]

    work(root, document)
    whole = answers()
    monkeypatch.setattr(long_trajectory, "LONG", 0)
    monkeypatch.setattr(long_trajectory, "_PIECE", 3000)
    assert answers() == whole
    document["steps"][75]["tool_calls"] = ["odd"]
    work(root, document)
    decoded: list[int] = []
    real = long_trajectory.parse_trajectory
    monkeypatch.setattr(
        long_trajectory, "parse_trajectory", lambda data, *first: (decoded.append(len(data)), real(data, *first))[1]
    )
    monkeypatch.setattr(pages_trial, "MANY_STEPS", 50)
    assert "oddity" not in root.text(page)
    assert sum(decoded) < 0.8 * len(json.dumps(document)), "only what is shown"
    assert "<li>step 76: tool call 1 is a str</li>" in root.text(f"{page}steps/1/2/"), "named when the step is read"


ODD_STEPS = r"""
{"step_id": 2, "source": "agent", "message": "Plain \u0061lpha, \u212aelvin and a Kilo, caf\u00e9\u00c9\ttab"},
{"step_id": 3, "source": "agent", "message": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
 "reasoning_content": "why not"},
{"step_id": 4, "source": "agent", "message": "", "tool_calls": [
  {"tool_call_id": "c", "arguments": {"path": "a\/b.py", "many": [1e3, 0.00001, true, null], "said": "x\u000ay <z>"}}],
 "observation": {"results": [{"source_call_id": "c", "content": {"rows": [1E2, "deep\u0009"]}, "extra": {"returncode": 3}}]}},
{"step_id": 5, "source": "agent", "message": "", "tool_calls": [
  {"tool_call_id": "c", "function_name": "Run", "arguments": ["listed"]}, "odd"],
 "observation": {"results": [{"source_call_id": "c", "content": "done", "extra": {"is_error": false}}, {"content": ["a", {"type": "image"}]}]}},
{"step_id": 6, "source": "agent", "message": "MY_TOKEN=a1b2c3d4e5f6g7h8 it is",
 "observation": {"results": [{"content": "", "subagent_trajectory_ref": [{"trajectory_id": "helper"}]}]}},
{"step_id": 7, "source": "agent", "message": "The {last} \"one\": it's 100% \ud83d\ude00 done", "extra": {"hidden": "unseen"}}
"""
LOOKED_FOR = (
    "alpha", "kelvin", "a kilo", "caf\u00e9", "\u00c9\tTAB", "two", "one\ntwo", "not", "not shown", "thinking", "without a name", "a/b.py",
    "1000.0", "1e-05", "true, null", "y <z>", "x\ny", "100.0", "deep", "deep\\t", "exit code 3", "code 3", "listed", "input",
    "ok", "run", "redacted", "=[redacted] it", "a1b2c3d4", "subagent helper", "it's 100% ", "{last}", '"one": it', "\U0001f600 do",
    "unseen", "step_id", "agent", " ", "nowhere",
)  # fmt: skip


def test_a_search_in_a_long_trajectory_finds_what_one_in_a_short_one_does(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However a text is written in the file; and only steps that may hold it are decoded."""
    first = json.dumps(steps("ls"))
    many = ", ".join(json.dumps({"step_id": n, "source": "agent", "message": f"step {n}"}) for n in range(8, 1500))
    add_trajectory(
        root.batch.runs / f"{STAMP}__p" / "a__1",
        f"{first[: first.index(', {"step_id": 2')]}, {ODD_STEPS}, {many}]}}".encode(),
    )

    def found() -> dict[str, list[str]]:
        monkeypatch.setattr(root, "site", Site(root.path))
        pages = {text: root.text(trial("a__1"), find=text).split('<article class="step ')[1:] for text in LOOKED_FOR}
        return {text: [part.split('id="step-')[1].split('"')[0] for part in page] for text, page in pages.items()}

    whole = found()
    assert {text for text, ids in whole.items() if not ids} == {"a1b2c3d4", "unseen", "step_id", "nowhere"}
    monkeypatch.setattr(long_trajectory, "LONG", 0)
    assert found() == whole
    decoded: list[int] = []
    real = long_trajectory.parse_trajectory
    root.text(trial("a__1"))
    monkeypatch.setattr(
        long_trajectory, "parse_trajectory", lambda data, *first: (decoded.append(len(data)), real(data, *first))[1]
    )
    monkeypatch.setattr(pages_trial, "MANY_STEPS", 50)
    root.text(trial("a__1"), find="step 777")
    assert sum(decoded) < 0.2 * len(many), "the first and the last, the found one, and those that are written oddly"


def test_failures_of_long_trials_are_classified_without_reading_all_of_them(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = root.batch.runs
    made = {
        f"{STAMP}__p/a__1": steps(*(f"echo {n}" for n in range(80)), *["make test"] * 8),
        f"{STAMP}__p/a__2": steps("echo x > answer", *(f"cat {n}" for n in range(80)), "echo done"),
        f"{STAMP}__q/a__3": steps(*(f"echo {n}" for n in range(80))),
    }
    read: list[str] = []
    real = trial_files.read_trajectory
    monkeypatch.setattr(trial_files, "read_trajectory", lambda path: (read.append(path.parts[-3]), real(path))[1])

    def classified() -> str:
        for name, document in made.items():
            add_trajectory(runs / name, document)
            os.utime(runs / name / "result.json", (1, 1))  # read again
        root.scan()
        monkeypatch.setattr(root, "site", Site(root.path))
        classify(root.site, "study/0")
        return root.text("batches/study/0/failures.csv")

    whole = classified()
    assert sorted(read) == ["a__1", "a__2"], "what passed is not read"
    read.clear()
    monkeypatch.setattr(long_trajectory, "LONG", 0)
    assert (classified(), read) == (whole, [])
    assert len(whole.splitlines()) > 3


def test_what_very_many_steps_tell_is_found_when_it_is_asked_for(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a page are marked at once; those of all, and the findings, are made for a reader who asks."""
    document = steps(*(f"echo {n}" for n in range(118)), "touch made")
    for broken in (20, 60):
        document["steps"][broken]["observation"]["results"][0]["extra"]["exit_code"] = 3
    work(root, document)
    told = json.loads(root.text(f"{trial('a__1')}data.json"))["findings"]
    monkeypatch.setattr(root, "site", Site(root.path))
    monkeypatch.setattr(pages_trial, "MANY_STEPS", 50)
    later: list[Any] = []
    monkeypatch.setattr(root.site, "made", lambda *given, wait: later.append(given))
    long = root.text(trial("a__1"))
    assert ("Analyse them now" in long, "failure class" in long, later) == (True, False, [])
    assert long.count('<span class="wrong">failed</span>') == 1
    assert ("only errors</option>" in long, "only errors (2)" in root.text(trial("a__1"), only="errors")) == (
        True,
        True,
    )
    assert "the findings appear here by themselves" in root.text(trial("a__1"), analyse="1")
    ((batch, key, make),) = later
    assert (batch, json.loads(encode_json(make()))) == ("study/0", told)
    root.site.kept(key, make)


def test_a_trajectory_that_nobody_reads_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("terminalbench.dashboard.site.time.monotonic", lambda: now[0])
    kept = ResultCache(100)
    for now[0], key in ((0.0, "one"), (1.0, "two"), (2.0, "one")):
        kept.get(key, lambda key=key: key, 10)
    kept.forget(before=1.5)
    assert (kept.holds("one"), kept.holds("two")) == (True, False)


def test_what_was_made_later_and_is_kept_no_longer_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("terminalbench.dashboard.site.threading.Timer", lambda _sec, work: mock.Mock(start=work))
    asked, made = Site(tmp_path), list[int]()

    def ask() -> int | None:
        return asked.made("study/0", "key", lambda: made.append(1) or len(made), wait=False)

    assert [ask(), ask(), ask()] == [None, 1, 1]
    for number in range(100):
        asked.kept(number, lambda: 0)
    assert [ask(), ask()] == [None, 2]


def test_why_it_failed_and_what_to_try_is_said_in_words(root: Root) -> None:
    document = steps("ls", "make test", "make test", "make test", "make test", "make test", "make test")
    document["steps"].append({"step_id": 9, "source": "agent", "message": "All is <done>.\nBye."})
    work(root, document)
    page = root.text(trial("a__1"))
    passed = trial("a__3").replace(f"{STAMP}__p", f"{STAMP}__q")
    assert "<b>Why</b>" not in root.text(passed)
    (name,) = re.findall(r"failure class</th><td>([a-z_]+)", page)
    assert f"<b>Why</b> {failure_words(name)}" in page
    assert "; its last words: <q>All is &lt;done&gt;. Bye.</q>. <b>Try</b>" in page
    tried = page.split(f"<b>Try</b> {failure_advice(name)}.")[1].split("</p>")[0]
    assert ">Beside a trial that passed</a>" in tried


def test_the_head_counts_tokens_as_the_steps_do(root: Root) -> None:
    assert _sent(Usage(input_tokens=70, cache_read_tokens=20, cache_write_tokens=10)) == 100
    assert _sent(Usage(cache_read_tokens=20)) is None, "unknown is not zero"
    page = root.text(trial("a__1"))
    contents = page.split('aria-label="On this page"')[1].split("</nav>")[0]
    links = re.findall(r'href="#([a-z]+)"', contents)
    assert links == sorted(links, key=lambda one: page.index(f'id="{one}"')), "in the order of the page"


def test_steps_that_did_the_same_are_one_line(root: Root) -> None:
    work(root, steps("ls", "make test", "make test", "make  test", "make test", "sed 1p x", "sed 2p x", "sed 3p x"))
    page = root.text(trial("a__1"))
    assert page.count('<details class="repeated"') == 1
    group = page.split('<details class="repeated"')[1].split("</summary>")[0]
    assert "4 times the same" in group
    assert '<span class="at">3 to 6</span>' in group
    assert page.count('<article class="step ') == 9, "every one is there"


def test_repeated_steps_are_open_where_one_of_them_decided(root: Root) -> None:
    document = steps("cat x", *["make test"] * 8)
    work(root, document)
    assert '<details class="repeated" open>' in root.text(trial("a__1"))
    add_trajectory(root.batch.runs / f"{STAMP}__q" / "a__3", document)
    assert '<details class="repeated">' in root.text(trial("a__3", "q")), "nothing decided a trial that passed"


def test_long_output_has_its_first_and_last_lines_and_an_edit_is_a_diff(root: Root) -> None:
    document = steps("make", "edit", output="".join(f"row {n}\n" for n in range(60)).rstrip())
    document["steps"][2]["tool_calls"][0]["arguments"] = {
        "file_path": "/app/x.py", "old_string": "one\ntwo\n", "new_string": "one\n<three>\n",
    }  # fmt: skip
    work(root, document)
    page = root.text(trial("a__1"))
    made = page.split('id="step-2"')[1].split("</article>")[0]
    assert "row 5</pre>" in made
    assert "50 more lines" in made
    assert "<pre>row 56" in made
    patch = page.split('id="step-3"')[1].split('class="block result')[0]
    for line in ('<span class="at">*** /app/x.py', '<span class="del">-two', '<span class="add">+&lt;three&gt;'):
        assert line in patch


def test_terminal_output_looks_as_it_did_and_does_nothing() -> None:
    assert terminal("plain <b>") == "plain &lt;b&gt;"
    assert terminal("\x1b[1;31mE\x1b[0m ok") == '<span class="t-bold t-red">E</span> ok'
    assert terminal("10 %\r50 %\r100 %\r\nnext") == "100 %\nnext"
    assert terminal("\x1b]0;t\x07") == "␛]0;t␇", "what would act elsewhere is seen"
    assert terminal("\x1b[2J") == "␛[2J"
    assert terminal("\x1b[?25l\x1b[2K\x1b[1A\x1b[38;5;196mx\x1b[39m\x1b[92my") == 'x<span class="t-green">y</span>'
    assert terminal("\x1b[31m<script>") == '<span class="t-red">&lt;script&gt;</span>'
    assert "\x1b" not in terminal("\x1b[9999999999999999999999m \x1b \x1b[")
    assert shown("@@ -1 +1 @@\n-<a>", True) == '<span class="at">@@ -1 +1 @@</span><span class="del">-&lt;a&gt;</span>'
