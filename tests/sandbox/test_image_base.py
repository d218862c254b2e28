"""Sandboxes on images of the store instead of the host's folders. As root and as an ordinary user."""

import subprocess
from pathlib import Path

import pytest

from sandbox.driving import Driver, Raised
from support.registry import Images, layer_of, member, packed, small_system

pytestmark = pytest.mark.any_user


@pytest.fixture
def tiny(driver: Driver, work: Path) -> str:
    """An image of two layers; the upper one removes a file of the lower one and adds one of another user."""
    images = Images()
    lower = layer_of({**small_system(), "etc/old": "1", "etc/kept": "1"})
    upper = packed((member("etc/.wh.old"), b""), (member("srv/own", uid=7, gid=7, mode=0o640), b"mine"))
    images.image("tiny:1", [lower, upper], Env=["PATH=/bin", "GREETING=hello"], WorkingDir="/srv", User="root")
    layout = images.write_layout(work / "layout", "tiny:1")
    subprocess.run(["chown", "-R", f"{driver.uid}:{driver.gid}", str(layout)], check=True, timeout=600)
    return driver("load_image", str(layout), "tiny:1")


@pytest.mark.both_users
def test_a_task_from_an_image_of_the_store_has_its_files_and_settings(driver: Driver, tiny: str) -> None:
    box = driver.box(files={"Dockerfile": "FROM tiny:1\nRUN echo $GREETING > /built\nENV MORE=1\n"})
    assert (
        box.out("pwd; cat /built; echo $GREETING $MORE; ls /etc")
        == "/srv\nhello\nhello 1\nhostname\nhosts\nkept\npasswd\nresolv.conf"
    )
    assert box.run("cat /etc/old")["return_code"] != 0
    assert box.run("git --version")["return_code"] == 127, "nothing is of the host"
    assert box.out("ls -n /srv/own").split()[2:4] == (["7", "7"] if box.do("about")["ids"] != "one" else ["0", "0"])
    box.out("echo changed > /etc/kept")
    box.call("stop", True)
    again = driver.box(files={"Dockerfile": "FROM tiny:1\n"})
    assert again.out("cat /etc/kept") == "1", "what a trial wrote is gone with it"
    again.call("stop", True)


def test_a_prebuilt_image_needs_no_dockerfile(driver: Driver, tiny: str) -> None:
    box = driver.box(config={"docker_image": "tiny:1"}, files={"readme": ""})
    assert box.out("cat /srv/own; echo; pwd") == "mine\n/srv"
    box.call("stop", True)


def test_a_prebuilt_image_wins_over_a_dockerfile_unless_it_is_to_be_built(driver: Driver, tiny: str) -> None:
    files = {"Dockerfile": "FROM tiny:1\nRUN echo > /by-dockerfile\n"}
    box = driver.box(config={"docker_image": "tiny:1"}, files=files)
    assert box.run("cat /by-dockerfile")["return_code"] != 0, "as under Docker"
    box.call("stop", True)
    box = driver.box(config={"docker_image": "tiny:1"}, files=files, start=False)
    box.call("start", True)
    assert box.run("cat /by-dockerfile")["return_code"] == 0
    box.call("stop", True)


def test_the_host_stands_for_an_image_only_where_somebody_says_so(driver: Driver, tiny: str, work: Path) -> None:
    files = {"Dockerfile": "FROM debian:12\nRUN git --version\n"}
    with pytest.raises(Raised, match="the image debian:12 is not on this machine.*images pull debian:12"):
        driver.box(files=files, kwargs={"images": {}})
    by_task = driver.box(files={**files, "../task.toml": "[metadata]\nhost_base = true\n"}, kwargs={"images": {}})
    by_table = driver.box(files=files, kwargs={"images": {"debian:*": "host"}})
    for box in (by_task, by_table):
        assert box.out("git --version").startswith("git version")
        box.call("stop", True)
    digest = driver("load_image", str(work / "layout"), "debian:12")
    plain = {"Dockerfile": "FROM debian:12\n"}
    pinned = {"images": {"debian:*": "other:1"}, "pins": {"other:1": digest}}
    for kwargs in ({"images": {}}, {"images": {"debian:*": "tiny:1"}}, {"images": {"debian:*": digest}}, pinned):
        box = driver.box(files=plain, kwargs=kwargs)
        assert box.run("git --version")["return_code"] == 127
        box.call("stop", True)
