"""What the host keeps from its ordinary users stays hidden, also in a sandbox that root started."""

import os
import shutil
import struct
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.driving import Box, Driver, Raised

SECRET = "hidden-7c1d"
_ACL_FOR_ONE_USER = (
    struct.pack("<I", 2)
    + b"".join(
        struct.pack("<HHI", tag, rights, who)
        for tag, rights, who in (
            (1, 6, -1 & 0xFFFFFFFF),
            (2, 4, 12345),
            (4, 0, -1 & 0xFFFFFFFF),
            (16, 4, -1 & 0xFFFFFFFF),
        )
    )
    + struct.pack("<HHI", 32, 0, -1 & 0xFFFFFFFF)
)


@pytest.fixture
def host_folder(driver: Driver) -> Iterator[Path]:
    """A folder of the host's system with things that only root may read, made after a sandbox was started."""
    if os.geteuid() != 0:
        pytest.skip("only root can add to the host's system")
    driver.box().call("stop", True)
    folder = Path("/usr/share", f"tbench-test-{uuid.uuid4().hex}")
    folder.mkdir(mode=0o755)
    for name, mode in (("private", 0o600), ("group", 0o640), ("helper", 0o4711), ("acl", 0o600), ("public", 0o644)):
        (folder / name).write_text(SECRET)
        (folder / name).chmod(mode)
    os.setxattr(folder / "acl", "system.posix_acl_access", _ACL_FOR_ONE_USER)
    for name, mode in (("closed", 0o700), ("listed", 0o744)):
        (folder / name).mkdir()
        (folder / name / "file").write_text(SECRET)
        (folder / name).chmod(mode)
    yield folder
    shutil.rmtree(folder)


HIDDEN = ("private", "group", "helper", "acl", "closed/file", "listed/file")


def test_a_sandbox_reads_no_more_of_the_system_than_an_ordinary_user(driver: Driver, host_folder: Path) -> None:
    box = driver.box()
    assert box.out(f"cat {host_folder}/public") == SECRET
    for name in HIDDEN:
        path = f"{host_folder}/{name}"
        for way in (
            f"cat {path}",
            f"chmod 777 {host_folder}/* {path}; cat {path}",
            f"mv {path} /tmp/got; cat /tmp/got",
            f"ln {path} /usr/share/got; cat /usr/share/got",
            f"mv {host_folder} /usr/share/moved; cat /usr/share/moved/{name}",
            f"exec 3< {path}; cat <&3",
            f"echo -n >> {path}; cat {path}",
            f"tar -C / -cf - {path} | tr -d '\\0'",
        ):
            assert SECRET not in box.run(f"{way} 2>&1")["stdout"], way
        with pytest.raises(Raised):
            box.call("download_file", path, str(driver.folder / "work" / "got"))
    box.out(
        "rm -rf /usr/share/perl5 && echo new > /usr/share/perl5 && chmod 600 /usr/share/perl5 && cat /usr/share/perl5"
    )


def test_so_it_is_where_the_host_itself_is_an_overlay(driver: Driver, host_folder: Path) -> None:
    """As in a container: the kernel lays no third overlay on top."""
    if driver.user != "root":
        pytest.skip("an ordinary user's rights hide it there too")
    inner = Driver("root", before=(sys.executable, str(Path(__file__).with_name("stacked.py")), "/usr"))
    try:
        box = inner.box()
        assert box.out(f"cat {host_folder}/public; echo; ls {host_folder}").split() == [SECRET, "public"]
        assert (
            box.out(f"mkdir {host_folder}/closed && echo own > {host_folder}/closed/file; cat {host_folder}/*/*")
            == "own"
        )
        box.call("stop", True)
    finally:
        inner.close()


def test_nor_does_the_build_of_an_image(driver: Driver, host_folder: Path) -> None:
    box = driver.box(
        files={"Dockerfile": f"FROM debian:12\nRUN cat {host_folder}/private {host_folder}/closed/* > /taken || true\n"}
    )
    assert box.out("cat /taken") == ""


def test_the_kernels_files_for_root_are_hidden_too(box: Box) -> None:
    code = """
import os, stat
found = []
for top in ("/proc", "/sys"):
    for folder, folders, names in os.walk(top):
        if folder == "/proc":
            folders[:] = [n for n in folders if not n.isdigit() and n not in ("self", "thread-self", "sys")]
        for name in names:
            path = folder + "/" + name
            try:
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and not status.st_mode & stat.S_IROTH:
                    with open(path, "rb") as stream:
                        found.append((path, len(stream.read(64))))
            except OSError: pass
print(found)"""
    assert box.python(code) == "[]"
