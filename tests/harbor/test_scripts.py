"""The shell of the safe verifier, run by several shells in process namespaces like a container's."""

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from terminalbench.harbor.preparation import kill_script, parse_prepared, prepare_script

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
SHELLS = [shell for shell in ("bash", "dash", "busybox") if shutil.which(shell)]


def _namespaces() -> bool:
    if not shutil.which("unshare"):
        return False
    return subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=20, check=False).returncode == 0


needs_namespaces = pytest.mark.skipif(not _namespaces(), reason="user namespaces are not allowed here")


def shell(name: str, script: Path) -> str:
    return f"busybox sh {script}" if name == "busybox" else f"{name} {script}"


def in_container(first: str) -> str:
    """What `first` prints as process 1 of its own namespace."""
    done = subprocess.run([*UNSHARE, "sh", "-c", first], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_young_container(rest: str) -> str:
    """What `rest` prints more than half a second after a first process that has made $keeper within it.

    On a machine that is too busy for that, another container is made.
    """
    while True:
        said = in_container(
            f"""sleep 1000 & keeper=$!
            born() {{ read -r s < /proc/$1/stat; set -- ${{s##*) }}; echo ${{20}}; }}
            [ $(($(born $keeper) - $(born 1))) -lt 45 ] || {{ echo late; exit 0; }}
            sleep 0.7
            {rest}"""
        )
        if said != "late\n":
            return said


@needs_namespaces
@pytest.mark.parametrize("name", SHELLS)
def test_everything_is_killed_but_what_keeps_the_container(tmp_path: Path, name: str) -> None:
    script = tmp_path / "kill.sh"
    script.write_text(kill_script())
    respawn, going = tmp_path / "respawn.sh", tmp_path / "going"
    respawn.write_text(f'echo x >> {going}; sh "$0" & exit 0\n')  # never more than two, never the same for long
    # As in Docker: sh waits for a sleep of its own; then come the agent's leftovers, among them one called sleep.
    left = in_young_container(
        f"""setsid sh -c 'trap "" TERM INT HUP; while :; do :; done' & setsid sleep 500 &
        setsid sh {respawn} & until [ -s {going} ]; do sleep 0.02; done
        {shell(name, script)} || echo "exit $?"
        for p in /proc/[0-9]*; do
          n=${{p#/proc/}}; read -r s < $p/stat 2>/dev/null || continue
          case "$s" in *") Z "*) ;; *) [ $n = 1 ] || [ $n = $keeper ] && echo kept || echo "left $n $s";; esac
        done
        kill -0 $keeper && echo alive"""
    )
    assert left.split() == ["kept", "kept", "alive"], left


@needs_namespaces
@pytest.mark.parametrize("name", SHELLS)
def test_where_the_first_process_sleeps_itself_no_later_one_is_spared(tmp_path: Path, name: str) -> None:
    script, out = tmp_path / "kill.sh", tmp_path / "left"
    script.write_text(kill_script())
    look = f"for p in /proc/[0-9]*; do cat $p/comm; done > {out}.tmp; mv {out}.tmp {out}"
    become = "until [ $(cat /proc/1/comm) = sleep ]; do sleep 0.02; done"
    inner = f"{become}; sleep 0.7; setsid sleep 500 & {shell(name, script)}; {look}"
    # Process 1 becomes `sleep`; a child of it does the work and says when it is done.
    container = subprocess.Popen([*UNSHARE, "sh", "-c", f"sh -c '{inner}' & exec sleep 250"])
    try:
        while not out.exists():
            assert container.poll() is None
            time.sleep(0.02)
    finally:
        container.kill()
        container.wait(timeout=600)
    assert out.read_text().split().count("sleep") == 1


@pytest.mark.parametrize("name", SHELLS)
def test_prepare_renews_the_folders(tmp_path: Path, name: str) -> None:
    tests, logs = tmp_path / "t e s t s", tmp_path / "logs/verifier"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").write_text("x")
    tests.symlink_to(tmp_path / "elsewhere")
    logs.mkdir(parents=True)
    (logs / "reward.json").write_text("1")
    (logs / ".cafe").write_text("cafe\n")
    script = tmp_path / "prepare.sh"
    # Only the two folders: the search for links would look at this machine's own files.
    body, _, _ = prepare_script("cafe", str(tests), str(logs)).partition("\nset --\n")
    script.write_text(f'{body}\nmkdir -p -- "$tests"\n')
    done = subprocess.run(shell(name, script).split(), capture_output=True, text=True, timeout=20, check=True)
    prepared = parse_prepared(done.stdout, mounted=True)
    assert (prepared.mounted, prepared.logs_moved, prepared.rewards_found) == (True, False, ["reward.json"])
    assert list(logs.iterdir()) == []
    assert tests.is_dir()
    assert not tests.is_symlink()
    assert (tmp_path / "elsewhere/kept").exists(), "a link is removed, not followed"


def _said(*records: str) -> str:
    return "noise\n" + "".join(f"\0{record}\0" for record in records)


def test_log_folder_the_host_does_not_see_was_moved() -> None:
    assert parse_prepared(_said("tbench:done"), mounted=True).logs_moved
    assert not parse_prepared(_said("tbench:done"), mounted=False).logs_moved
    assert parse_prepared(_said("tbench:link /app/x"), mounted=False).problem == "it did not come to its end"
    assert (
        parse_prepared(_said("tbench:failed /app/x", "tbench:done"), mounted=False).problem == "cannot remove '/app/x'"
    )
    assert parse_prepared(_said("tbench:link /app/a b", "tbench:done"), mounted=False).links_removed == ["/app/a b"]


def test_no_name_of_a_file_says_something_in_the_scripts_place() -> None:
    found = parse_prepared(_said("tbench:link /app/a\ntbench:failed b\ntbench:mounted", "tbench:done"), mounted=True)
    assert (found.problem, found.mounted) == (None, False)
    assert found.links_removed == ["/app/a\\ntbench:failed b\\ntbench:mounted"]
    assert (
        parse_prepared(_said("tbench:link /app/a\ntbench:done"), mounted=True).problem == "it did not come to its end"
    )
