"""The certificates that this machine trusts, for sandboxes whose image trusts fewer: of a proxy, say."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.plan import Bind

HOST_BUNDLE = "host"
_INSIDE = "/run/tbench-ca.crt"
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_VARIABLES = (
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"),
    *("CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "NIX_SSL_CERT_FILE", "DENO_CERT"),
)


@dataclass(frozen=True)
class Certificates:
    """Whose certificates sandboxes trust: those of their image, or with `kind` "host" this machine's."""

    kind: str = ""

    @cached_property
    def _bundle(self) -> str | None:
        if self.kind != HOST_BUNDLE:
            return None
        found = next((path for path in _BUNDLES if Path(path).is_file()), None)
        if found is None:
            hint = f"install ca-certificates; looked for {', '.join(_BUNDLES)}"
            raise SandboxError("this machine has no certificate bundle", hint=hint)
        return found

    @property
    def binds(self) -> tuple[Bind, ...]:
        """Return what is shown inside for it."""
        return (Bind(self._bundle, _INSIDE, read_only=True),) if self._bundle is not None else ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which programs find it."""
        return dict.fromkeys(_VARIABLES, _INSIDE) if self._bundle is not None else {}
