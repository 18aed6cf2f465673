"""Ranks of torchrun that wait for each other outside of torch are named."""

import fcntl
import os
import subprocess
import sys

import pytest

from dpkit.runs.ranks import watching
from tests.forked_python import popen

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

MAIN = """
import sys
from dpkit.__main__ import main
from dpkit.runs.ranks import watching
watching.WARN_AFTER = 0.1
sys.exit(main())
"""
SCRIPT = """\
import fcntl
import torch.distributed as dist
dist.init_process_group("gloo")
def take_the_lock():
    with open("lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
if dist.get_rank() == 1:
    print(open("pipe").read())
if dist.get_rank() == 2:
    take_the_lock()
dist.barrier()
print("has gone on", flush=True)
"""
ADVICE = "No other rank is at work: if it waits for one of them, outside of"


@pytest.mark.slow
def test_ranks_that_wait_outside_of_torch_are_named(tmp_path):
    """Each with its line, once, and the run goes on when they can."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    os.mkfifo(tmp_path / "pipe")
    places = {
        "rank 1": f"(line 8 of {script}, in <module>). {ADVICE}",
        "rank 2": f"(line 6 of {script}, in take_the_lock). {ADVICE}",
    }
    # Without a warning the limit ends them.
    options = ["--nproc-per-node", "3", "--idle-limit", "600"]
    text = ""
    with open(tmp_path / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = popen(
            [sys.executable, "-c", MAIN, "torchrun", *options, script],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        named = set()
        while named != set(places):
            line = run.stdout.readline()
            assert line, text
            text += line
            for rank, place in places.items():
                if f"{rank} has done nothing for" in line and place in line:
                    named.add(rank)
    # The lock is free now.
    (tmp_path / "pipe").write_text("written")
    rest, _ = run.communicate()
    assert run.returncode == 0, rest
    assert "written" in rest
    assert rest.count("has gone on") == 3
    assert all((text + rest).count(place) == 1 for place in places.values())
    barrier = f"line 11 of {script}"
    assert barrier not in text + rest


ASKED_WHILE_IT_STARTS = """
import signal
import time
from dpkit.runs.forked import idle, running
end_with_parent = running._end_with_parent
def wait_until_asked():
    end_with_parent()
    while idle.ASKS not in signal.sigpending():
        time.sleep(0.01)
    print("asked", flush=True)
running._end_with_parent = wait_until_asked
"""


@pytest.mark.slow
def test_a_rank_that_is_asked_while_it_starts_is_not_ended(tmp_path):
    """It cannot tell yet where it is."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("get_rank() == ", "get_rank() == -"))
    program = ASKED_WHILE_IT_STARTS + MAIN
    run = popen(
        [sys.executable, "-c", program, "torchrun", "--nproc-per-node", "2",
         script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    told, _ = run.communicate()
    assert run.returncode == 0, told
    assert told.count("asked\n") == 2
    assert told.count("has gone on") == 2


class OverWatch(watching.IdleWatch):
    """Ranks of which one has ended its program, and uses no CPU."""

    def progress(self):
        return 0

    def used(self):
        return 0.0

    def ready(self):
        return set()

    def places(self):
        return {None: [1]}


def test_a_rank_at_no_line_of_a_program_is_named_too(monkeypatch):
    """It may wait, at its end, for a queue to be read."""
    monkeypatch.setattr(watching, "WARN_AFTER", 0.0)
    watch = OverWatch()
    watch.look()
    told = r"rank 1 has done nothing for \d+ s \(at no known line, as where"
    with pytest.warns(RuntimeWarning, match=told):
        watch.look()
