"""Running the dashboard until it is interrupted."""

import socket
from collections.abc import Callable
from types import FrameType

from terminalbench.dashboard.app import make_app
from terminalbench.dashboard.refresh import Refresher
from terminalbench.dashboard.security import Access
from terminalbench.dashboard.site import Site
from terminalbench.errors import UserError


def serve(site: Site, access: Access, port: int, ready: Callable[[str], None]) -> None:
    """Serve until interrupted. `ready` gets the address to open once it can be opened."""
    import uvicorn

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            site.closing = True  # open streams end by themselves, and nobody waits for them
            super().handle_exit(sig, frame)

    bound = _bind(access.host, port)
    refresher = Refresher(site)
    try:
        refresher.start()
        ready(address(access, bound.getsockname()[1]))
        config = uvicorn.Config(
            make_app(site, access),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
        )
        Server(config).run(sockets=[bound])
    except KeyboardInterrupt:
        return
    finally:
        refresher.stop()
        bound.close()


def address(access: Access, port: int) -> str:
    """The address a person opens, with the token if one is needed."""
    name = socket.gethostname() if access.host in ("0.0.0.0", "::") else access.host  # noqa: S104  recognised, not bound
    host = f"[{name}]" if ":" in name else name
    return f"http://{host}:{port}/" + (f"?token={access.token}" if access.token else "")


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
