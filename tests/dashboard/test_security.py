"""Who may ask, what may be reached, and what every answer carries."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from support.dashboard import Http, Root, trial
from terminalbench.dashboard import app
from terminalbench.dashboard.security import COOKIE, Access, host_name, make_access

TOKEN = "x" * 32


def client(root: Root, access: Access, host: str = "127.0.0.1:8642") -> Http:
    return Http(app.make_app(root.site, access), host)


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost", "LOCALHOST:1", "[::1]:8642", "127.0.0.2"])
def test_this_machine_may_ask(root: Root, host: str) -> None:
    http = client(root, make_access("127.0.0.1", None))
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
    http = client(root, make_access("127.0.0.1", None))
    for path in ("/", "/events", "/assets/tbench.js", "/data.json"):
        answer = http.get(path, headers={"host": host})
        assert answer.status_code == 421
        assert "study" not in answer.text


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://127.0.0.1:8642", 200), ("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:1", 403)],
)
def test_other_sites_may_not_ask(root: Root, origin: str, status: int) -> None:
    http = client(root, make_access("127.0.0.1", None))
    assert http.get("/data.json", headers={"origin": origin}).status_code == status


def test_any_other_bind_needs_a_token(root: Root) -> None:
    access = make_access("0.0.0.0", None)
    assert access.token is not None
    assert len(access.token) >= 24
    http = client(root, access, "192.168.1.7:8642")
    for path in ("/", "/events", "/data.json", "/assets/tbench.css", f"/{trial('a__1')}"):
        assert http.get(path).status_code == 401
        assert http.get(path, params={"token": "wrong"}).status_code == 401
        assert http.get(path, headers={"cookie": f"{COOKIE}=wrong"}).status_code == 401
    assert http.get("/", headers={"host": "evil.example"}).status_code == 421
    assert http.get("/", headers={"authorization": f"Bearer {access.token}"}).status_code == 200


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
    assert http.get("/trials/").status_code == 200


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
    answer = client(root, make_access("127.0.0.1", None)).get(path)
    assert (answer.status_code, answer.headers.get("location", "/")) in ((404, "/"), (308, "/"))


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_it_only_reads(root: Root, method: str) -> None:
    http = client(root, make_access("127.0.0.1", None))
    assert http.request(method, "/").status_code == 405


@pytest.mark.parametrize(
    "path", ["/", "/nowhere/", "/data.json", "/batches.csv", f"/{trial('a__1')}raw/result.json", "/assets/tbench.js"]
)
def test_every_answer_carries_the_headers(root: Root, path: str) -> None:
    http = client(root, make_access("127.0.0.1", None))
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
    made = app.make_app(root.site, make_access("127.0.0.1", None))

    async def stream(gone: asyncio.Event, answered: asyncio.Queue[int]) -> None:
        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                await answered.put(message["status"])

        scope = {"type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "query_string": b"",
                 "headers": [(b"host", b"localhost")], "root_path": "", "http_version": "1.1", "scheme": "http"}  # fmt: skip
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
    http = client(root, make_access("127.0.0.1", None))
    base = f"/{trial('a__1')}{kind}/"
    answer = http.get(f"{base}{path}{'/' if kind == 'files' else ''}")
    assert answer.status_code == 404
    assert "the secret" not in answer.text


@pytest.mark.parametrize(
    "path", ["plan.json.bak", ".lock", "runs/2026-01-23__16-26-48__p/a__1/result.json", "../1/plan.json", "superseded"]
)
def test_only_named_files_of_a_batch_are_served(root: Root, path: str) -> None:
    http = client(root, make_access("127.0.0.1", None))
    assert http.get(f"/batches/study/0/files/{path}").status_code == 404
    assert http.get("/batches/study/0/files/plan.json").json()["slug"] == "study"


def test_a_batch_behind_a_link_gives_no_files(root: Root, tmp_path: Path) -> None:
    away = tmp_path / "elsewhere"
    (root.path / "study" / "0").rename(away)
    (root.path / "study" / "0").symlink_to(away)
    http = client(root, make_access("127.0.0.1", None))
    assert http.get("/batches/study/0/files/plan.json").status_code == 404
    assert http.get(f"/{trial('a__1')}raw/result.json").status_code == 404


def test_downloads_are_attachments_of_plain_text(root: Root) -> None:
    folder = root.batch.runs / "2026-01-23__16-26-48__p" / "a__1"
    (folder / "page.html").write_text("<script>alert(1)</script>")
    (folder / "x.svg").write_text("<svg onload=alert(1)>")
    http = client(root, make_access("127.0.0.1", None))
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
