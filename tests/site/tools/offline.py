"""Programs in a machine without a network, apart from itself.

Where a user may make a network namespace, a program runs in one, which has
the loopback device alone. Elsewhere, as in some containers, every Python
refuses to connect to other hosts, and proxies lead nowhere.
"""

import os
import subprocess
import sys
from pathlib import Path

NAMESPACE = ("unshare", "--user", "--map-root-user", "--net")
# A new namespace has a loopback device that is down; SIOCSIFFLAGS, IFF_UP.
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as up:
    fcntl.ioctl(up, 0x8914, struct.pack("16sh22x", b"lo", 1))
os.execvp(sys.argv[1], sys.argv[1:])
"""
REFUSING = """
import socket

class Refusing(socket.socket):
    def connect(self, address):
        _look(self, address)
        return super().connect(address)

    def connect_ex(self, address):
        _look(self, address)
        return super().connect_ex(address)

def _look(own, address):
    here = "127.0.0.1", "::1", "localhost"
    if own.family != socket.AF_UNIX and address[0] not in here:
        raise OSError(f"Network is unreachable: {address[0]}")

socket.socket = Refusing
"""
NOWHERE = "http://127.0.0.1:9"  # discards what it is sent, if it is there


def namespaces() -> bool:
    """Return whether this user may make a network namespace."""
    words = [*NAMESPACE, sys.executable, "-c", LOOPBACK, "true"]
    try:
        return subprocess.run(words, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def in_namespace(words: list[str]) -> list[str]:
    """Return the command that runs another one in a network namespace."""
    return [*NAMESPACE, sys.executable, "-c", LOOPBACK, *words]


def refusing(folder: Path) -> dict[str, str]:
    """Return variables by which Pythons refuse; they need a new folder."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(REFUSING)
    places = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "http_proxy": NOWHERE,
        "https_proxy": NOWHERE,
    }
