"""A registry of the tests' own: images made of small files, served by protocol v2, with the faults that a test asks for."""

import base64
import functools
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

OCI = "application/vnd.oci.image."
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


def member(name: str, kind: bytes = tarfile.REGTYPE, **more: Any) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type = kind
    found.mode = more.pop("mode", 0o755 if kind == tarfile.DIRTYPE else 0o644)
    for key, value in more.items():
        setattr(found, key, value)
    return found


def packed(*entries: tarfile.TarInfo | tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    """An archive of these entries, as they are."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for entry in entries:
            info, data = entry if isinstance(entry, tuple) else (entry, b"")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def layer_of(files: Mapping[str, str | bytes | None]) -> bytes:
    """A layer with these files; None: a folder; a text that begins with `-> ` is a link."""
    entries: list[Any] = []
    for name, content in files.items():
        if content is None:
            entries.append(member(name, tarfile.DIRTYPE))
        elif isinstance(content, str) and content.startswith("-> "):
            entries.append(member(name, tarfile.SYMTYPE, linkname=content[3:]))
        else:
            data = content.encode() if isinstance(content, str) else content
            entries.append((member(name, mode=0o755), data))
    return packed(*entries)


@functools.cache
def small_system(*programs: str) -> dict[str, str | bytes | None]:
    """The files of a system of a few programs of this machine, with the libraries that they load."""
    wanted = ("/bin/bash", "/bin/cat", "/bin/mkdir", "/bin/ls", *programs)
    told = subprocess.run(["ldd", *wanted], capture_output=True, text=True, check=True, timeout=600).stdout
    needed = {word.rstrip(":") for word in told.split() if word.startswith("/")} | set(wanted)
    files = {name.removeprefix("/"): Path(name).read_bytes() for name in sorted(needed)}
    return {
        **files,
        "bin/sh": "-> bash",
        "tmp": None,
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nada:x:7:7::/home:/bin/sh\n",
    }


SHELL_PROGRAMS = (
    "bash", "cat", "chmod", "chown", "cp", "cut", "date", "diff", "dirname", "env", "find", "git", "git-upload-pack",
    "grep", "head", "ls", "mkdir", "mktemp", "mv", "python3", "rm", "sed", "sort", "stat", "tail", "touch", "tr", "wc",
)  # fmt: skip
_UNNEEDED = ("__pycache__", "config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "test", "tests", "tkinter")


def python_system(root: Path) -> None:
    """Write a root file system of this machine's Python, git and everyday programs to a folder: a real image's."""
    programs = [found for name in SHELL_PROGRAMS if (found := shutil.which(name, path="/usr/bin:/bin"))]
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False, timeout=600).stdout
    library = next(Path("/usr/lib").glob("python3.*/os.py")).parent
    for name in sorted({word.rstrip(":") for word in told.split() if word.startswith("/")} | set(programs)):
        target = root / "usr" / name.lstrip("/").removeprefix("usr/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, target)
    shutil.copytree(library, root / "usr/lib" / library.name, symlinks=True, ignore=shutil.ignore_patterns(*_UNNEEDED))
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    (root / "usr/bin/sh").symlink_to("bash")
    for name in ("etc", "root", "tmp"):
        (root / name).mkdir()
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


def squeezed(data: bytes) -> bytes:
    """The same bytes for the same data, at any time."""
    return gzip.compress(data, 1, mtime=0)


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Images:
    """Documents and blobs by digest, and what tags mean."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def add(self, data: bytes, kind: str = "application/octet-stream") -> str:
        digest = digest_of(data)
        self.blobs[digest], self.kinds[digest] = data, kind
        return digest

    def image(
        self, name: str, layers: Sequence[bytes], *, squeeze: Callable[[bytes], bytes] = squeezed,
        kind: str = "gzip", architecture: str = ARCHITECTURE, **config: Any,
    ) -> str:  # fmt: skip
        """Make an image of uncompressed layers and tag it; its digest."""
        about = {
            "architecture": architecture, "os": "linux", "config": config,
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        }  # fmt: skip
        settings = json.dumps(about).encode()
        blobs = [squeeze(layer) for layer in layers]
        manifest = {
            "schemaVersion": 2, "mediaType": f"{OCI}manifest.v1+json",
            "config": {"mediaType": f"{OCI}config.v1+json", "digest": self.add(settings), "size": len(settings)},
            "layers": [{"mediaType": f"{OCI}layer.v1.tar+{kind}", "digest": self.add(blob), "size": len(blob)} for blob in blobs],
        }  # fmt: skip
        digest = self.add(json.dumps(manifest).encode(), f"{OCI}manifest.v1+json")
        self.tags[name] = digest
        return digest

    def index(self, name: str, images: Mapping[str, str]) -> str:
        """Make an index of images by platform, and tag it."""
        entries = []
        for platform, digest in images.items():
            system, architecture, *variant = platform.split("/")
            told = {"os": system, "architecture": architecture, **({"variant": variant[0]} if variant else {})}
            entries.append(
                {"mediaType": self.kinds[digest], "digest": digest, "size": len(self.blobs[digest]), "platform": told}
            )
        data = json.dumps({"schemaVersion": 2, "mediaType": f"{OCI}index.v1+json", "manifests": entries}).encode()
        self.tags[name] = self.add(data, f"{OCI}index.v1+json")
        return self.tags[name]

    def write_layout(self, folder: Path, name: str) -> Path:
        """Write an image as an OCI layout."""
        (folder / "blobs" / "sha256").mkdir(parents=True)
        for digest, data in self.blobs.items():
            (folder / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(data)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        digest = self.tags[name]
        entry = {
            "mediaType": self.kinds[digest],
            "digest": digest,
            "size": len(self.blobs[digest]),
            "annotations": {"org.opencontainers.image.ref.name": name.partition(":")[2]},
        }
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        return folder


@dataclass
class RegistryServer:
    """Serves images on this machine. `with RegistryServer(images) as server: f"{server.host}/name:tag"`.

    `login` is what it asks for, by a token or with `basic` directly. `cut` is after how many bytes a connection of a blob ends, as
    often as it is given; `broken` answers with this status, as often as given; `damage` changes what a blob holds.
    """

    images: Images = field(default_factory=Images)
    login: tuple[str, str] | None = None
    basic: bool = False
    anonymous_token: bool = False
    cut: list[int] = field(default_factory=list)
    broken: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    damage: Callable[[str, bytes], bytes] = lambda _digest, data: data
    ranges: bool = True
    wait: threading.Event | None = None
    asked: Counter[str] = field(default_factory=Counter)

    def __enter__(self) -> Self:
        outer = self

        class Handler(_Handler):
            registry = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"


class _Handler(BaseHTTPRequestHandler):
    registry: RegistryServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        registry = self.registry
        if self.path.startswith("/token"):
            self._token()
            return
        found = re.fullmatch(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<which>[^/]+)", self.path)
        if not self._is_allowed():
            return
        if found is None:
            self._say(404, b"{}")
            return
        registry.asked[found["kind"]] += 1
        if registry.broken:
            status, headers = registry.broken.pop(0)
            self._say(status, b'{"errors": [{"code": "SOMETHING", "message": "went wrong"}]}', headers)
            return
        images = registry.images
        which = images.tags.get(f"{found['name']}:{found['which']}", found["which"])
        data = images.blobs.get(which)
        if data is None:
            self._say(404, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "no such thing"}]}')
        elif found["kind"] == "manifests":
            self._say(200, data, {"Content-Type": images.kinds[which], "Docker-Content-Digest": which})
        else:
            self._blob(which, registry.damage(which, data))

    def _blob(self, digest: str, data: bytes) -> None:
        registry = self.registry
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        first = int(start[1]) if start and registry.ranges else 0
        registry.asked[f"blob from {'the middle' if first else 'the start'}"] += 1
        if registry.wait is not None:
            registry.wait.wait(60)
        cut = registry.cut.pop(0) if registry.cut else None
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(data) - first))
        self.end_headers()
        self.wfile.write(data[first:] if cut is None else data[first : first + cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True

    def _is_allowed(self) -> bool:
        registry = self.registry
        given = self.headers.get("Authorization", "")
        if registry.login is None and not registry.anonymous_token:
            return True
        if registry.basic and given == f"Basic {_pair(registry.login)}":
            return True
        if given == "Bearer right":
            return True
        challenge = (
            'Basic realm="here"'
            if registry.basic
            else f'Bearer realm="http://{registry.host}/token",service="tests",scope="repository:x:pull"'
        )
        self._say(401, b"{}", {"WWW-Authenticate": challenge})
        return False

    def _token(self) -> None:
        registry = self.registry
        registry.asked["token"] += 1
        given = self.headers.get("Authorization", "")
        if registry.login is not None and given != f"Basic {_pair(registry.login)}":
            self._say(401, b"{}")
            return
        self._say(200, json.dumps({"token": "right"}).encode())

    def _say(self, status: int, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _pair(login: tuple[str, str] | None) -> str:
    return base64.b64encode(":".join(login or ("", "")).encode()).decode()
