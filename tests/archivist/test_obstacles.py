"""What stood in an agent's way, from what its calls returned, and the lessons that our rules have for it."""

from pathlib import Path

import pytest

from support.judging import call, say, write_trial
from terminalbench.archivist.attempts import EvidenceTrial
from terminalbench.archivist.leaks import find_leaks
from terminalbench.archivist.obstacles import OBSTACLE_RULES, RULES, obstacles
from terminalbench.archivist.reflection import by_rules
from terminalbench.records.trial import Outcome

KILLED = "The last command <command>{}</command> timed out and has been killed.\n<output>\n{}\n</output>\nTry another."
SEEN = {
    "cut_off": [("pip install torch", "Command timed out after 2m 0.0s\nDownloading torch (887.9 MB)")],
    "asked": [
        ("./game 1", KILLED.format("./game 1", "Welcome\nYour move: ")),
        ("vim a.py", "command timed out after 10000 ms"),
    ],
    "served_in_front": [
        ("flask run", "[The command has no new output after 30 seconds.]"),
        ("python api.py &", KILLED.format("python api.py &", "")),
        ("python api.py", KILLED.format("python api.py", " * Running on http://127.0.0.1:5000")),
    ],
    "no_init": [("systemctl start nginx", "/bin/sh: 1: systemctl: not found")] * 2,
    "absent_programs": [("file a; xxd a", "bash: line 1: file: command not found"), ("xxd a", "sh: 1: xxd: not found")],
    "absent_toolchain": [("javac A.java", "/bin/bash: line 636: javac: command not found")],
    "shell_state": [("conda activate x", "CondaError: Run 'conda init' before 'conda activate'")] * 2,
    "no_network": [("curl x.test", "curl: (6) Could not resolve host: x.test")] * 2,
    "no_room": [("python get.py", "OSError: [Errno 28] No space left on device")],
    "no_memory": [("python fit.py", "\nKilled")],
    "one_action": [("", "Please always provide EXACTLY ONE action in triple backticks.")] * 2,
    "limit": [("exit_cost", "Exited (autosubmitted)")],
    "ended_on_failure": [("make all", "make: *** [all] Error 2\n<returncode>2</returncode>")],
}
"""By obstacle the commands of an agent, and what they returned."""


LOOKED = [("ls", "sum.txt"), ("cat sum.txt", "1"), ("mkdir -p out", "")]


def attempt(folder: Path, name: str, *calls: tuple[str, str], code: int | None = None) -> EvidenceTrial:
    extra = {} if code is None else {"exit_code": code}
    steps = [say(1, "Do it.", "user")]
    steps += [
        call(at, "bash", {"command": command}, said, **extra) for at, (command, said) in enumerate(calls, start=2)
    ]
    trial = write_trial(folder, name, steps=steps)
    return EvidenceTrial(trial, f"s/0/{trial.key}")


def names(found: EvidenceTrial) -> list[str]:
    story = found.trial.files.story
    assert story.trajectory is not None
    return [one.name for one in obstacles(story.trajectory, story.actions)]


@pytest.mark.parametrize("name", SEEN)
def test_an_obstacle_is_known_by_what_calls_return(tmp_path: Path, name: str) -> None:
    code = 2 if name == "ended_on_failure" else None
    assert names(attempt(tmp_path, "a__1", *SEEN[name], code=code)) == [name]


@pytest.mark.parametrize(
    "said",
    [
        "curl: (28) Connection timed out after 5001 ms",
        "Your server is up:\nserving",
        "connect: Connection refused",
        "100 %",
        "the process was\nkilled by its owner",
        "bash: line 9: cd..: command not found\nbash: line 9: find.: command not found",
    ],
)
def test_what_only_sounds_like_one_is_none(tmp_path: Path, said: str) -> None:
    assert names(attempt(tmp_path, "a__1", ("python app.py", said), ("file a", "sh: 1: file: not found"))) == []


@pytest.mark.parametrize(
    "said",
    [
        "command timed out after 10000 milliseconds",
        "[The command has no new output after 30 seconds. You may wait longer.]",
        "The command 'make' was cancelled because it took more than 25 seconds.",
        "Command was automatically cancelled because it exceeded the timeout of 5.0 minutes without output.",
        "EXECUTION TIMED OUT",
        "bash tool terminated command after exceeding timeout 120000 ms",
    ],
)
def test_each_agent_has_its_words_for_a_command_that_it_cut_off(tmp_path: Path, said: str) -> None:
    assert names(attempt(tmp_path, "a__1", ("make", said))) == ["cut_off"]


