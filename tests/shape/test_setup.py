"""What the set-up takes from elsewhere is what was locked, and from a folder of this user."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with what finds a uv, and a package index with a forged one."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPO / "scripts" / "wheels.sh", tmp_path / "scripts")
    shutil.copy(REPO / "requirements-uv.lock", tmp_path)
    version = (REPO / "requirements-uv.lock").read_text().split()[0].removeprefix("uv==")
    wheel = tmp_path / "index" / f"uv-{version}-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as made:
        about = f"uv-{version}.dist-info"
        program = zipfile.ZipInfo(f"uv-{version}.data/scripts/uv")
        program.external_attr = 0o100755 << 16
        made.writestr(program, "#!python\nprint('forged')\n")
        made.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: uv\nVersion: {version}\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")
    return tmp_path


def find_uv(checkout: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "XDG_CACHE_HOME": str(checkout / "cache"), "PIP_NO_INDEX": "1"}
    env |= {"PIP_FIND_LINKS": str(checkout / "index"), "PIP_CONFIG_FILE": os.devnull}
    # No uv on the PATH, and no venv module: making a venv would be most of the test.
    script = f"""
        command() {{ [ "$2" = flock ]; }}
        python3() {{ [ "$2" != venv ] && {sys.executable} "$@"; }}
        . scripts/wheels.sh; find_uv"""
    return subprocess.run(
        ["sh", "-c", script], cwd=checkout, env=env, capture_output=True, text=True, timeout=600, check=False
    )


def lock_the_forged_one(checkout: Path) -> Path:
    """Let the wheel of the index be the one that is wanted; the folder that it is installed into."""
    (wheel,) = (checkout / "index").iterdir()
    version, digest = wheel.name.split("-")[1], hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = checkout / "requirements-uv.lock"
    lock.write_text(f"uv=={version} --hash=sha256:{digest}\n")
    checksum = subprocess.check_output(["cksum"], input=lock.read_bytes()).split()[0].decode()
    return checkout / "cache" / "terminalbench" / f"uv-{checksum}"


def test_a_wheel_is_there_whole_or_not_at_all(checkout: Path) -> None:
    """Also where an installation was cut off before, and where two install it at once."""
    home = lock_the_forged_one(checkout)
    (home / "uv").mkdir(parents=True, mode=0o700)  # half of it
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(find_uv, [checkout, checkout]))
    assert [(one.returncode, one.stdout.strip()) for one in found] == [(0, str(home / "bin" / "uv"))] * 2, found
    assert "forged" in (home / "bin" / "uv").read_text()
    left = {path.name for path in home.parent.iterdir()} - {".lock"}
    assert left == {home.name}, "nothing of the making is left"


def test_a_forged_uv_is_not_installed(checkout: Path) -> None:
    found = find_uv(checkout)
    assert found.returncode != 0
    assert found.stdout == ""
    assert "do not match the hashes" in found.stderr.lower()
    assert not list(checkout.glob("cache/**/bin/uv"))


def test_a_folder_that_another_has_laid_ready_is_not_used(checkout: Path) -> None:
    checksum = subprocess.check_output(["cksum"], input=(checkout / "requirements-uv.lock").read_bytes()).split()[0]
    planted = checkout / "planted" / "bin"
    planted.mkdir(parents=True)
    (planted / "uv").write_text("#!/bin/sh\necho forged\n")
    (planted / "uv").chmod(0o755)
    (checkout / "cache" / "terminalbench").mkdir(parents=True)
    (checkout / "cache" / "terminalbench" / f"uv-{checksum.decode()}").symlink_to(planted.parent)
    found = find_uv(checkout)
    assert (found.returncode, found.stdout) == (1, "")
    assert "is not a folder of this user" in found.stderr


class FakeCheckout:
    """A checkout whose uv and Python only note what they are asked to install."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.venv, self.log = folder, folder / ".venv", folder / "installed"
        (folder / "src/terminalbench").mkdir(parents=True)
        (folder / "scripts").mkdir()
        (folder / "programs").mkdir()
        locks = ("requirements.lock", "requirements-dev.lock", "requirements-uv.lock")
        for name in (*locks, "pyproject.toml", "scripts/setup.sh", "scripts/wheels.sh", "src/terminalbench/version.py"):
            shutil.copy(REPO / name, folder / name)
        self.write("python", "exit 0")
        self.write(
            "uv",
            'for last; do :; done; case "$1" in\n'
            'venv) mkdir -p "$last/bin"; cp programs/python "$last/bin/python" ;;\n'
            'pip) [ ! -e fails ] || exit 1; grep "^[a-z]" "$last" | sed "s/==.*//" | tr "\\n" " " >>installed; echo >>installed ;;\n'
            "esac",
        )

    def write(self, name: str, script: str) -> None:
        (self.folder / "programs" / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / "programs" / name).chmod(0o755)

    def setup(self, kind: str) -> int:
        programs = self.folder / "programs"
        env = {"PATH": f"{programs}:/usr/bin:/bin", "PYTHON": str(programs / "python"), "HOME": str(self.folder)}
        command = ["sh", "scripts/setup.sh", ".venv", kind]
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, timeout=600, check=False
        ).returncode

    def installs(self) -> list[set[str]]:
        """The names of each installation."""
        return [set(line.split()) for line in self.log.read_text().splitlines()] if self.log.exists() else []


