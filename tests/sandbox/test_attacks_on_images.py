"""The attacks of the other modules once more, on an image instead of the host's own system.

There each is tried as root and as an ordinary user; here as one of them, by turns. What public tasks do, and what only a
whole trial shows, is tried as both: pytest on files of the root folder, tests that run once more, tests that hang.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox import test_attacks, test_first_process, test_handover, test_harbor_run, test_overseer, test_traps
from sandbox.driving import Box, Driver
from support.registry import Images, layer_of, small_system
from terminalbench.faults import ErrorClass
from terminalbench.harbor.read.results import read_trial
from terminalbench.records.trial import Outcome

PYTHON = Path("/usr/bin/python3")
PROGRAMS = (
    *("awk", "basename", "chmod", "chown", "chroot", "cp", "cut", "date", "dd", "df", "dirname", "echo", "env", "expr"),
    *(
        "find",
        "grep",
        "head",
        "hostname",
        "id",
        "kill",
        "ln",
        "mkfifo",
        "mknod",
        "mktemp",
        "mount",
        "mv",
        "nohup",
        "ps",
    ),
    *("pwd", "readlink", "rm", "rmdir", "sed", "seq", "setsid", "sleep", "sort", "stat", "su", "tail", "tee", "test"),
    *(
        "timeout",
        "touch",
        "tr",
        "true",
        "truncate",
        "uname",
        "wc",
        "whoami",
        "xargs",
        "yes",
        "unshare",
        "nsenter",
        "tar",
    ),
)
ATTACKS: list[Callable[[Box], None]] = [
    test_attacks.test_no_secret_of_the_host_in_any_environment,
    test_attacks.test_only_its_own_processes_are_there,
    test_attacks.test_host_processes_cannot_be_signalled,
    test_attacks.test_rights_are_dockers_at_most,
    test_attacks.test_no_other_namespace_can_be_entered_or_made,
    test_attacks.test_devices_cannot_be_made_or_changed,
    test_attacks.test_the_kernel_cannot_be_configured,
    test_attacks.test_a_program_named_after_its_interpreter_opens_no_door,
    test_attacks.test_the_helpers_programs_are_read_only_to_it,
    test_attacks.test_core_dumps_do_not_reach_the_hosts_handler,
    test_attacks.test_a_traced_process_is_never_one_with_more_rights,
    test_first_process.test_no_process_inside_can_look_into_the_first,
    test_first_process.test_the_first_process_tells_nothing_of_the_host,
    test_handover.test_nothing_of_the_agent_runs_whatever_it_was,
    test_handover.test_an_honest_agent_is_not_accused,
    test_handover.test_the_verifiers_home_and_variables_are_its_own,
    test_handover.test_the_tests_folders_are_new_whatever_the_agent_made_of_them,
    test_handover.test_the_reward_found_before_the_tests_is_told,
    test_handover.test_tests_that_run_again_find_the_work_as_it_was_handed_to_the_first,
    test_handover.test_a_program_run_by_the_tests_reaches_its_own_files_and_no_others,
    test_overseer.test_a_program_of_the_work_reads_what_the_tests_hand_to_it,
    test_overseer.test_what_outlives_the_tests_is_ended_and_has_not_written_the_reward,
    test_overseer.test_code_in_the_tests_own_process_that_outlives_them_is_told,
    test_overseer.test_a_reward_that_changes_when_the_tests_have_ended_is_told,
    test_overseer.test_a_program_by_run_program_changes_no_mode_outside_its_work,
    test_traps.test_a_hidden_test_runner_is_removed_before_the_tests,
    test_attacks.test_dangerous_system_calls_are_refused,
]
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("ordinary",)
DOCKERFILE = "FROM python:attacked\nWORKDIR /app\n"
PYTEST = """#!/bin/bash
python3 -m pytest -p no:cacheprovider /tests/test_outputs.py -rA
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
"""
WAITS = "#!/bin/bash\nwhile [ -e /app/lock ]; do sleep 0.1; done\necho 0 > /logs/verifier/reward.txt\n"
OUTPUTS = """import sys
sys.path.insert(0, "/app")
from work import answer

def test_answer():
    assert answer() == 42
"""
FORGED = """import pytest

