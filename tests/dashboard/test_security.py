"""Who may ask, what may be reached, and what every answer carries."""

import asyncio
import gzip
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from support.dashboard import Http, Root, trial
from terminalbench.dashboard import app
from terminalbench.dashboard.app import COOKIE, Access, host_name, make_access

TOKEN = "x" * 32


def client(root: Root, access: Access, host: str = "127.0.0.1:8642", *, known: bool = False) -> Http:
    return Http(app.make_app(root.site, access), host, access.token if known else None)


def local(root: Root) -> Http:
    """A browser on this machine that has the token."""
    return client(root, make_access("127.0.0.1"), known=True)


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost", "LOCALHOST:1", "[::1]:8642", "127.0.0.2"])
def test_this_machine_may_ask(root: Root, host: str) -> None:
    http = local(root)
    assert http.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8642",
        "localhost.evil.example",
        "192.168.1.7:8642",
        "",
        "127.0.0.1@evil",
        "[evil]",
        "a b",
    ],
)
def test_foreign_hosts_are_refused(root: Root, host: str) -> None:
    http = local(root)
    for path in ("/", "/events", "/assets/tbench.js", "/data.json"):
        answer = http.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "study" not in answer.text


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:8642", 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)],
)
def test_other_sites_may_not_ask(root: Root, origin: str, status: int) -> None:
    http = local(root)
    assert http.get("/data.json", headers={"origin": origin}).status_code == status


@pytest.mark.parametrize(("bound", "host"), [("0.0.0.0", "192.168.1.7:8642"), ("127.0.0.1", "localhost:8642")])
def test_every_bind_needs_a_token(root: Root, bound: str, host: str) -> None:
    access = make_access(bound)
    assert len(access.token) >= 24
    http = client(root, access, host)
    for path in ("/", "/events", "/data.json", "/assets/tbench.css", f"/{trial('a__1')}"):
        for wrong in ({}, {"params": {"token": "wrong"}}, {"headers": {"cookie": f"{COOKIE}_1=wrong"}}):
            refused = http.get(path, **wrong)
            assert refused.status_code == 401
            assert "Open the address that <code>tbench view</code> printed" in refused.text
            assert ("each start has a new one" in refused.text) is bool(wrong)
            assert "study" not in refused.text
    assert http.get("/", headers={"host": "evil.example"}).status_code == 421
    assert http.get("/", headers={"authorization": f"Bearer {access.token}"}).status_code == 200


def test_pages_are_sent_small_to_who_takes_them_so(root: Root) -> None:
    http = client(root, Access("127.0.0.1", TOKEN), "localhost:8642")
    headers = {"authorization": f"Bearer {TOKEN}"}
    whole = http.get("/batches/study/0/", headers=headers)
    small = http.get("/batches/study/0/", headers={**headers, "accept-encoding": "gzip"})
    assert small.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in whole.headers
    assert len(small.content) * 3 < len(whole.content)
    assert b"study 0" in gzip.decompress(small.content)


def test_the_names_of_the_machine_may_be_used(root: Root) -> None:
    http = client(root, Access("0.0.0.0", TOKEN))
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert http.get("/", headers={**headers, "host": f"{socket.gethostname()}:8642"}).status_code == 200
    assert http.get("/", headers={**headers, "host": "192.168.1.7"}).status_code == 200
    assert http.get("/", headers={**headers, "host": "other.example"}).status_code == 421


def test_the_token_becomes_a_cookie_and_leaves_the_address(root: Root) -> None:
    http = client(root, Access("0.0.0.0", TOKEN), "192.168.1.7:8642")
    answer = http.get("//trials/", params={"outcome": "failed", "token": TOKEN})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/trials/?outcome=failed"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert cookie.startswith(f"{COOKIE}_1=")  # of its port: another dashboard of this host has another
    assert http.get("/trials/").status_code == 200


def test_what_opens_a_browser_opens_it_once(root: Root) -> None:
    """The command line of a browser can be read by every user."""
    access = make_access("127.0.0.1")
    assert access.once not in (None, access.token)
    app_ = app.make_app(root.site, access)
    first, second = Http(app_, "localhost"), Http(app_, "localhost")
    assert first.get("/", params={"token": access.once or ""}).status_code == 303
    assert first.get("/").status_code == 200
    assert second.get("/", params={"token": access.once or ""}).status_code == 401
    assert second.get("/", headers={"authorization": f"Bearer {access.once}"}).status_code == 401