def test_a_run_is_set_up_with_what_it_needs_and_the_checks_add_theirs(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(checkout.setup, ["run", "run"])) == [0, 0]
    (run,) = checkout.installs()
    assert {"harbor", "hatchling", "editables"} <= run
    assert not {"pytest", "ray", "playwright", "pyarrow", "ruff"} & run
    (checkout.venv / "mine").touch()
    assert checkout.setup("all") == 0
    assert (checkout.venv / "mine").exists(), "the environment is added to, not made anew"
    everything = checkout.installs()[1]
    assert run | {"pytest", "ray", "playwright"} <= everything
    assert [checkout.setup(kind) for kind in ("run", "all", "run")] == [0, 0, 0]
    assert len(checkout.installs()) == 2, "what is there is enough"


def test_a_set_up_that_was_cut_off_begins_again(tmp_path: Path) -> None:
    checkout = FakeCheckout(tmp_path)
    assert checkout.setup("run") == 0
    checkout.write("python", "exit 1")  # neither uv nor pip can install
    shutil.copy(checkout.folder / "programs/python", checkout.venv / "bin/python")
    (checkout.folder / "fails").touch()
    assert checkout.setup("all") != 0
    assert not (checkout.venv / ".ready").exists()
    (checkout.folder / "fails").unlink()
    checkout.write("python", "exit 0")
    assert checkout.setup("all") == 0
    assert "pytest" in checkout.installs()[-1]
    assert checkout.setup("neither") == 2


def test_a_wheel_works_without_the_checkout(tmp_path: Path) -> None:
    """Every file of the package is in it; where there is no checkout, the demo is made, run, compared and shown."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "dist")]
    subprocess.run(build, cwd=REPO, check=True, capture_output=True, timeout=600)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    listed = subprocess.check_output(["git", "ls-files", "src/terminalbench"], cwd=REPO, text=True).splitlines()
    with zipfile.ZipFile(wheel) as held:
        assert {name.removeprefix("src/") for name in listed} <= set(held.namelist())
        held.extractall(tmp_path / "site")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    batch = "lab/results/demo/0"
    for words in (
        ["init", "--demo", "lab"],
        ["validate", "lab/experiments/demo.toml"],
        ["run", "lab/experiments/demo.toml", "--tasks", "archive-script-bug", "--attempts", "1"],
        ["compare", batch],
        ["report", batch],
        ["view", "lab/results", "--export", "site.zip"],
    ):
        command = [sys.executable, "-m", "terminalbench.cli.main", *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / batch / "analytics" / "report.html").is_file()
    assert (tmp_path / "site.zip").is_file()
    where = [sys.executable, "-c", "import terminalbench; print(terminalbench.__file__)"]
    assert str(tmp_path / "site") in subprocess.check_output(where, cwd=tmp_path, env=env, text=True)