@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    outcome.get_result().outcome = "passed"
"""
WRITE = "cat > {} <<'END'\n{}\nEND\n"
WRONG = WRITE.format("/app/work.py", "def answer(): return 41")
TRIALS = {
    "honest": (WRITE.format("/app/work.py", "def answer(): return 42"), Outcome.PASSED, []),
    "loose": (
        WRONG
        + WRITE.format("/conftest.py", FORGED)
        + WRITE.format("/pytest.ini", "[pytest]\naddopts = --collect-only"),
        Outcome.FAILED,
        ["tampering:system", "tampering:test_hooks"],
    ),
    "again": (
        WRITE.format("/app/work.py", "import os\nos._exit(0)"),
        Outcome.PASSED,
        ["tampering:passes_anything"],
    ),
    "hanging": ("touch /app/lock", Outcome.FAILED, []),
}
"""What an agent does, and what becomes of its trial."""
PYTEST_FILES = (
    *(f"{name}/**/*.py" for name in ("pytest", "_pytest", "pluggy", "iniconfig", "packaging")),
    *("py.py", "pluggy-*.dist-info/METADATA", "pygments/*.py", "pygments/[!l]*/*.py"),
    *(f"pygments/lexers/{name}.py" for name in ("__init__", "_mapping", "diff", "python")),
)
_LINKED = ("bin/", "sbin/", "lib/", "lib64/")
_layouts: dict[str, str] = {}


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image with Python and everyday programs of this machine."""
    if not PYTHON.exists():
        pytest.skip("this machine has no Python of its own")
    programs = [found for name in PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin"))]
    real = [path for path in programs if Path(path).resolve().read_bytes()[:4] == b"\x7fELF"]
    command = [PYTHON, "-I", "-c", "import sys, sysconfig; print(sysconfig.get_path('stdlib'), sys.version_info[1])"]
    stdlib, minor = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout.split()
    files = {**small_system(*real, str(PYTHON.resolve()), *_modules(stdlib))}
    files["usr/bin/python3"] = files.get("usr/bin/python3") or f"-> python3.{minor}"
    for path in Path(stdlib).rglob("*.py"):
        if not {"test", "tests", "idlelib", "tkinter", "lib2to3", "dist-packages", "ensurepip"} & set(path.parts):
            files[str(path).removeprefix("/")] = path.read_bytes()
    files |= {f"{stdlib.removeprefix('/')}/{name}": data for name, data in _pytest_files()}
    merged = {name: text for name, text in files.items() if not name.startswith(_LINKED)}
    merged |= {f"usr/{name}": text for name, text in files.items() if name.startswith(_LINKED)}
    merged |= {name.strip("/"): f"-> usr/{name.strip('/')}" for name in _LINKED}
    merged["etc/passwd"] = f"{merged['etc/passwd']}nobody:x:65534:65534::/nonexistent:/bin/sh\n"
    images = Images()
    paths = "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    images.image("python:attacked", [layer_of({**merged, "root": None, "app": None})], Env=[paths], WorkingDir="/app")
    return images.write_layout(tmp_path_factory.mktemp("attacked") / "layout", "python:attacked")


def _modules(stdlib: str) -> list[str]:
    return [str(path) for path in Path(stdlib, "lib-dynload").glob("*.so")]


def _pytest_files() -> list[tuple[str, bytes]]:
    """The sources of this pytest and of what it needs, by their place below a folder of modules."""
    folder = Path(pytest.__file__).parents[1]
    files = [path for pattern in PYTEST_FILES for path in folder.glob(pattern)]
    return [(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files]


@pytest.fixture
def loaded(driver: Driver, layout: Path) -> dict[str, str]:
    """What a driver's store has of that image: a digest by its name."""
    for path in (layout, *layout.parents[:2]):
        path.chmod(0o755)
    if driver.user not in _layouts:
        own = driver.folder / "work" / "attacked"
        shutil.copytree(layout, own, dirs_exist_ok=True)
        subprocess.run(["chown", "-R", f"{driver.uid}:{driver.gid}", str(own)], check=True, timeout=600)
        _layouts[driver.user] = driver("load_image", str(own), "python:attacked")
    return {"python:attacked": _layouts[driver.user]}


@pytest.fixture
def on_image(driver: Driver, loaded: dict[str, str]) -> Box:
    """A started sandbox on that image."""
    return driver.box(files={"Dockerfile": DOCKERFILE}, kwargs={"images": {}, "pins": loaded})


@pytest.mark.parametrize(
    ("attack", "driver"),
    [(attack, USERS[number % len(USERS)]) for number, attack in enumerate(ATTACKS)],
    indirect=["driver"],
    ids=lambda one: getattr(one, "__name__", one).removeprefix("test_"),
)
def test_an_attack_on_an_image_gains_nothing(on_image: Box, attack: Callable[[Box], None]) -> None:
    assert on_image.run("git --version; test -e /etc/debian_version")["return_code"] != 0, "it is an image"
    attack(on_image)


@pytest.mark.long  # a whole run
@pytest.mark.any_user
def test_what_public_tasks_do_is_no_way_to_pass_unflagged(driver: Driver, work: Path, loaded: dict[str, str]) -> None:
    tasks = [test_harbor_run.make_task(work / "tasks", name, solve=script) for name, (script, *_) in TRIALS.items()]
    for task in tasks:
        (task / "environment/Dockerfile").write_text(DOCKERFILE)
        (task / "tests/test.sh").write_text(WAITS if task.name == "hanging" else PYTEST)
        (task / "tests/test_outputs.py").write_text(OUTPUTS)
        told = (task / "task.toml").read_text().replace("host_base = true", "")
        (task / "task.toml").write_text(told.replace("60.0", "15.0", 1) if task.name == "hanging" else told)
    local = {"import_path": "terminalbench.sandbox.environment:LocalSandbox", "kwargs": {"images": {}, "pins": loaded}}
    verifier = {"import_path": "terminalbench.harbor.verifier:SafeVerifier"}
    agents = [{"name": "oracle"}]
    config = test_harbor_run.job(driver, work, tasks, agents=agents, verifier=verifier, environment=local)
    test_harbor_run.run(driver, config)
    printed = [path.read_text() for path in (work / "jobs" / "job").glob("*/verifier/test-stdout.txt")]
    read = [read_trial(path.parent).trial for path in (work / "jobs" / "job").glob("*/result.json")]
    found = {trial.task: trial for trial in read if trial is not None}
    ended = {name: (trial.outcome, trial.suspect) for name, trial in found.items()}
    assert ended == {name: tuple(expected) for name, (_, *expected) in TRIALS.items()}, "\n".join(printed)
    assert found["hanging"].error_class is ErrorClass.TESTS_HUNG, found["hanging"]
