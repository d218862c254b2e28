"""What a command in a sandbox gets, and how it ends."""

import pytest

from sandbox.driving import Box, Driver, Raised
from support.tools import TMUX

pytestmark = pytest.mark.any_user


@pytest.mark.both_users
def test_a_command_has_docker_like_defaults(box: Box) -> None:
    done = box.run("echo out; echo err >&2; id -u; pwd; env | sort; exit 3")
    assert done["return_code"] == 3
    assert done["stdout"].splitlines()[:3] == ["out", "0", "/app"]
    names = {line.split("=")[0] for line in done["stdout"].splitlines()[3:]}
    assert names == {"HOME", "PATH", "PWD", "SHLVL", "_"}
    assert done["stderr"] == "err\n"


def test_environment_and_folder_are_those_asked_for(driver: Driver) -> None:
    box = driver.box(
        files={"Dockerfile": "FROM debian:12\nENV FROM_IMAGE=a BOTH=image\nWORKDIR /w\n"},
        config={"env": {"FROM_TASK": "b", "BOTH": "task"}},
    )
    assert box.out("echo $FROM_IMAGE $FROM_TASK $BOTH $GIVEN; pwd", env={"GIVEN": "c"}).splitlines() == [
        "a b task c",
        "/w",
    ]
    assert box.out("pwd", cwd="/usr/lib") == "/usr/lib"
    assert box.run("pwd", cwd="/nowhere")["return_code"] == 126
    assert "No such file or directory: /nowhere" in box.run("pwd", cwd="/nowhere")["stderr"]
    box.call("stop", True)


def test_a_missing_program_is_not_found(box: Box) -> None:
    assert box.run("no-such-program")["return_code"] == 127
    assert box.run("kill -9 $$")["return_code"] == 137


def test_commands_can_run_side_by_side(box: Box) -> None:
    answers = box.do("together", [f"sleep 0.2; echo {i}" for i in range(8)])
    assert [answer["stdout"] for answer in answers] == [f"{i}\n" for i in range(8)]


def test_output_arrives_while_the_command_runs(box: Box) -> None:
    come = "until [ -e /tmp/{} ]; do sleep 0.01; done; "
    chunks = box.do(
        "streamed",
        "echo one; "
        + come.format(1)
        + "echo two >&2; "
        + come.format(2)
        + "printf '\\303'; "
        + come.format(3)
        + "printf '\\251'",
    )
    assert [stream for stream, _ in chunks] == ["stdout", "stderr", "stdout", "stdout"]
    assert "".join(text for _, text in chunks) == "one\ntwo\né"


def test_huge_output_is_read_but_not_kept_whole(box: Box) -> None:
    done = box.run("echo start; head -c 200000000 /dev/zero | tr '\\0' x; echo; echo end; exit 4")
    assert done["return_code"] == 4
    assert done["stdout"].startswith("start\nxxx")
    assert done["stdout"].endswith("xxx\nend\n")
    assert "bytes of output left out" in done["stdout"]
    assert len(done["stdout"]) < 40_000_000


def test_a_background_process_does_not_hold_the_command(box: Box) -> None:
    """It lives on between commands, and may go on writing to its old output."""
    count = "i=$((i+1)); echo $i > /tmp/new; mv /tmp/new /tmp/count"
    assert "started" in box.out(f"(while :; do echo tick; {count}; sleep 0.01; done) & echo started").splitlines()
    box.until("test -s /tmp/count && echo there", "there")
    first = int(box.out("cat /tmp/count"))
    box.until(f"test $(cat /tmp/count) -gt {first + 5} && echo more", "more")


def test_tmux_works(box: Box) -> None:
    TMUX.path()
    box.out("tmux new-session -d -s work -x 80 -y 24")
    box.out("tmux send-keys -t work 'echo $((6*7)) > /tmp/answer' Enter")
    box.until("cat /tmp/answer", "42")


@pytest.mark.parametrize(
    "background",
    ["sleep 1000", "setsid sleep 1000", "nohup sleep 1000", "(setsid bash -c 'sleep 1000; true' & sleep 1000)"],
)
def test_a_timeout_ends_the_whole_tree(box: Box, background: str) -> None:
    with pytest.raises(Raised, match="RuntimeError: Command timed out after 1 seconds"):
        box.run(f"{background} & sleep 1000", timeout_sec=1)
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"


