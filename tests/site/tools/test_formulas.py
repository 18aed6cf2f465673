"""Formulas that node sets: how it is started."""

import socket
import sys

import formulas
import pytest
from sphinxcontrib import katex

# Binds its socket, and listens a while later, as node may.
LATE = """
import socket, sys, time
door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
door.bind(sys.argv[1])
time.sleep(0.3)
door.listen()
door.accept()[0].sendall(b"here")
"""

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="sockets are files on Unix"
)


def command(program):
    return lambda socket: [sys.executable, "-c", program, str(socket)]


def test_a_program_that_does_not_listen_yet_is_waited_for(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(katex.KaTeXServer, "build_command", command(LATE))
    program, way = formulas.start_node(tmp_path, 60)
    with program, way:
        assert way.recv(4) == b"here"


def test_a_program_that_never_listens_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(
        katex.KaTeXServer,
        "build_command",
        command("import time; time.sleep(600)"),
    )
    begun = []
    start = formulas.Popen
    monkeypatch.setattr(
        formulas,
        "Popen",
        lambda *a, **k: begun.append(start(*a, **k)) or begun[0],
    )
    with pytest.raises(katex.KaTeXError):
        formulas.start_node(tmp_path, 0.2)
    with begun[0] as program:
        assert program.wait(60) != 0
