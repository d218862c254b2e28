"""Files going into and coming out of a sandbox whose owner does not play along."""

import os
import stat
from pathlib import Path

import pytest

from sandbox.driving import Box, Driver, Raised

pytestmark = pytest.mark.any_user


@pytest.fixture
def sent(work: Path) -> Path:
    folder = work / "sent"
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "test.sh").write_text("#!/bin/sh\necho hi\n")
    (folder / "test.sh").chmod(0o755)
    (folder / "sub" / "näme with space").write_bytes(bytes(range(256)) * 1000)
    (folder / "link").symlink_to("sub/empty")
    (folder / "twin").hardlink_to(folder / "test.sh")
    return folder


def tree(folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = str(path.readlink())
        else:
            found[name] = (stat.S_IMODE(path.stat().st_mode), path.read_bytes() if path.is_file() else None)
    return found


@pytest.mark.both_users
def test_a_folder_survives_the_round_trip(box: Box, sent: Path, work: Path) -> None:
    box.call("upload_dir", str(sent), "/tests")
    assert box.out("/tests/test.sh; stat -c '%u:%g' /tests/test.sh /tests/sub").split() == ["hi", "0:0", "0:0"]
    back = Path(box.driver.folder / "work" / f"back-{box.number}")
    box.call("download_dir", "/tests", str(back))
    assert tree(back) == tree(sent)


def test_files_go_where_docker_would_put_them(box: Box, sent: Path) -> None:
    box.out("mkdir /there; echo old > /file")
    box.call("upload_file", str(sent / "test.sh"), "/new/deep/name.sh")
    box.call("upload_file", str(sent / "test.sh"), "/there")
    box.call("upload_file", str(sent / "test.sh"), "/file")
    assert box.out("ls /new/deep /there; cat /file").split("\n") == [
        *("/new/deep:", "name.sh", "", "/there:", "test.sh", "#!/bin/sh", "echo hi")
    ]


def test_a_planted_link_catches_an_upload_inside(box: Box, sent: Path) -> None:
    """The host's side of the path must not be touched; inside, it is the agent's own loss."""
    before = {path.name for path in Path("/etc").iterdir()}
    box.out("ln -s /etc /tests; ln -s /etc/passwd /solution")
    box.call("upload_dir", str(sent), "/tests")
    assert {path.name for path in Path("/etc").iterdir()} == before
    assert box.out("ls -d /etc/test.sh") == "/etc/test.sh"
    with pytest.raises(Raised):
        box.call("upload_dir", str(sent), "/solution")


def test_a_planted_file_link_is_replaced_not_followed(box: Box, sent: Path) -> None:
    box.out("mkdir /tests; echo kept > /victim; ln -s /victim /tests/test.sh; ln /victim /tests/twin")
    box.call("upload_dir", str(sent), "/tests")
    assert box.out("cat /victim; readlink /tests/test.sh || echo plain") == "kept\nplain"


@pytest.mark.both_users
def test_a_link_cannot_bring_the_hosts_files_out_or_lead_a_reader_there(box: Box, work: Path) -> None:
    secret = work / "secret"
    secret.write_text("host secret")
    ways = [str(secret), "/etc/passwd", "../../../../../../../../etc/passwd", "/proc/self/environ", "..", "/"]
    for number, way in enumerate(ways):
        box.out(f"ln -s '{way}' /logs/agent/link{number}")
    box.out(
        "ln -s a /logs/agent/loop; ln -s loop /logs/agent/a; mkdir -p /logs/agent/x/y; ln -s ../.. /logs/agent/x/y/up"
    )
    box.out(
        "ln -s x/y/up/../../etc/passwd /logs/agent/climb; ln -s x/y /logs/agent/fine; ln -s ../../fine /logs/agent/x/y/ok"
    )
    back = box.driver.folder / "work" / f"logs-{box.number}"
    box.call("download_dir", "/logs/agent", str(back))
    links = sorted(path.name for path in back.rglob("*") if path.is_symlink())
    assert links == ["fine", "ok", "up"]
    for path in back.rglob("*"):
        assert path.resolve().is_relative_to(back.resolve()), path
    with pytest.raises(Raised):
        box.call("download_file", str(secret), str(back / "out"))
    assert not (back / "out").exists()


def test_special_files_neither_come_out_nor_hang(box: Box) -> None:
    box.out(
        "mkfifo /logs/agent/pipe; cp /usr/bin/id /logs/agent/id; chmod 6755 /logs/agent/id; echo x > /logs/agent/plain"
    )
    box.out(
        "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/logs/agent/sock')\"; chmod 000 /logs/agent/plain"
    )
    back = box.driver.folder / "work" / f"special-{box.number}"
    box.call("download_dir", "/logs/agent", str(back))
    assert sorted(path.name for path in back.iterdir()) == ["id", "plain"]
    assert stat.S_IMODE((back / "id").stat().st_mode) & 0o7000 == 0
    assert (back / "plain").read_text() == "x\n"
    for name in ("/logs/agent/pipe", "/logs/agent", "/nowhere", "/dev/zero"):
        with pytest.raises(Raised):
            box.call("download_file", name, str(back / "out"))


def test_a_huge_hole_does_not_fill_the_host_nor_hide_the_rest(box: Box) -> None:
    box.out("truncate -s 3T /logs/agent/hole; echo said > /logs/agent/trajectory.json; echo first > /logs/agent/a")
    back = box.driver.folder / "work" / f"hole-{box.number}"
    box.call("download_dir", "/logs/agent", str(back))
    assert sorted(path.name for path in back.iterdir()) == ["a", "trajectory.json"]
    with pytest.raises(Raised, match="the limit is"):
        box.call("download_file", "/logs/agent/hole", str(back / "hole"))
    assert sum(path.stat().st_blocks for path in back.rglob("*")) < 1000


def test_folders_without_end_do_not_hide_the_rest(box: Box) -> None:
    code = """
import os
for top, name, depth in (("/logs/agent/deep", "d", 1500), ("/logs/agent/wide", "w" * 200, 40)):
    os.makedirs(top)
    os.chdir(top)
    for _ in range(depth):
        os.mkdir(name)
        os.chdir(name)
    open("bottom", "w").close()
open("/logs/agent/zzz", "w").write("said")"""
    box.python(code)
    back = box.driver.folder / "work" / f"deep-{box.number}"
    box.call("download_dir", "/logs/agent", str(back))
    assert (back / "zzz").read_text() == "said"
    assert max(len(path.relative_to(back).parts) for path in back.rglob("*")) == 100
    assert not list(back.rglob("bottom"))
    box.call("download_dir_filtered", source_dir="/logs/agent", target_dir=str(back / "again"), include=["*"])
    assert (back / "again" / "zzz").read_text() == "said"


def test_times_no_host_can_keep(box: Box) -> None:
    moments = ("@9223372036854775807", "@-9223372036854775808", "@16725225600", "@1577836800")
    for number, moment in enumerate(moments):
        box.out(f"touch -d {moment} /logs/agent/{number}")
    back = box.driver.folder / "work" / f"times-{box.number}"
    box.call("download_dir", "/logs/agent", str(back))
    assert [(back / str(n)).stat().st_mtime for n in range(4)] == [2**32 - 1, 0, 2**32 - 1, 1577836800]


def test_names_nobody_would_choose(box: Box) -> None:
    names = [b"a\nb", b"\xff\xfe", b"-rf", b"x" * 255, "\u202egpj.exe".encode(), b"\x1b[31mred", b" ", b"*"]
    box.python(f"for name in {names!r}: open(b'/logs/agent/' + name, 'w').write('said')")
    back = box.driver.folder / "work" / f"names-{box.number}"
    box.call("download_dir", "/logs/agent", str(back))
    assert sorted(os.fsencode(path.name) for path in back.iterdir()) == sorted(names)


def test_replaced_programs_do_not_take_part(box: Box, sent: Path) -> None:
    box.out("mkdir '/[a] b'; ln -s '/[a] b' /logs/to; touch /a")
    box.out(
        "for n in tar bash sh cat cp python3; do rm -f /usr/bin/$n; printf '#!/bin/false\\n' > /usr/bin/$n; done; true"
    )
    box.call("upload_dir", str(sent), "/tests")
    back = box.driver.folder / "work" / f"replaced-{box.number}"
    box.call("download_dir", "/tests", str(back))
    assert tree(back) == tree(sent)
    names = ("/[a] b", "/logs/to", "/a", "/none")
    assert [box.call("is_dir", name, user="root") for name in names] == [True, True, False, False]


def test_files_that_change_while_they_are_read(box: Box) -> None:
    box.out("(while :; do head -c $((RANDOM * 50)) /dev/zero > /logs/agent/moving; done) >/dev/null 2>&1 &")
    box.out(
        "(while :; do rm -rf /logs/agent/d; mkdir -p /logs/agent/d/e; echo x > /logs/agent/d/e/f; done) >/dev/null 2>&1 &"
    )
    for number in range(20):
        box.call("download_dir", "/logs/agent", str(box.driver.folder / "work" / f"moving-{box.number}-{number}"))
    assert (box.driver.folder / "work" / f"moving-{box.number}-19" / "moving").exists()


def test_what_harbor_filters_is_filtered(box: Box) -> None:
    box.out(
        "mkdir -p /data/keep /data/node_modules/x; touch /data/a.log /data/keep/b.log /data/c.txt /data/node_modules/x/y"
    )
    work = box.driver.folder / "work"
    names = lambda folder: sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())  # noqa: E731
    one, two = work / f"f1-{box.number}", work / f"f2-{box.number}"
    box.call("download_dir_with_exclusions", source_dir="/data", target_dir=str(one), exclude=["node_modules", "*.txt"])
    assert names(one) == ["a.log", "keep/b.log"]
    box.call(
        "download_dir_filtered",
        source_dir="/data",
        target_dir=str(two),
        include=["*.log"],
        exclude=["keep/*"],
        protect=["c.txt"],
    )
    assert names(two) == ["a.log", "c.txt"]


@pytest.mark.both_users
def test_a_full_sandbox_refuses_an_upload_clearly(driver: Driver, work: Path) -> None:
    box = driver.box(config={"storage_mb": 16})
    (work / "big").write_bytes(os.urandom(40 << 20))
    with pytest.raises(Raised, match="No space left"):
        box.call("upload_file", str(work / "big"), "/big")
    assert box.out("echo fine") == "fine"
    box.call("stop", True)
