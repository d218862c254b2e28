"""The whole site as files."""

import gzip
import re
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit
from zipfile import ZipFile

import pytest

from support.dashboard import Root, trial
from support.results import STAMP
from terminalbench.dashboard.answers import export_site
from terminalbench.errors import UserError
from terminalbench.secrets.values import Secrets


def links(page: Path) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]+)"', page.read_text())


def test_every_link_of_an_export_leads_to_a_file_of_it(root: Root, tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = export_site(root.site, site)
    pages = sorted(site.rglob("*.html"))
    assert len(pages) == done.pages > 20
    assert done.left_out == ()
    for page in pages:
        for link in links(page):
            assert not urlsplit(link).scheme, link
            assert not link.startswith("/"), link
            assert "?" not in link
            path, _, fragment = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            assert target.is_file(), f"{page}: {link}"
            assert target.is_relative_to(site)
            if fragment and target.suffix == ".html":
                assert f'id="{unquote(fragment)}"' in target.read_text(), f"{page}: {link}"


def test_an_export_has_what_the_pages_show(root: Root, tmp_path: Path) -> None:
    site = tmp_path / "site"
    export_site(root.site, site)
    assert (site / trial("a__1") / "index.html").is_file()
    assert (site / trial("a__1") / "raw" / "agent" / "trajectory.json").is_file()
    assert (site / "batches/study/0/profiles.csv").is_file()
    assert (site / "batches/study/0/files/plan.json").is_file()
    pair = site / "side-by-side/study/0" / f"{STAMP}__p" / "a__1" / "study/0" / f"{STAMP}__q" / "a__3" / "index.html"
    assert "Here they part" in pair.read_text()
    home = (site / "index.html").read_text()
    assert "<form class=" not in home
    assert not list(site.rglob("files/trial.log/index.html")), "a file is there once"
    assert not (site / trial("a__1") / "data.json").exists()
    choose = (site / "compare" / "index.html").read_text()
    assert "q against p" in choose
    assert (site / "compare/study/0/q/study/0/p/index.html").is_file()
    assert 'data-local="results"' in (site / "trials" / "index.html").read_text()
    assert "data-feed" not in home
    assert "events" not in home


def test_an_export_overwrites_only_an_export(root: Root, tmp_path: Path) -> None:
    export_site(root.site, tmp_path / "site")
    export_site(root.site, tmp_path / "site")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with pytest.raises(UserError, match="not an earlier export"):
        export_site(root.site, tmp_path / "mine")


def test_large_files_are_left_out_and_said(root: Root, tmp_path: Path) -> None:
    folder = root.batch.runs / f"{STAMP}__p" / "a__1"
    (folder / "big.bin").write_bytes(b"x" * (5 << 20))
    export_site(root.site, tmp_path / "site")
    assert "too large for this export" in (tmp_path / "site" / trial("a__1") / "index.html").read_text()
    assert not (tmp_path / "site" / trial("a__1") / "raw" / "big.bin").exists()


def test_no_archive_with_a_secret_or_not_looked_into_is_in_an_export(
    tbench, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "s3cr-t0ken_At-rest"
    monkeypatch.setenv("REST_TOKEN", secret)
    (folder := root.batch.runs / f"{STAMP}__p" / "a__1" / "artifacts").mkdir(exist_ok=True)
    for name, data in (("honest", b"an honest text"), ("inner", gzip.compress(secret.encode()))):
        with ZipFile(folder / f"{name}.zip", "w") as archive:
            archive.writestr(name, data)
    (folder / "bomb.gz").write_bytes(gzip.compress(bytes(80 << 20)))
    (folder / "odd.7z").write_bytes(b"7z\xbc\xaf\x27\x1c\0\4")
    (folder / "data.bin").write_bytes(b"\0\1\2\3" + secret.encode())
    (folder / "wide.txt").write_bytes(f"wide {secret}".encode("utf-16"))
    (folder / "split.txt").write_text(f"> {secret[:7]}\n> {secret[7:]}\n")
    ran = tbench("view", root.path, "--export", tmp_path / "site.zip")
    assert ran.code == 0
    raw = f"{trial('a__1')}raw/artifacts/"
    assert sorted(re.findall(r"left out: (.*)", ran.err)) == [
        f"{raw}bomb.gz: is too large to be searched",
        f"{raw}data.bin: holds a secret",
        f"{raw}inner.zip: holds a secret",
        f"{raw}odd.7z: cannot be searched: unsupported format",
    ]
    with ZipFile(tmp_path / "site.zip") as archive:
        shipped = {
            name.rpartition("/")[2]: archive.read(name)
            for name in archive.namelist()
            if raw in name and not name.endswith("/")
        }
        page = archive.read(f"site/{trial('a__1')}index.html").decode()
        assert not any(secret.encode() in archive.read(name) for name in archive.namelist())
    assert sorted(shipped) == ["honest.zip", "split.txt", "wide.txt"]
    with ZipFile(BytesIO(shipped["honest.zip"])) as archive:
        assert archive.read("honest") == b"an honest text"
    assert shipped["wide.txt"].decode("utf-16") == "wide [redacted]"
    assert shipped["split.txt"] == b"> [redacted]\n"
    assert page.count("holds a secret") == 2
    assert "is too large to be searched" in page
    assert 'raw/artifacts/odd.7z"' not in page, "no link leads to what is left out"
    assert Secrets.of([secret]).holds_none(page.encode())


def test_an_export_in_one_file_is_small(tbench, root: Root, tmp_path: Path) -> None:
    for n in range(30):  # trials are much alike
        folder = root.batch.runs / f"{STAMP}__p" / "a__1"
        (folder / "agent" / f"log-{n}.txt").write_text("the same line again\n" * 3000)
    ran = tbench("view", root.path, "--export", tmp_path / "sent.zip")
    assert ran.code == 0
    assert "unpack it and open sent/index.html" in ran.out
    with ZipFile(tmp_path / "sent.zip") as archive:
        assert "sent/index.html" in archive.namelist()
        whole = sum(one.file_size for one in archive.infolist())
    assert (tmp_path / "sent.zip").stat().st_size * 5 < whole


def test_the_command_exports(tbench, root: Root, tmp_path: Path) -> None:
    ran = tbench("view", root.path, "--export", tmp_path / "site")
    assert ran.code == 0
    assert "index.html" in ran.out
    assert (tmp_path / "site" / "index.html").is_file()
    assert tbench("view", tmp_path / "nothing").code == 2
