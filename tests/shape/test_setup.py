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