def test_sentences_where_a_command_belongs_are_no_program_that_is_missing(tmp_path: Path) -> None:
    said = (
        "DISCUSSION\nThe fault",
        "bash: line 8: DISCUSSION: command not found\nbash: line 9: The: command not found",
    )
    assert names(attempt(tmp_path, "a__1", said, said)) == ["one_action"]
    asks = ("DISCUSSION\nLet's look", "/bin/bash: line 2: unexpected EOF while looking for matching `''")
    assert names(attempt(tmp_path, "b__1", asks, asks)) == ["one_action"]
    assert names(attempt(tmp_path, "c__1", ("echo Let's look", asks[1]), ("echo Let's look", asks[1]))) == []


def test_what_talks_to_a_program_that_asks_hangs_for_that_reason(tmp_path: Path) -> None:
    asks, hangs = SEEN["asked"][0], ("python solve.py", KILLED.format("python solve.py", ""))
    assert names(attempt(tmp_path, "a__1", asks, hangs, hangs)) == ["asked"]
    assert names(attempt(tmp_path, "b__1", hangs)) == ["cut_off"]


def test_rules_have_a_clean_lesson_for_every_obstacle() -> None:
    assert set(OBSTACLE_RULES) == set(SEEN)
    assert not [leak for lesson in OBSTACLE_RULES.values() for leak in find_leaks(lesson.text)]


def test_rules_learn_from_an_obstacle_that_came_twice_and_from_no_class_that_it_explains(tmp_path: Path) -> None:
    slow = [attempt(tmp_path, f"{task}__1", *SEEN["cut_off"] * 2, *LOOKED) for task in "ab"]
    (draft,) = by_rules(slow).drafts
    assert (draft.do, draft.written_from) == (OBSTACLE_RULES["cut_off"].do, [])
    assert [one.steps for one in draft.evidence] == [[2, 3], [2, 3]]
    assert by_rules(slow[:1]).drafts == []
    passed = EvidenceTrial(write_trial(tmp_path / "p", "a__1", outcome=Outcome.PASSED), "s/0/a")
    assert by_rules([passed, slow[0]]).drafts == []


@pytest.mark.parametrize(
    ("name", "kept"),
    [("no_room", "1 2 2e 1e"), ("cut_off", "2 2e 1e"), ("asked", "2 2e 1e"), ("no_init", "2e"), ("shell_state", "2e")],
)
def test_what_was_left_behind_is_an_incident(tmp_path: Path, name: str, kept: str) -> None:
    once, work = SEEN[name][:1], [*LOOKED, *LOOKED]
    came = {"1": once + work, "2": once * 2 + work, "2e": [*once, *work, *once], "1e": work + once}
    found = {when: names(attempt(tmp_path, f"{when}__1", *calls)) for when, calls in came.items()}
    assert found == {when: [name] if when in kept.split() else [] for when in came}


WRITE, RUN = ("cat > sum.py << 'EOF'\nprint(1)\nEOF", ""), ("python sum.py", "1\n<returncode>0</returncode>")


@pytest.mark.parametrize(
    ("last", "lessons"), [((), ["untested"]), ((RUN,), []), ((("rm notes.txt", ""),), ["untested"])]
)
def test_who_ran_the_program_that_it_wrote_is_not_told_to_run_it(tmp_path: Path, last: tuple, lessons: list) -> None:
    found = by_rules([attempt(tmp_path, f"{task}__1", *LOOKED, WRITE, *last) for task in "ab"]).drafts
    assert [one.do for one in found] == [RULES[name].do for name in lessons]


EDIT = ("sed -i s/1/2/ sum.py", "")


@pytest.mark.parametrize(
    ("begin", "lessons"),
    [
        ((*LOOKED, *LOOKED), ["limit"]),
        ((*LOOKED, *LOOKED, EDIT, RUN), ["limit"]),
        ((*LOOKED, *LOOKED[:1] * 5), ["loop"]),  # that is why it came to a limit
        ((EDIT, RUN, *LOOKED), []),  # it had begun early, and had not the time that `gave_up_early` speaks of
    ],
)
def test_who_changed_something_early_is_not_told_to_before_a_limit(tmp_path: Path, begin: tuple, lessons: list) -> None:
    found = by_rules([attempt(tmp_path, f"{task}__1", *begin, ("exit_cost", "Exited")) for task in "ab"]).drafts
    assert [one.do for one in found] == [(OBSTACLE_RULES | RULES)[name].do for name in lessons]


def test_who_could_not_run_a_program_is_not_told_to_run_it(tmp_path: Path) -> None:
    found = by_rules(
        [attempt(tmp_path, f"{task}__1", *LOOKED, *SEEN["absent_toolchain"], WRITE) for task in "ab"]
    ).drafts
    assert [one.do for one in found] == [OBSTACLE_RULES["absent_toolchain"].do]
