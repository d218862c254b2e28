"""What our own rules say about ways of failing, and what stood in the way, that come again. Pure.

The words are ours, none of an agent's.
"""

from terminalbench.records.lesson import Lesson, LessonKind

_STUCK = Lesson(
    id="",
    do="When a command or an edit has given the same answer twice, stop: look where you are (`pwd`, `ls`) and what the "
    "file holds now, read all of the answer, and do something else.",
    avoid="The same command or edit a third time.",
    kind=LessonKind.STRATEGY,
    tags=["loop"],
    importance=0.6,
)

_READ_AGAIN = Lesson(
    id="",
    do="Before you finish, read the task again, sentence by sentence. For each path, name, format, number and limit "
    "that it gives, run a command that shows it in the state that you leave, as another user would find it. Words like "
    "most, all and only are demands too, and what earlier tries left behind goes.",
    avoid="Trusting checks that you wrote from your own reading of the task.",
    kind=LessonKind.CHECKING,
    tags=["checking"],
    importance=0.6,
)

RULES: dict[str, Lesson] = {
    "loop": _STUCK,
    "own_tests_passed": _READ_AGAIN,
    "wrong_answer": _READ_AGAIN,
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
        do="Run what you wrote or changed before you finish: on the input that is given, and on an empty or unusual "
        "one; build what has to be built. Where the result of a program is asked for, leave the result.",
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
        do="Before you finish, compare the files that you changed with those that the task and its stack traces name: "
        "the change belongs in those files, or in what they call, and new files get exactly the names that are asked "
        "for.",
        avoid="Ending with scripts of your own that only reproduce or describe the problem.",
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

OBSTACLE_RULES: dict[str, Lesson] = {
    "cut_off": Lesson(
        id="",
        do="Start what takes long (a download, an installation, a build, a training) in the background, with "
        "its output in a file: `nohup COMMAND > log 2>&1 &`. Look at that file every now and then, and go "
        "on with something else.",
        avoid="Waiting for it in one command: that is cut off after a while, and what it had done is lost. The "
        "same command again is cut off again.",
        kind=LessonKind.TOOL,
        tags=["time", "background"],
        importance=0.7,
    ),
    "asked": Lesson(
        id="",
        do="Give a program that asks for input all of it at once, by a pipe or a here-document, with a limit "
        "of time around it: `timeout 20 PROGRAM < input`. Where the next input depends on the last "
        "answer, drive it from a script that flushes what it writes and reads up to the prompt, which "
        "ends no line. Edit files with sed or Python.",
        avoid="Starting it without input, or an editor or pager: the command hangs until it is cut off.",
        kind=LessonKind.TOOL,
        tags=["interactive"],
        importance=0.7,
    ),
    "served_in_front": Lesson(
        id="",
        do="Start a server in the background (`nohup COMMAND > log 2>&1 &`), wait until it answers one "
        "request, and leave it running when you finish. On a taken port, end your own earlier copy instead of changing "
        "the port; last, send one request to each address that the task names.",
        avoid="Starting it in a command that waits for it, with `&` but its output not in a file (the command hangs "
        "all the same), or as a child of a script that ends: it ends with that.",
        kind=LessonKind.TOOL,
        tags=["server", "background"],
        importance=0.7,
    ),
    "no_init": Lesson(
        id="",
        do="Expect no init system, and that you are root already: leave sudo out, start a service with `service NAME "
        "start` or by its own program (`nginx`, `sshd -D &`), and reload it by its own option or signal.",
        avoid="`systemctl` and `journalctl`: nothing answers them.",
        kind=LessonKind.ENVIRONMENT,
        tags=["server", "packages"],
        importance=0.7,
    ),
    "absent_programs": Lesson(
        id="",
        do="Look at once which tools are there (`command -v curl wget file xxd ps git python3`), and install "
        "what you need (`apt-get update && apt-get install -y NAME`; ps and pkill are in procps). Where that fails, "
        "Python does it: urllib for curl, `bytes.hex` and `bytes.fromhex` for xxd, `os.kill` and /proc for pkill and "
        "ps.",
        avoid="Building on a tool that a small image may lack.",
        kind=LessonKind.ENVIRONMENT,
        tags=["packages"],
        importance=0.6,
    ),
    "absent_toolchain": Lesson(
        id="",
        do="Look first whether the language's own tools are there (`command -v java mvn node go cargo gcc python3`), "
        "or a wrapper in the repository (`./mvnw`, `./gradlew`). Where they lack, try once to install them (`apt-get "
        "update && apt-get install -y NAME`), then stop: change the source all the same, and read the whole `git "
        "diff`: each hunk lies where you meant it, no line is doubled or lost, every name that it uses is declared.",
        avoid="Programs that reproduce a fault in a language that cannot run here, or in another language.",
        kind=LessonKind.ENVIRONMENT,
        tags=["packages", "checking"],
        importance=0.7,
    ),
    "shell_state": Lesson(
        id="",
        do="Put what belongs together into one command: each may run in a new shell, often a plain sh, where "
        "`cd`, `export` and an activated environment are gone. Use `. file` for `source`, `bash -c '...'` "
        "for what only bash knows, and the full path of an environment's python.",
        kind=LessonKind.TOOL,
        tags=["shell"],
        importance=0.6,
    ),
    "no_network": Lesson(
        id="",
        do="When a host cannot be reached twice, work with what is on the machine: installed packages, "
        "caches, and the folders of the task.",
        avoid="Trying one address after the other.",
        kind=LessonKind.ENVIRONMENT,
        tags=["network"],
        importance=0.6,
    ),
    "no_room": Lesson(
        id="",
        do="Look at `df -h` before large downloads; delete what is half written, and put temporary files (TMPDIR, "
        "PIP_CACHE_DIR) where there is room. What the task asks for, also a model in its usual cache, stays where the "
        "programs that use it look.",
        kind=LessonKind.ENVIRONMENT,
        tags=["disk"],
        importance=0.6,
    ),
    "no_memory": Lesson(
        id="",
        do="Look at the memory that you may use (`free -m`, /sys/fs/cgroup/memory.max) and read large data "
        "in pieces, with fewer processes; a command that ends with `Killed` or 137 had too little of it.",
        avoid="The same command again.",
        kind=LessonKind.ENVIRONMENT,
        tags=["memory"],
        importance=0.6,
    ),
    "one_action": Lesson(
        id="",
        do="Give exactly one command in each answer, in the form that is asked for, without a word of explanation "
        "or code fences inside it; put several into one by && or a script.",
        avoid="Sentences or headings where the command belongs: the shell runs them and answers `command not found`.",
        kind=LessonKind.TOOL,
        tags=["form"],
        importance=0.5,
    ),
    "limit": Lesson(
        id="",
        do="Open the place that the task names with your first commands, and make the smallest change that could be "
        "right within the next few; then check and improve it: the work ends at a limit of steps or cost, without a "
        "warning.",
        avoid="Spending the steps on looking around, on a tool that is not there, or on a program that only reproduces "
        "the fault.",
        kind=LessonKind.STRATEGY,
        tags=["time"],
        importance=0.6,
    ),
    "ended_on_failure": Lesson(
        id="",
        do="When the last thing that you ran failed, the work is not done: find out why, and run it again "
        "until it ends well.",
        avoid="Ending with notes, guides or a script that others are to run, in place of the result itself.",
        kind=LessonKind.CHECKING,
        tags=["checking", "persistence"],
        importance=0.6,
    ),
}
"""By what stood in the way (`obstacles.py`)."""

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