def test_a_cancellation_ends_the_whole_tree(box: Box) -> None:
    assert box.do("cancel", "setsid sleep 1000 & sleep 1000", "test $(pgrep -c sleep) = 2") == "cancelled"
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"


def test_an_ended_tree_is_gone_and_not_only_going(box: Box) -> None:
    """A process takes a while to give its memory back, with its locks and ports; the next command must not meet it."""
    large = "x = bytearray(300 << 20); open('/tmp/ready', 'w').close(); import time; time.sleep(1000)"
    assert box.do("cancel", f'setsid python3 -c "{large}" & sleep 1000', "test -e /tmp/ready") == "cancelled"
    assert box.out("cat /proc/[0-9]*/stat | grep -c '(python3) [^ZX]' || true") == "0"


@pytest.mark.both_users
def test_processes_can_all_be_ended_and_the_sandbox_goes_on(box: Box) -> None:
    box.out("echo kept > /tmp/file; for i in 1 2 3; do setsid nohup sleep 1000 >/dev/null 2>&1 & done")
    box.out("(trap '' TERM HUP INT; while :; do sleep 0.01 & done) >/dev/null 2>&1 &")
    box.until("test $(pgrep -cx sleep) -gt 3 && echo many", "many")
    box.call("kill_processes")
    assert box.out("pgrep -c -r R,S,D,T sleep || true") == "0"
    assert box.out("cat /tmp/file") == "kept"


def test_orphans_are_reaped(box: Box) -> None:
    box.out("cp /bin/true /tmp/orphan; for i in $(seq 50); do (setsid /tmp/orphan &); done")
    box.until("pgrep -c 'orphan|setsid' || true", "0")  # a zombie would be found for ever


def test_signals_have_their_default_effect(box: Box) -> None:
    """The helper ignores some; what it starts must not."""
    assert int(box.out("grep -E '^SigIgn' /proc/self/status | cut -f2"), 16) & 0x7FFFFFFF == 0
    assert box.run("yes | head -1")["return_code"] == 0


@pytest.mark.both_users
def test_other_users_where_there_are_ids_for_them(driver: Driver) -> None:
    box = driver.box(files={"Dockerfile": "FROM debian:12\nRUN useradd -m -u 1234 worker && useradd -u 77 other\n"})
    if box.do("about")["ids"] == "one":
        told = "id -u; echo $HOME; touch ~/mine && grep CapEff /proc/self/status | cut -f2"
        assert box.out(told, user="worker").split() == ["0", "/home/worker", "0" * 16], "root's files, not its powers"
        assert box.out("touch /tmp/f && chown worker /tmp/f && su worker -c 'echo $HOME; cat /tmp/f'") == "/home/worker"
    else:
        assert box.out(
            "id -un; id -u; echo $HOME; touch ~/mine /root/no 2>&1 | grep -c denied", user="worker"
        ).split() == [
            "worker",
            "1234",
            "/home/worker",
            "1",
        ]
        assert box.out("id -u; grep CapEff /proc/self/status | cut -f2", user=77).split() == ["77", "0" * 16]
        assert box.out("echo hello > /dev/stdout", user="worker") == "hello"
    assert "no user nobody-we-know" in box.run("id", user="nobody-we-know")["stderr"]
    box.call("stop", True)


def test_an_entrypoint_runs_beside_the_commands(driver: Driver) -> None:
    """Harbor's Docker gives it `sh -c "sleep infinity"` as its command, and so do we."""
    text = 'FROM debian:12\nRUN printf \'#!/bin/sh\\necho "$@" > /tmp/args\\nexec "$@"\\n\' > /go && chmod +x /go\nENTRYPOINT ["/go"]\n'
    box = driver.box(files={"Dockerfile": text})
    box.until("cat /tmp/args", "sh -c sleep infinity")
    box.until("pgrep -c sleep", "1")
    box.call("stop", True)


def test_a_stopped_sandbox_says_so(driver: Driver) -> None:
    box = driver.box()
    box.call("stop", True)
    box.call("stop", True)
    with pytest.raises(Raised, match="SandboxError: the sandbox is not running"):
        box.run("true")
