"""Asking a registry for manifests and blobs: protocol v2, as OCI's distribution specification has it.

Tokens are asked for as the registry says, with the keys that Docker or Podman keep for it or without any. A blob whose
connection is cut goes on where it ended. What is wrong is said in words, with what to do about it.

A registry is reached at its own address, or at the mirrors that Podman's file names: `$CONTAINERS_REGISTRIES_CONF`,
`~/.config/containers/registries.conf`, then `/etc/containers/registries.conf`. One on this machine is asked
without TLS.
"""

import contextlib
import hashlib
import os
import re
import time
import tomllib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlencode

import httpx
import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.sandbox.errors import ImageError, ImageFault, Refused
from terminalbench.sandbox.images.reference import DOCKER_HUB, Credentials, ImageReference, credentials_for

_HUB = "registry-1.docker.io"


@dataclass(frozen=True)
class Endpoint:
    """An address of a registry: its host, the repository there, and whether it may be asked without TLS."""

    host: str
    repository: str
    insecure: bool = False
    mirror: bool = False

    @property
    def schemes(self) -> tuple[str, ...]:
        """The protocols to try, in this order."""
        if is_local(self.host):
            return ("http",)
        return ("https", "http") if self.insecure else ("https",)


def is_local(host: str) -> bool:
    """Return whether a host, perhaps with a port, is this machine."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def endpoints_of(reference: ImageReference) -> list[Endpoint]:
    """Return where an image may be asked for, mirrors first."""
    named = f"{reference.registry}/{reference.repository}"
    found: dict[str, Any] = {}
    best = ""
    for entry in _entries():
        prefix = str(entry.get("prefix") or entry.get("location") or "")
        if len(prefix) > len(best) and _covers(prefix, named):
            best, found = prefix, entry
    if found.get("blocked"):
        raise Refused(f"{best} is blocked by containers-registries.conf", hint="remove the line blocked = true from it")
    mirrors = [one for one in found.get("mirror", ()) if isinstance(one, dict)]
    told = [(one, True) for one in mirrors if _serves(one, reference)] + [(found, False)]
    return [_endpoint(one, best, named, mirror=is_mirror) for one, is_mirror in told]


def _endpoint(entry: dict[str, Any], prefix: str, named: str, *, mirror: bool) -> Endpoint:
    location = str(entry.get("location") or "")
    moved = location.rstrip("/") + named.removeprefix(prefix) if location and not prefix.startswith("*.") else named
    host, _, repository = moved.partition("/")
    return Endpoint(_HUB if host == DOCKER_HUB else host, repository, entry.get("insecure") is True, mirror)


def _serves(mirror: dict[str, Any], reference: ImageReference) -> bool:
    kind = mirror.get("pull-from-mirror", "all")
    return kind == "all" or (kind == "digest-only") == (reference.digest is not None)


def _covers(prefix: str, named: str) -> bool:
    if prefix.startswith("*."):
        return named.partition("/")[0].partition(":")[0].endswith(prefix[1:])
    return named == prefix or named.startswith((f"{prefix}/", f"{prefix}:"))


def _entries() -> list[dict[str, Any]]:
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    named = os.environ.get("CONTAINERS_REGISTRIES_CONF")
    for file in (
        [Path(named)] if named else [home / "containers" / "registries.conf", Path("/etc/containers/registries.conf")]
    ):
        try:
            table = tomllib.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise Refused(
                f"it cannot be read: {error}",
                where=str(file),
                hint="correct it, or name another file in CONTAINERS_REGISTRIES_CONF",
            ) from None
        entries = table.get("registry", [])
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return []


MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_TRIES = 5
_FIRST_PAUSE_SEC = 0.5
_MOST_PAUSE_SEC = 60.0
_TIMEOUT = httpx.Timeout(30.0, connect=15.0)
_MOST_MANIFEST_BYTES = 8 << 20
_CHALLENGE = re.compile(r'([a-zA-Z]+)="([^"]*)"')
_AGENT = "terminalbench"


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


@dataclass(frozen=True)
class RegistryDocument:
    """A manifest or an index as the registry has it."""

    digest: str
    data: bytes


@dataclass
class RegistryClient:
    """Asks for one image, at its mirrors and at its own registry."""

    reference: ImageReference
    pause: Callable[[float], None] = time.sleep
    _endpoint: Endpoint | None = None
    _tokens: dict[str, str] = field(default_factory=dict)
    _credentials: dict[str, Credentials | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._endpoints = endpoints_of(self.reference)
        self._clients = {
            insecure: httpx.Client(
                timeout=_TIMEOUT, follow_redirects=True, headers={"User-Agent": _AGENT}, verify=not insecure
            )
            for insecure in {endpoint.insecure for endpoint in self._endpoints}
        }

    def close(self) -> None:
        """Let go of its connections."""
        for client in self._clients.values():
            client.close()

    def manifest(self, wanted: str | None = None) -> RegistryDocument:
        """Return the manifest or index of a tag or digest, the image's own unless another is wanted."""
        asked = wanted or self.reference.wanted
        accepted = ", ".join((*MANIFESTS, *INDEXES))
        with self._asked(f"manifests/{asked}", {"Accept": accepted}) as answer:
            data = _read(answer, _MOST_MANIFEST_BYTES)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if asked.startswith("sha256:") and digest != asked:
            raise ImageError(
                ImageFault.DAMAGED, f"{self.reference}: the registry gave {digest} for {asked}", hint=_AGAIN
            )
        return RegistryDocument(digest, data)

    def blob(self, digest: str, size: int, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        """Write the bytes of a blob from `done` on; a cut connection is continued. They are checked by the caller."""
        left = _TRIES
        while True:
            before = done
            try:
                self._blob(digest, size, into, done, told)
                return
            except httpx.TransportError as error:
                done = into.tell()
                left = _TRIES if done > before else left - 1
                if not left:
                    raise self._unreachable(error) from error
                self.pause(_FIRST_PAUSE_SEC * 2 ** (_TRIES - left))

    def _blob(self, digest: str, size: int, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        headers = {"Range": f"bytes={done}-"} if done else {}
        with self._asked(f"blobs/{digest}", headers) as answer:
            if done and answer.status_code != 206:  # it cannot go on: from the beginning
                into.seek(0)
                into.truncate()
                done = 0
            told(done)
            for part in answer.iter_raw():
                done += len(part)
                if done > size:
                    raise ImageError(
                        ImageFault.DAMAGED, f"{self.reference}: {digest} has more than {size} bytes", hint=_AGAIN
                    )
                into.write(part)
                told(done)
        if done < size:
            raise httpx.ReadError(f"{digest} ended after {done} of {size} bytes")

    # One question

    @contextlib.contextmanager
    def _asked(self, path: str, headers: dict[str, str]) -> Generator[httpx.Response]:
        """Ask, with a token if it takes one, as often as it makes sense, and at the next address."""
        problem: ImageError | None = None
        for endpoint in [self._endpoint] if self._endpoint is not None else self._endpoints:
            try:
                answer = self._ask(endpoint, path, headers)
            except ImageError as error:
                if not endpoint.mirror:
                    raise error from problem
                problem = error
                continue
            self._endpoint = endpoint
            try:
                yield answer
            finally:
                answer.close()
            return
        raise problem or ImageError(ImageFault.UNREACHABLE, f"{self.reference}: no registry")

    def _ask(self, endpoint: Endpoint, path: str, headers: dict[str, str]) -> httpx.Response:
        waited = 0
        while True:
            answer = self._send(endpoint, path, headers)
            if answer.is_success:
                return answer
            answer.read()
            answer.close()
            if answer.status_code in (401, 403) and self._authorise(endpoint, answer):
                continue
            again = answer.status_code == 429 or answer.status_code >= 500
            pause = _pause(answer, waited)
            if not again or waited >= _TRIES - 1 or pause > _MOST_PAUSE_SEC:
                raise self._problem(endpoint, answer)
            waited += 1
            self.pause(pause)

    def _send(self, endpoint: Endpoint, path: str, headers: dict[str, str]) -> httpx.Response:
        told = dict(headers)
        if token := self._tokens.get(endpoint.host):
            told["Authorization"] = token
        error: httpx.TransportError | None = None
        for scheme in endpoint.schemes:
            url = f"{scheme}://{endpoint.host}/v2/{endpoint.repository}/{path}"
            for left in reversed(range(_TRIES)):
                try:
                    client = self._clients[endpoint.insecure]
                    return client.send(client.build_request("GET", url, headers=told), stream=True)
                except httpx.ConnectError as problem:
                    error = problem
                    break  # nobody is there, or not by this protocol
                except httpx.TransportError as problem:
                    error = problem
                    if left:
                        self.pause(_FIRST_PAUSE_SEC * 2 ** (_TRIES - 1 - left))
        raise self._unreachable(error, endpoint) from error

    def _known(self, endpoint: Endpoint) -> Credentials | None:
        """Return what is known for a registry, looked up once: it may take a program that asks a person."""
        if endpoint.host not in self._credentials:
            own = (self.reference.registry, self.reference.repository)
            place = (endpoint.host, endpoint.repository) if endpoint.mirror else own
            self._credentials[endpoint.host] = credentials_for(*place)
        return self._credentials[endpoint.host]

    def _authorise(self, endpoint: Endpoint, answer: httpx.Response) -> bool:
        """Take what the registry asks for; False when it was given that, or says no."""
        credentials = self._known(endpoint)
        challenge = answer.headers.get("WWW-Authenticate", "")
        before = self._tokens.get(endpoint.host)
        kind, _, rest = challenge.partition(" ")
        if kind.lower() == "basic" and credentials is not None:
            self._tokens[endpoint.host] = credentials.basic
        elif kind.lower() == "bearer":
            token = self._token(dict(_CHALLENGE.findall(rest)), endpoint, credentials)
            if token is None:
                return False
            self._tokens[endpoint.host] = f"Bearer {token}"
        return self._tokens.get(endpoint.host) not in (None, before)

    def _token(self, told: dict[str, str], endpoint: Endpoint, credentials: Credentials | None) -> str | None:
        asked = {
            "service": told.get("service", ""),
            "scope": told.get("scope") or f"repository:{endpoint.repository}:pull",
        }
        realm = told.get("realm", "")
        if not realm.startswith(("https://", *(("http://",) if "http" in endpoint.schemes else ()))):
            raise ImageError(
                ImageFault.REFUSED, f"{endpoint.host} wants its tokens asked for at {realm or 'no address'}"
            )
        try:
            if credentials is not None and credentials.identity_token:
                form = {
                    **asked,
                    "grant_type": "refresh_token",
                    "client_id": _AGENT,
                    "refresh_token": credentials.identity_token,
                }
                answer = self._clients[endpoint.insecure].post(realm, data=form)
            else:
                headers = {"Authorization": credentials.basic} if credentials is not None else {}
                answer = self._clients[endpoint.insecure].get(f"{realm}?{urlencode(asked)}", headers=headers)
        except httpx.TransportError as error:
            raise self._unreachable(error, endpoint) from error
        if answer.status_code == 429:
            raise self._problem(endpoint, answer)
        if not answer.is_success:
            return None
        try:
            found = decode(answer.content, _Token)
        except NOT_DECODED:
            return None
        return found.token or found.access_token or None

    def _problem(self, endpoint: Endpoint, answer: httpx.Response) -> ImageError:
        """Return what an answer other than the wanted one means."""
        image, said = str(self.reference), _first_message(answer)
        if answer.status_code == 429 or "toomanyrequests" in said:
            what = f"{endpoint.host} refuses requests for {image} for now (rate limit)"
            return ImageError(
                ImageFault.RATE_LIMITED, what, hint="log in with docker login, use a mirror, or try again later"
            )
        if answer.status_code in (401, 403):
            what = f"{endpoint.host} does not provide {image}: it does not exist, or needs a login"
            return ImageError(
                ImageFault.DENIED, what, hint=f"docker login {self.reference.registry}, or correct the name"
            )
        if answer.status_code == 404:
            return ImageError(ImageFault.NOT_FOUND, f"{endpoint.host} has no {image}", hint="correct its name or tag")
        what = f"{endpoint.host} answers {answer.status_code} for {image}" + (f": {said}" if said else "")
        return ImageError(ImageFault.REFUSED, what, hint=_AGAIN)

    def _unreachable(self, error: Exception | None, endpoint: Endpoint | None = None) -> ImageError:
        host = (endpoint or self._endpoint or self._endpoints[-1]).host
        what = f"{host} cannot be reached for {self.reference}: {error}"
        return ImageError(
            ImageFault.UNREACHABLE, what, hint="check the network or the proxy, or import the image from an archive"
        )


_AGAIN = "try again; if it fails again, tell the operator of the registry"


def _pause(answer: httpx.Response, waited: int) -> float:
    asked = answer.headers.get("Retry-After", "")
    return float(asked) if asked.isdecimal() else _FIRST_PAUSE_SEC * 2**waited


def _first_message(answer: httpx.Response) -> str:
    with contextlib.suppress(ValueError, KeyError, IndexError, TypeError, AttributeError):
        error = answer.json()["errors"][0]
        return f"{error.get('code', '')} {error.get('message', '')}".strip().lower()[:200]
    return ""


def _read(answer: httpx.Response, most: int) -> bytes:
    data = bytearray()
    for part in answer.iter_bytes():
        data += part
        if len(data) > most:
            raise ImageError(ImageFault.DAMAGED, f"a manifest of {answer.url.host} has more than {most} bytes")
    return bytes(data)
