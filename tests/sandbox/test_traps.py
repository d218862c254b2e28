"""What in the work would run as code of the tests: found, told, and removed where no honest work has it."""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from sandbox.driving import Box, Driver
from sandbox.test_first_process import put
from terminalbench.sandbox.engine import traps, views
from terminalbench.sandbox.system import led_to, spoken_of, system_folders

pytestmark = pytest.mark.any_user

BASE, MORE = "base", "more"


def look(
    tmp_path: Path,
    files: dict[str, str],
    task: str = "",
    *,
    executable: bool = True,
    led: tuple[str, ...] = (),
    modules: Collection[str] = (),
    own: Mapping[str, str] | None = None,
) -> list[tuple[str, str, bool]]:
    """The traps in a work of these files (`->`: a link); those in BASE are the image's."""
    run, base = tmp_path / "run", tmp_path / "base"
    root = Path(views.upper(str(run), views.VERIFIER, 0))
    for folder in (root, base):
        folder.mkdir(parents=True)
    for name, text in files.items():
        path = base / name.removeprefix("base:") if name.startswith("base:") else root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("->"):
            path.symlink_to(text[2:])
            continue
        path.write_text(text)
        path.chmod(0o755 if executable else 0o644)
    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "instruction.md").write_text(task)
    spoken = spoken_of(tmp_path / "task")
    starts = ["/app", *spoken.folders, *led]
    mounts = [{"lower": [str(base)], "at": ""}]
    found = traps.remove_and_list(str(run), mounts, starts, spoken.traps, led, modules, own or {})
    for one in found:
        assert (root / one["path"][1:]).exists() != one["removed"]
    return [(one["kind"], one["path"], one["removed"]) for one in found]


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"app/pytest.py": ""}, [("shadowed_module", "/app/pytest.py", True)]),
        ({"app/_pytest/__init__.py": ""}, [("shadowed_module", "/app/_pytest", True)]),
        ({"app/json.py": "", "app/re/__init__.py": ""}, [
            ("shadowed_module", "/app/json.py", False), ("shadowed_module", "/app/re", False)]),
        ({"app/random.cpython-312-x86_64-linux-gnu.so": ""}, [
            ("shadowed_module", "/app/random.cpython-312-x86_64-linux-gnu.so", False)]),
        ({"app/sitecustomize.py": ""}, [("shadowed_module", "/app/sitecustomize.py", True)]),
        ({"app/src/x.py": "import unittest\nunittest.TestCase.run = lambda *_: None\n"}, [
            ("test_hooks", "/app/src/x.py", False)]),
        ({"app/x.py": "setattr(unittest.case.TestCase, 'run', f)"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/conftest.py": "def pytest_runtest_makereport(item, call):\n  pass\n"}, [
            ("test_hooks", "/app/conftest.py", False)]),
        ({"app/lib.js": "globalThis.expect = () => ok"}, [("test_hooks", "/app/lib.js", False)]),
        ({"base:app/x.py": "x = 1", "app/x.py": "import _pytest.runner"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/x.py": "->.x/data", "app/.x/data": "unittest.TestCase.run = f"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/x.py": "#" * 3_000_000 + "\nunittest.TestCase.run = f"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/x.py": "cases = sys.modules['test_outputs'].CASES"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/x.py": "exec(base64.b64decode('aQ=='))"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/x.py": "class E:\n  def __eq__(self, o):\n    return True\n"}, [("test_hooks", "/app/x.py", False)]),
        ({"app/env.sh": "grep() { true; }"}, [("test_hooks", "/app/env.sh", False)]),
        ({"app/env.sh": "[ () { return 0; }"}, [("test_hooks", "/app/env.sh", False)]),
        ({"root/.bashrc": "alias pytest=true"}, [("test_hooks", "/root/.bashrc", False)]),
        ({"base:usr/lib/python3/dist-packages/yaml/__init__.py": "", "app/yaml.py": ""}, [
            ("shadowed_module", "/app/yaml.py", False)]),
        ({"base:usr/share/perl/5.36/strict.pm": "", "app/strict.pm": ""}, [("shadowed_module", "/app/strict.pm", False)]),
        ({"base:app/x.py": "", "app/x.cpython-312-x86_64-linux-gnu.so": "", "app/x.py": ""}, [
            ("shadowed_module", "/app/x.cpython-312-x86_64-linux-gnu.so", False)]),
        ({"base:app/Makefile": "", "app/GNUmakefile": ""}, [("shadowed_module", "/app/GNUmakefile", False)]),
        ({"app/pytest.ini": "[pytest]\naddopts = -q --co\n"}, [("test_settings", "/app/pytest.ini", False)]),
        ({"app/pyproject.toml": 'addopts = [\n  "-q",\n  "--setup-plan",\n]'}, [("test_settings", "/app/pyproject.toml", False)]),
        ({"root/.sqliterc": ".print 42", "app/.npmrc": "script-shell=/app/x\n", "app/.Rprofile": "q()"}, [
            ("test_settings", "/root/.sqliterc", False), ("test_settings", "/app/.Rprofile", False), ("test_settings", "/app/.npmrc", False)]),
        ({"app/x.py": "open('/logs/verifier/reward.txt', 'w')"}, [("names_reward", "/app/x.py", False)]),
        ({"app/.git/HEAD": "", "app/.git/config": "[core]\n\tfsmonitor = echo 1 > /x\n"}, [
            ("git_config", "/app/.git/config", False)]),
        ({"app/.git/HEAD": "", "app/.git/config": '[filter "x"] clean = evil\n'}, [("git_config", "/app/.git/config", False)]),
        ({"app/.git/HEAD": "", "app/.git/config": '[alias]\nst = "!evil"\n'}, [("git_config", "/app/.git/config", False)]),
        ({"base:app/.git/HEAD": "", "app/.git/hooks/post-checkout": ""}, [
            ("git_config", "/app/.git/hooks/post-checkout", False)]),
    ],
)  # fmt: skip
def test_a_trap_is_found(tmp_path: Path, files: dict[str, str], found: list[tuple[str, str, bool]]) -> None:
    assert look(tmp_path, files) == found


