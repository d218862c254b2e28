"""What our own rules say about ways of failing that come again. The words are ours, none of an agent's. Pure."""

from terminalbench.records.lesson import Lesson, LessonKind

_STUCK = Lesson(
    id="",
    do="When a command has failed twice in the same way, read all of its output, then try another way.",
    avoid="Running a command again unchanged.",
    kind=LessonKind.STRATEGY,
    tags=["loop"],
    importance=0.6,
)

RULES: dict[str, Lesson] = {
    "loop": _STUCK,
    "timeout_stuck": _STUCK,
    "finished_with_failing_tests": Lesson(
        id="",
        do="Finish only after your own checks have passed once more, on the state that you leave.",
        avoid="Ending the work while a check that you ran still fails.",
        kind=LessonKind.CHECKING,
        tags=["checking"],
        importance=0.7,
    ),
    "untested": Lesson(
        id="",
        do="Run what you wrote before you finish: on the input that is given, and on an empty or unusual one.",
        kind=LessonKind.CHECKING,
        tags=["checking"],
        importance=0.7,
    ),
    "lost_passing_state": Lesson(
        id="",
        do="Keep a copy of the first state that passes your checks, and go back to it when a later change breaks them.",
        kind=LessonKind.CHECKING,
        tags=["checking"],
        importance=0.6,
    ),
    "wrong_target": Lesson(
        id="",
        do="Before you finish, look whether each file that the task asks for is in its place, under its exact name.",
        kind=LessonKind.CHECKING,
        tags=["checking"],
        importance=0.6,
    ),
    "gave_up_early": Lesson(
        id="",
        do="When the first attempt does not work, look for the cause and try again; there is time for it.",
        avoid="Ending after a few commands with nothing made.",
        kind=LessonKind.STRATEGY,
        tags=["persistence"],
        importance=0.5,
    ),
    "never_acted": Lesson(
        id="",
        do="Make the change with your tools and look at the result; an answer in words alone changes nothing.",
        kind=LessonKind.STRATEGY,
        tags=["persistence"],
        importance=0.6,
    ),
    "timeout_working": Lesson(
        id="",
        do="Make something simple that works first, and improve it while time is left.",
        kind=LessonKind.STRATEGY,
        tags=["time"],
        importance=0.5,
    ),
}
"""By the failure class (docs/analysis.md) that a lesson answers."""

GUARD_RULES: dict[str, Lesson] = {
    "answer": Lesson(
        id="",
        do="Give the answer in exactly the form that is asked for, and nothing around it.",
        kind=LessonKind.TOOL,
        tags=["form"],
        importance=0.5,
    ),
    "patch": Lesson(
        id="",
        do="Copy the text that is to be replaced from the file as it is now, with its indentation, and long enough to "
        "stand there once.",
        avoid="Writing from memory what a file holds.",
        kind=LessonKind.TOOL,
        tags=["editing"],
        importance=0.6,
    ),
    "lint": Lesson(
        id="",
        do="Check that a changed file still loads, and that each name in it is defined or imported.",
        kind=LessonKind.CHECKING,
        tags=["editing", "checking"],
        importance=0.6,
    ),
    "test_syntax": Lesson(
        id="",
        do="Write a new test in the framework and the style of those that are there, and load it once.",
        kind=LessonKind.CHECKING,
        tags=["own-tests"],
        importance=0.5,
    ),
    "test_red": Lesson(
        id="",
        do="See a new test fail by an assertion before the change that it is about.",
        avoid="A test that passes already, or that breaks before its assertion.",
        kind=LessonKind.CHECKING,
        tags=["own-tests"],
        importance=0.6,
    ),
    "test_green": Lesson(
        id="",
        do="When a change does not make your test pass, find out which of the two is wrong before you edit again.",
        kind=LessonKind.STRATEGY,
        tags=["own-tests"],
        importance=0.6,
    ),
}
"""By the guard (docs/guards.md) that refused again and again."""
