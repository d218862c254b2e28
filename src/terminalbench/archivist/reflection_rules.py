"""What our own rules say about ways of failing that come again. The words are ours, none of an agent's. Pure."""

from terminalbench.records import Lesson, LessonKind

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
