"""A machine that is not fit for the tests is told why, in one sentence."""

import ast
import re
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import fit_for_tests
import pytest
import torch

from tests.running import workers


def fail(*args, **kwargs):
    raise OSError("planted")


def plant_old_python(patch):
    patch.setattr(sys, "version_info", (3, 10, 2))
    return "Python 3.11 or newer is needed"


def plant_no_place_to_write(patch):
    patch.setattr(tempfile, "TemporaryFile", fail)
    return r"no file can be written \(planted\); .* TMPDIR"


def plant_a_full_disk(patch):
    usage = SimpleNamespace(free=3 * 10**8)
    patch.setattr(shutil, "disk_usage", lambda folder: usage)
    return r"the tests need 2 GB of disk \(in .* are free: 0\.3 GB\)"


def plant_a_full_memory(patch):
    patch.setattr(workers, "available_memory", lambda: 12 * 10**8)
    return r"a worker needs 2\.5 GB of memory \(available: 1\.2 GB\)"


def plant_no_loopback(patch):
    patch.setattr(socket, "create_server", fail)
    return r"no port of the loopback can be used \(127\.0\.0\.1: planted\)"


def plant_an_unknown_name(patch):
    # A name under .invalid is never found (RFC 6761).
    patch.setattr(socket, "gethostname", lambda: "this-host.invalid")
    return r"its own name \(this-host\.invalid: .*\); add a line to /etc/hosts"


def plant_the_name_of_another(patch):
    # The address belongs to no machine (RFC 5737).
    look_up = socket.getaddrinfo

    def found(name, *args):
        if name == socket.gethostname():
            name = "203.0.113.7"
        return look_up(name, *args)

    patch.setattr(socket, "getaddrinfo", found)
    return r"its own name \(.*: 203\.0\.113\.7 is another machine\)"


def plant_no_processes(patch):
    patch.setattr(sys, "executable", "/nowhere/python")
    return r"no process can be started \(.*/nowhere/python"


def plant_no_torch(patch):
    patch.setitem(sys.modules, "torch", None)
    return r"torch cannot be imported \(ModuleNotFoundError: .*\); install"


def plant_an_old_torch(patch):
    patch.setattr(torch, "__version__", "2.9.1+cpu")
    return r"torch is too old \(here: 2\.9\.1\+cpu, needed: 2\.11\)"


def plant_another_torchvision(patch):
    class Broken:
        def __getattr__(self, name):
            raise RuntimeError("operator torchvision::nms does not exist")

    patch.setitem(sys.modules, "torchvision", Broken())
    return r"torchvision cannot be imported \(RuntimeError: operator"


def plant_ranks_that_do_not_meet(patch):
    program = "import sys; sys.exit('first\\nno interface is found')"
    patch.setattr(fit_for_tests, "RANK", program)
    return r"two processes do not meet by gloo \(no interface is found\)"


PLANTS = [
    value for name, value in globals().items() if name.startswith("plant_")
]


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_fault_is_one_sentence(plant, monkeypatch, capsys):
    expected = plant(monkeypatch)
    assert fit_for_tests.main() == 1
    out, said = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        rf"The tests cannot run here: .*{expected}.*\.\n", said
    )


def test_an_older_python_can_read_it():
    source = Path(fit_for_tests.__file__).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 8))


def test_a_machine_that_is_fit_is_told_nothing(monkeypatch, capsys):
    program = "import sys"  # ranks that meet: `make test` itself starts some
    monkeypatch.setattr(fit_for_tests, "RANK", program)
    assert fit_for_tests.main() == 0
    assert capsys.readouterr() == ("", "")