@pytest.mark.parametrize(
    ("path", "query", "place"),
    [
        ("/batches/study/0", {"show": "differ", "task": "a b"}, "/batches/study/0/?show=differ&task=a+b"),
        ("/experiments", {}, "/experiments/"),
        ("//trials", {}, "/trials/"),
        ("/compare/", {"new": "study/1|p", "old": "study/0|p"}, "/compare/study/1/p/study/0/p/"),
        (f"/{trial('a__1')}".rstrip("/"), {}, f"/{trial('a__1')}"),
    ],
)
def test_a_page_is_at_one_address(root: Root, path: str, query: dict[str, str], place: str) -> None:
    http = client(root, Access("0.0.0.0", TOKEN), "192.168.1.7:8642")
    assert http.get(path, params=query).status_code == 401
    answer = http.get(path, params=query, headers={"authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.headers["location"]) == (308, place)
    assert answer.headers["cache-control"] == "no-store"
    assert http.get(place.partition("?")[0], headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize("path", ["//evil.example", "//evil.example/%2e%2e", "/\\evil.example", "//"])
def test_no_address_leads_elsewhere(root: Root, path: str) -> None:
    answer = local(root).get(path)
    assert (answer.status_code, answer.headers.get("location", "/")) in ((404, "/"), (308, "/"))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(root: Root, method: str) -> None:
    http = local(root)
    assert http.request(method, "/").status_code == 405


@pytest.mark.parametrize(
    "path", ["/", "/nowhere/", "/data.json", "/batches.csv", f"/{trial('a__1')}raw/result.json", "/assets/tbench.js"]
)
def test_every_answer_carries_the_headers(root: Root, path: str) -> None:
    http = local(root)
    headers = http.get(path).headers
    policy = headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"


def test_only_so_many_pages_are_told_of_changes(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_STREAMS", 1)
    access = make_access("127.0.0.1")
    made = app.make_app(root.site, access)

    async def stream(gone: asyncio.Event, answered: asyncio.Queue[int]) -> None:
        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                await answered.put(message["status"])

        scope = {"type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "query_string": b"",
                 "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {access.token}".encode())], "root_path": "", "http_version": "1.1", "scheme": "http"}  # fmt: skip
        await made(scope, receive, send)

    async def two_then_one() -> tuple[set[int], int]:
        gone, answered = asyncio.Event(), asyncio.Queue[int]()
        both = [asyncio.create_task(stream(gone, answered)) for _ in range(2)]  # at the same moment
        together = {await answered.get(), await answered.get()}
        gone.set()
        await asyncio.gather(*both)
        await stream(gone, answered)
        return together, await answered.get()

    assert asyncio.run(two_then_one()) == ({200, 503}, 200)


ESCAPES = [
    "../../../../../../secret.txt", "..%2f..%2f..%2f..%2fsecret.txt", "%2e%2e/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret.txt", "/etc/passwd",
    "%2fetc%2fpasswd", "agent/../../../../../secret.txt", "link-out.txt", "folder-out/secret.txt", "pipe", "agent%00.txt", "..", ".", "agent",
    "link-in.txt",
]  # fmt: skip


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("kind", ["raw", "files"])
def test_no_path_leaves_the_trial(root: Root, path: str, kind: str) -> None:
    secret = root.path.parent / "secret.txt"
    secret.write_text("the secret")
    folder = root.batch.runs / "2026-01-23__16-26-48__p" / "a__1"
    (folder / "link-out.txt").symlink_to(secret)
    (folder / "link-in.txt").symlink_to(folder / "result.json")
    (folder / "folder-out").symlink_to(root.path.parent)
    os.mkfifo(folder / "pipe")
    http = local(root)
    base = f"/{trial('a__1')}{kind}/"
    answer = http.get(f"{base}{path}{'/' if kind == 'files' else ''}")
    assert answer.status_code == 404
    assert "the secret" not in answer.text


@pytest.mark.parametrize(
    "path", ["plan.json.bak", ".lock", "runs/2026-01-23__16-26-48__p/a__1/result.json", "../1/plan.json", "superseded"]
)
def test_only_named_files_of_a_batch_are_served(root: Root, path: str) -> None:
    http = local(root)
    assert http.get(f"/batches/study/0/files/{path}").status_code == 404
    assert http.get("/batches/study/0/files/plan.json").json()["slug"] == "study"


def test_a_batch_behind_a_link_gives_no_files(root: Root, tmp_path: Path) -> None:
    away = tmp_path / "elsewhere"
    (root.path / "study" / "0").rename(away)
    (root.path / "study" / "0").symlink_to(away)
    http = local(root)
    assert http.get("/batches/study/0/files/plan.json").status_code == 404
    assert http.get(f"/{trial('a__1')}raw/result.json").status_code == 404


def test_downloads_are_attachments_of_plain_text(root: Root) -> None:
    folder = root.batch.runs / "2026-01-23__16-26-48__p" / "a__1"
    (folder / "page.html").write_text("<script>alert(1)</script>")
    (folder / "x.svg").write_text("<svg onload=alert(1)>")
    http = local(root)
    for name, media in (("page.html", "text/plain"), ("x.svg", "application/octet-stream")):
        answer = http.get(f"/{trial('a__1')}raw/{name}")
        assert answer.headers["content-type"].startswith(media)
        assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("a:1", "a"),
        ("[::1]", "::1"),
        ("[::1]:80", "::1"),
        ("a:b", None),
        ("", None),
        ("[x]", None),
        ("a/b", None),
        ("A.b", "a.b"),
        ("[::1]x", None),
    ],
)
def test_host_names(header: str, name: str | None) -> None:
    assert host_name(header) == name


def test_a_weak_token_is_refused(tbench, root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERMINALBENCH_VIEW_TOKEN", "short")
    ran = tbench("view", root.path, "--host", "0.0.0.0")
    assert ran.code == 2
    assert "at least 16" in ran.err
