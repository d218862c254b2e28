"""Running the dashboard until it is interrupted, with connections that are bounded in number and patience."""

import socket
from collections.abc import Callable
from types import FrameType
from typing import override

import uvicorn

from terminalbench.dashboard.app import make_app
from terminalbench.dashboard.connections import Connection
from terminalbench.dashboard.refresh import Refresher
from terminalbench.dashboard.security import Access
from terminalbench.dashboard.site import Site
from terminalbench.errors import UserError


class SiteServer(uvicorn.Server):
    """The server of a site; see `dashboard.connections` for how long it waits for what."""

    def __init__(self, site: Site, access: Access) -> None:
        self._site = site
        config = uvicorn.Config(
            make_app(site, access),
            http=Connection,
            ws="none",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        super().__init__(config)

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End; open streams end by themselves."""
        self._site.closing = True
        super().handle_exit(sig, frame)


def serve(site: Site, access: Access, port: int, ready: Callable[[str, str], None]) -> None:
    """Serve until interrupted. `ready` gets the address for people, and one that can be opened once, when it is up."""
    bound = _bind(access.host, port)
    refresher = Refresher(site)
    try:
        refresher.start()
        number = bound.getsockname()[1]
        ready(address(access.host, number, access.token), address(access.host, number, access.once or access.token))
        SiteServer(site, access).run(sockets=[bound])
    except KeyboardInterrupt:
        return
    finally:
        refresher.stop()
        bound.close()


def address(host: str, port: int, token: str) -> str:
    """The address a person opens, with a token."""
    name = socket.gethostname() if host in ("0.0.0.0", "::") else host  # noqa: S104  recognised, not bound
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/?token={token}"


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)  # whoever comes before the server is up waits for it
    except OSError as error:
        bound.close()
        raise UserError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hint="another --port may be free"
        ) from None
    return bound
