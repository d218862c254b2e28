"""Sandboxes of root and of an ordinary user, driven by the same tests."""

import os
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(
    0, str(Path(__file__).parent.parent)
)  # the tests share `driving`; there is no package to import it from

from sandbox.driving import Box, Driver, remove_tree

ATTACKS = Path(__file__).parents[2] / "docs" / "design" / "attacks.md"
_drivers: dict[str, Driver] = {}


@pytest.fixture(params=["root", "ordinary"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """The process that holds sandboxes, one per user, shared by the tests of a worker; none is left to the next."""
    user = request.param
    if user == "root" and os.geteuid() != 0:
        pytest.skip("the tests do not run as root")
    if user in _drivers and _drivers[user].process.poll() is not None:
        shutil.rmtree(_drivers.pop(user).folder, ignore_errors=True)
    if user not in _drivers:
        _drivers[user] = Driver(user)
    yield _drivers[user]
    if _drivers[user].process.poll() is None:
        _drivers[user]("stop_all")


@pytest.fixture
def box(driver: Driver) -> Box:
    """A started sandbox without network."""
    return driver.box()


@pytest.fixture
def work(driver: Driver) -> Iterator[Path]:
    """A folder of the driver's user on the host."""
    folder = Path(tempfile.mkdtemp(dir=driver.folder / "work"))
    os.chown(folder, driver.uid, driver.gid)
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_driver(request: pytest.FixtureRequest, driver: Driver) -> Iterator[Driver]:
    """A driver for a test that kills it."""
    own = Driver(driver.user)
    own.share_base(driver)
    yield own
    if own.process.poll() is None:
        own.close()
    else:
        remove_tree(own.folder)


def pytest_sessionfinish() -> None:
    for driver in _drivers.values():
        if driver.process.poll() is None:
            driver.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave what comes out alike for every user (`any_user`) to one of them, by turns.

    Attacks are tried by both: the tests that docs/design/attacks.md names. Bombs of one user go off one after the other: the limits of an ordinary user count all its processes.
    """
    users: dict[str, list[pytest.Item]] = {}
    attacks = set(re.findall(r"::(test_\w+)`", ATTACKS.read_text()))
    for item in items:
        is_attack = getattr(item, "originalname", item.name) in attacks
        if item.get_closest_marker("any_user") and not (is_attack or item.get_closest_marker("both_users")):
            users.setdefault(re.sub(r"\b(?:root|ordinary)\b", "", item.nodeid), []).append(item)
    spared = set[pytest.Item]()
    for name, alike in users.items():
        chosen = alike[zlib.crc32(name.encode()) % len(alike) if os.geteuid() == 0 else -1]
        spared.update(item for item in alike if item is not chosen)
    items[:] = [item for item in items if item not in spared]
    for item in items:
        if item.get_closest_marker("heavy"):
            params = getattr(getattr(item, "callspec", None), "params", {})
            item.add_marker(pytest.mark.alone(str(params.get("driver", "root"))))
