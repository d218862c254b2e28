"""Run a command on a machine of its own, in a small world: `python world.py COMMAND...`, from root.

The machine is a network namespace with one interface and no other way out; the world is a second one behind it, with
the public address 203.0.113.9, on which every UDP packet to port 7 and every TCP connection to port 7 is answered with
`WORLD`, and every question for a name with that address. In a mount namespace of its own the machine's resolv.conf names
that address, and /dev/net/tun is open to all, as it is on most machines.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from ordinary import _MS_BIND, _MS_PRIVATE, _MS_REC, mount

PUBLIC = "203.0.113.9"
MACHINE = "203.0.113.1"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=600)


def answer(packet: bytes) -> bytes:
    """Of a question for a name: that address, if an IPv4 address is asked for."""
    end = packet.index(0, 12) + 5
    wanted = packet[end - 4 : end - 2] == b"\0\x01"
    record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04" + socket.inet_aton(PUBLIC) if wanted else b""
    return packet[:2] + b"\x81\x80\0\x01" + (b"\0\x01" if wanted else b"\0\0") + b"\0\0\0\0" + packet[12:end] + record


def serve(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.bind((PUBLIC, port))
        while True:
            packet, whence = door.recvfrom(2000)
            door.sendto(answer(packet) if port == 53 else b"WORLD", whence)


def accept() -> None:
    with socket.create_server((PUBLIC, 7)) as door:
        while True:
            with door.accept()[0] as client:
                client.sendall(b"WORLD")


def world(ready: int, go: int) -> None:
    os.unshare(os.CLONE_NEWNET)
    os.write(ready, b"!")
    os.read(go, 1)
    ip("address", "add", f"{PUBLIC}/24", "dev", "world")
    ip("link", "set", "world", "up")
    ip("link", "set", "lo", "up")
    for port in (7, 53):
        threading.Thread(target=serve, args=(port,), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    os.write(ready, b"!")
    signal.pause()


if __name__ == "__main__":
    ready, ready_end = os.pipe()
    go, go_end = os.pipe()
    os.unshare(os.CLONE_NEWNET | os.CLONE_NEWNS)
    mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    if (there := os.fork()) == 0:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        world(ready_end, go)
    os.read(ready, 1)
    ip("link", "add", "eth0", "type", "veth", "peer", "name", "world", "netns", str(there))
    ip("address", "add", f"{MACHINE}/24", "dev", "eth0")
    ip("address", "add", "10.9.8.7/24", "dev", "eth0")
    for name in ("lo", "eth0"):
        ip("link", "set", name, "up")
    ip("route", "add", "default", "via", PUBLIC)
    os.write(go_end, b"!")
    os.read(ready, 1)
    mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755")
    Path("/mnt/resolv.conf").write_text(f"nameserver {PUBLIC}\n")
    Path("/mnt/resolv.conf").chmod(0o644)
    mount("/mnt/resolv.conf", os.path.realpath("/etc/resolv.conf"), None, _MS_BIND)
    os.mknod("/mnt/tun", 0o20666, os.makedev(10, 200))
    Path("/mnt/tun").chmod(0o666)
    mount("/mnt/tun", "/dev/net/tun", None, _MS_BIND)
    os.execv(sys.argv[1], sys.argv[1:])
