"""Whether hosts can be reached from here, tried as the relay would: by this machine's proxy, else directly."""

import ssl
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import closing
from http.client import HTTPException, HTTPSConnection
from urllib.request import getproxies_environment

from terminalbench.sandbox.network.upstream import Proxies, Proxy

PATIENCE_SEC = 6.0
PROXY = "proxy"
"""The place of a host that is reached by a proxy, which alone knows its address."""
_PORT = 443
_known: dict[tuple[str, Proxy | None], str | None] = {}


def reached(hosts: Collection[str]) -> Mapping[str, str]:
    """Return the hosts that answer a TLS greeting, each with its address, or `PROXY`.

    All are tried at once, for a few seconds, and once in a process. No certificate is looked at: it is the sandbox's
    programs that trust it or do not.
    """
    proxies = Proxies.of(getproxies_environment())
    ways = {host: proxies.for_host(host, _PORT) for host in hosts}
    threads = []
    for way in {(host, proxy) for host, proxy in ways.items() if (host, proxy) not in _known}:
        # A daemon: a name server that does not answer must not hold up the end of this process.
        threads.append(threading.Thread(target=_try, args=way, daemon=True))
        threads[-1].start()
    end = time.monotonic() + PATIENCE_SEC
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    found = {host: _known.setdefault((host, proxy), None) for host, proxy in ways.items()}
    return {host: address for host, address in found.items() if address is not None}


def _try(host: str, proxy: Proxy | None) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    target = (proxy.host, proxy.port) if proxy is not None else (host, _PORT)
    with closing(HTTPSConnection(*target, timeout=PATIENCE_SEC, context=context)) as connection:
        if proxy is not None:
            login = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
            connection.set_tunnel(host, _PORT, login)
        try:
            connection.connect()
            address = connection.sock.getpeername()[0] if proxy is None else PROXY
        except (OSError, HTTPException, ValueError):
            address = None
    _known.setdefault((host, proxy), address)