@pytest.mark.parametrize(
    ("files", "task"),
    [
        ({"app/main.py": "import json, unittest\nclass T(unittest.TestCase):\n  def run_it(self): pass\n"}, ""),
        ({"app/src/json.py": "", "app/pytest/notes.txt": "", "app/json.md": ""}, ""),
        ({"app/queue.py": ""}, "Write the queue in /app/queue.py."),
        ({"app/coverage/index.html": "", "app/test_x.py": "import pytest\n@pytest.fixture\ndef x(): pass\n"}, ""),
        ({"base:app/json.py": "1", "app/json.py": "2"}, ""),
        ({"base:app/x.py": "import _pytest", "app/x.py": "import _pytest\nx = 1"}, ""),
        ({"app/node_modules/x/x.js": "globalThis.test = 1", "app/v/site-packages/_pytest/x.py": "import _pytest.x"}, ""),
        ({"app/pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-ra --cov=x -p no:cacheprovider"\n'}, ""),
        ({"base:app/pytest.ini": "addopts = --co", "app/pytest.ini": "addopts = --co\n"}, ""),
        ({"app/x.py": "eval(expression.decode('utf-8'))\nclass P:\n  def __eq__(self, o):\n    return self.x == o.x\n"}, ""),
        ({"app/run.sh": "pytest_all() { pytest; }\nalias ll='ls -l'\n", "app/Makefile": "", "app/yaml.py": ""}, ""),
        ({"app/x.py": "", "app/x.json": "", "app/bin/grep": "", "app/__pycache__/y.cpython-312.pyc": ""}, ""),
        ({"app/.git/HEAD": "", "app/.git/config": "[core]\n\tfsmonitor = true\n[user]\nname = x\n[alias]\nst = status\n"}, ""),
        ({"app/.git/HEAD": "", "app/.git/config": '[filter "lfs"]\n\tclean = git-lfs clean -- %f\n'}, ""),
        ({"app/.git/HEAD": "", "app/.git/hooks/pre-commit": "", "app/.git/config": "[core]\nhooksPath = h\n"}, "Add a git hook."),
        ({"app/.git/HEAD": "", "app/.git/hooks/pre-commit.sample": "", "app/hooks/x": ""}, ""),
        ({"app/save.sh": "cp x /logs/verifier/x"}, "Write your log to /logs/verifier/x."),
        ({"root/.sqliterc": ".mode box", "app/.npmrc": "registry=x\n"}, "Set it in .sqliterc."),
    ],
)  # fmt: skip
def test_honest_work_has_none(tmp_path: Path, files: dict[str, str], task: str) -> None:
    assert look(tmp_path, files, task) == []


def test_a_file_of_the_profile_is_no_work_while_it_is_as_it_was_copied_in(tmp_path: Path) -> None:
    text, places = "cp x /logs/verifier/x", ("opt/agent/a.sh", "opt/agent/b.sh", "opt/agent/c.sh", "app/a.sh")
    own = {f"/{place}": hashlib.sha256(text.encode()).hexdigest() for place in places if "c.sh" not in place}
    found = look(tmp_path, dict.fromkeys(places, text) | {"opt/agent/b.sh": f"{text} y"}, own=own)
    flagged = ("/app/a.sh", "/opt/agent/b.sh", "/opt/agent/c.sh")
    assert sorted(found) == [("names_reward", place, False) for place in flagged], (
        "where tests start, changed, another's"
    )


def test_a_folder_that_the_tests_go_to_is_looked_at_too(tmp_path: Path) -> None:
    assert look(tmp_path, {"srv/x/json.py": ""}, "cd /srv/x && make") == [("shadowed_module", "/srv/x/json.py", False)]


@pytest.mark.parametrize(
    ("tests", "instruction", "found"),
    [
        ("sys.path.insert(0, '/app')", "", True),
        ("", "", False),
        ("sys.path.insert(0, '/app')", "Mend helpers.py.", False),
    ],
)
def test_work_that_hides_a_module_of_the_tests_is_found(
    tmp_path: Path, tests: str, instruction: str, found: bool
) -> None:
    """Where the tests look for theirs behind the work, and the task does not ask for a module of that name."""
    (tmp_path / "t" / "tests").mkdir(parents=True)
    (tmp_path / "t" / "instruction.md").write_text(instruction)
    (tmp_path / "t" / "tests" / "helpers.py").write_text("")
    (tmp_path / "t" / "tests" / "test_outputs.py").write_text(f"{tests}\nfrom helpers import check\n")
    told = look(tmp_path, {"app/helpers.py": ""}, modules=spoken_of(tmp_path / "t").modules)
    assert told == ([("shadowed_module", "/app/helpers.py", False)] if found else [])


def test_very_many_and_very_large_files_are_no_obstacle(tmp_path: Path) -> None:
    many = {f"app/{number}.py": "import _pytest.x" for number in range(200)}
    assert len(look(tmp_path, {**many, "app/large.py": "x" * 10_000_000})) == 50


def test_a_hidden_test_runner_is_removed_before_the_tests(box: Box) -> None:
    """`python3 -m pytest` in the work is the image's own."""
    box.out("mkdir -p /app")
    put(box, "/app/pytest.py", "print('all passed')")
    put(box, "/app/token.py", "x = 1")
    handed = json.loads(box.do("hand"))
    assert handed["traps"] == {"shadowed_module": ["/app/pytest.py", "/app/token.py"]}
    assert "all passed" not in box.run("cd /app && python3 -B -m pytest --version")["stdout"]
    assert box.out("ls /app") == "token.py"


def test_so_it_is_on_an_image_of_its_own(driver: Driver) -> None:
    image = (
        "FROM debian:12\nWORKDIR /app\nRUN mkdir -p /app && echo 'x = 1' > /app/json.py && echo y > /app/unittest.py\n"
    )
    box = driver.box(files={"Dockerfile": image})
    put(box, "/app/pluggy.py", "x")
    put(box, "/app/json.py", "x = 2")
    assert json.loads(box.do("hand"))["traps"] == {"shadowed_module": ["/app/pluggy.py"]}
    assert box.out("ls /app").split() == ["json.py", "unittest.py"]


def test_compiled_python_is_no_work_where_its_source_is(tmp_path: Path) -> None:
    """Bytecode that Python does not compare with its source would run unseen; the tests compile it anew."""
    files = {"app/x.py": "", "app/__pycache__/x.cpython-312.pyc": "evil", "app/__pycache__/gone.cpython-312.pyc": "1"}
    assert look(tmp_path, files) == []
    left = sorted(path.name for path in tmp_path.rglob("*.pyc"))
    assert left == ["gone.cpython-312.pyc"]
    (tmp_path / "more").mkdir()
    assert look(tmp_path / "more", files, "Compile it: /app/__pycache__/x.cpython-312.pyc") == []
    assert len(list((tmp_path / "more").rglob("*.pyc"))) == 2


def test_what_comes_before_the_images_own_where_its_variables_lead_into_the_work(tmp_path: Path) -> None:
    image = {
        "base:usr/bin/grep": "1",
        "base:usr/lib/libz.so.1": "1",
        "base:app/v/bin/pytest": "1",
        "base:app/v/pyvenv.cfg": "",
    }
    site = "app/v/lib/python3.12/site-packages"
    work = {
        "app/bin/grep": "",
        "app/bin/mine": "",
        "app/lib/libz.so.1": "",
        "app/lib/libmine.so": "",
        "app/v/bin/pytest": "2",
    }
    work |= {
        f"{site}/_pytest/runner.py": "",
        f"{site}/x.pth": "import x",
        f"{site}/mine/__init__.py": "",
        "app/src/re.py": "",
    }
    found = look(tmp_path, image | work, led=("/app/bin", "/app/lib", "/app/v/bin", "/app/src"))
    programs = ["/app/bin/grep", "/app/lib/libz.so.1", "/app/v/bin/pytest", f"/{site}/_pytest", f"/{site}/x.pth"]
    assert sorted(path for kind, path, _ in found if kind == "shadowed_program") == sorted(programs)
    assert [path for kind, path, _ in found if kind == "shadowed_module"] == ["/app/src/re.py"]


def test_where_the_variables_of_an_image_lead() -> None:
    env = {
        "PATH": "/app/v/bin:/usr/bin:/opt/tool/bin",
        "PYTHONPATH": "/app/src",
        "BASH_ENV": "/root/.env",
        "NODE_OPTIONS": "-r /opt/x.js",
    }
    assert led_to(env, "/app") == ["app/src", "app/v/bin"]
    assert {"opt/tool", "root/.env", "opt/x.js"} <= set(system_folders(env, "/app"))
    assert not {"root", "app/v", "app/src"} & set(system_folders({**env, "ZDOTDIR": "/root"}, "/app"))
