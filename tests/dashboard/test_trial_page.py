"""The page of one trial: what a reader asks first stands first, and steps can be found."""

import json
import os

from support.dashboard import Root, add_trajectory, steps, trial
from support.results import STAMP
from terminalbench.dashboard.markdown import rendered
from terminalbench.index.scan import scan_batch
from terminalbench.index.store import open_index
from terminalbench.text.doubts import doubt

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
    outline = page.split('class="outline"')[1].split("</nav>")[0]
    marked = outline.split('id="to-step-61"')[1].split("</li>")[0]
    assert "failed" in marked
    assert '<b>bash</b> <span class="mono">echo 59</span>' in marked
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
