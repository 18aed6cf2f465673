"""Programs that end in many ways, on ranks that are started in three ways.

``python -m tests.runs.promises_on_ranks WAY NAME …`` runs programs one after
another, and prints for each a line of JSON: its name, and how it has ended.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from multiprocessing import util
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import dpkit
from dpkit import sim
from dpkit.runs.forked.signals import raise_end_signal
from tests.runs.asleep import wait_until_it_waits

LAUNCH = "PROCESS_OF_THE_LAUNCH"  # the variable that has its number


def is_second():
    return dist.get_rank() == 1


def total():
    x = torch.ones(2)
    dist.all_reduce(x)
    return x.tolist()


class OddError(Exception):
    def __str__(self):
        return self.text_that_is_not_there


def end_well():
    return total()


def raise_before_the_group():
    if os.environ["RANK"] == "1":
        raise ValueError("no group yet")
    dist.init_process_group("gloo")
    total()


def raise_at_once():
    if is_second():
        raise ValueError("too few")
    total()


def raise_an_end_of_file():
    if is_second():
        raise EOFError("ran out")
    total()


def raise_odd():
    if is_second():
        raise OddError
    total()


class Failing(nn.Module):
    def forward(self, x):
        raise ValueError("in forward")


def raise_in_forward():
    (Failing() if is_second() else nn.ReLU())(torch.ones(2))
    total()


def raise_in_backward():
    def fail(gradient):
        raise ValueError("in backward")

    x = torch.ones(2, requires_grad=True)
    y = 2 * x
    if is_second():
        y.register_hook(fail)
    y.sum().backward()
    total()


def raise_in_a_collective():
    total()
    dist.all_reduce("no tensor" if is_second() else torch.ones(2))


def raise_at_exit():
    def fail():
        raise ValueError("at exit")

    atexit.register(fail)
    total()


def exit_3():
    total()
    if is_second():
        sys.exit(3)
    total()


def exit_0():
    total()
    sys.exit(0)


def exit_0_at_once():
    total()
    os._exit(0)


def exit_4_at_once():
    total()
    if is_second():
        os._exit(4)
    total()


def exit_with_a_loss():
    total()
    sys.exit(torch.zeros(()))  # as of sys.exit(main()): words for Python


def exit_in_a_thread():
    """After the end of the program, which waits for its threads."""

    def end():
        threading.Event().wait(0.5)
        os._exit(5 * is_second())

    total()
    threading.Thread(target=end).start()


def wait_in_a_thread():
    def wait():
        threading.Event().wait(60)

    if is_second():
        threading.Thread(target=wait).start()
    total()


def close_the_output():
    sys.stdout.close()
    sys.stderr = None
    total()


def be_terminated():
    total()
    if is_second():
        os.kill(os.getpid(), signal.SIGTERM)
    total()


def be_killed():
    total()
    if is_second():
        os.kill(os.getpid(), signal.SIGKILL)
    total()


def become_another():
    """A child may, and a rank may not: nobody would hear of it."""
    child = os.fork()
    if child == 0:
        os.execlp("true", "true")
    _, status = os.waitpid(child, 0)
    assert status == 0
    if is_second():
        os.execlp("sleep", "sleep", "6")
    total()


def fork_a_child():
    child = os.fork()
    if child == 0:
        return "of the child"
    _, status = os.waitpid(child, 0)
    assert status == 0
    return total()


def launch_in_it():
    try:
        sim.launch(total, 2)
    except RuntimeError as error:
        total()
        return str(error)
    return "launched"


def launch_processes_in_it():
    try:
        dpkit.launch(total, 2, backend="gloo")
    except RuntimeError as error:
        total()
        return str(error)
    return "launched"


def wait_outside():
    if is_second():
        threading.Event().wait(60)
    total()


def interrupt():
    total()
    if is_second():
        os.kill(int(os.environ[LAUNCH]), signal.SIGINT)
        threading.Event().wait(60)
    total()


def save_when_told_to_end():
    """SIGTERM for the launch, as of a cluster, is one for each rank.

    Rank 1 does nothing about it, which keeps rank 0 from nothing.
    """

    def save(*_):
        threading.Event().wait(2.5)  # until the end of rank 1 is known
        x = torch.ones(2, device="sim")
        told = (x + x).tolist(), sim.now() > 0  # which asks the launch
        print(json.dumps(["saved", told]), flush=True)
        sys.exit(0)

    if not is_second():
        signal.signal(signal.SIGTERM, save)
    total()
    if is_second():
        os.kill(int(os.environ[LAUNCH]), signal.SIGTERM)
    threading.Event().wait(60)


def have_a_time_limit():
    """Of its own, which ends while the rank waits for the other.

    Its alarm comes from the other rank, when this one waits for sure.
    """

    def fail(*_):
        raise TimeoutError("own limit")

    if not is_second():
        signal.signal(signal.SIGALRM, fail)
        assert signal.getsignal(signal.SIGALRM) is fail
    process = torch.tensor(os.getpid())
    dist.broadcast(process, 0)
    begins = Path(tempfile.gettempdir(), f"begins-to-wait-{process}")
    if is_second():
        while not begins.exists():
            time.sleep(0.01)
        begins.unlink()
        wait_until_it_waits(int(process))
        os.kill(int(process), signal.SIGALRM)
    else:
        begins.touch()
    told = "not ended"
    try:
        dist.barrier()
    except TimeoutError as error:
        told = str(error)
    return f"{told}, then {total()}"


def leave_a_process():
    total()
    if is_second():
        nowhere = subprocess.DEVNULL  # who reads the output does not wait
        words = ["sleep", "3000"]
        process = subprocess.Popen(words, stdout=nowhere, stderr=nowhere)
        # Where a DataLoader has its sockets; real processes would leave it.
        is_script = "TORCHELASTIC_RUN_ID" in os.environ
        folder = util.get_temp_dir() if is_script else ""
        print(json.dumps(["left", [process.pid, folder]]), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    total()


PROGRAMS = [
    end_well,
    raise_before_the_group,
    raise_at_once,
    raise_an_end_of_file,
    raise_odd,
    raise_in_forward,
    raise_in_backward,
    raise_in_a_collective,
    raise_at_exit,
    exit_3,
    exit_0,
    exit_0_at_once,
    exit_4_at_once,
    exit_with_a_loss,
    exit_in_a_thread,
    wait_in_a_thread,
    close_the_output,
    be_terminated,
    be_killed,
    become_another,
    fork_a_child,
    launch_in_it,
    launch_processes_in_it,
    wait_outside,
    interrupt,
    save_when_told_to_end,
    have_a_time_limit,
    leave_a_process,
]
BY_NAME = {program.__name__: program for program in PROGRAMS}


def threads(program):
    limit = 1.0 if program is wait_outside else None
    return sim.launch(program, 2, idle_limit=limit)


def torchrun(program):
    """Run it as a script; what it prints are its values."""
    from dpkit.runs.torchrun.launching import Settings, run_on_ranks
    from dpkit.runs.torchrun.script import Script

    limit = 1.0 if program in (wait_outside, wait_in_a_thread) else None
    done = run_on_ranks(
        Script("tests.runs.promises_on_ranks", (program.__name__,), True),
        Settings(ranks_per_node=2, idle_limit=limit),
    )
    if done.failure is not None:
        raise done.failure
    return [report is not None for report in done.ranks]


def processes(program):
    limit = 2.0 if program is wait_outside else 1200.0
    return dpkit.launch(program, 2, backend="gloo", timeout_seconds=limit)


WAYS = {f.__name__: f for f in (threads, torchrun, processes)}


def outcome(way, program):
    """Return how a launch of a program ends, in words."""
    try:
        told = f"well: {WAYS[way](program)}"
    except BaseException as error:
        kind = type(error).__name__
        notes = getattr(error, "__notes__", ())
        told = "\n".join([f"{kind}: {error}", *notes])
    return told


def main():
    if "RANK" in os.environ:  # a rank of torchrun, of which this is the script
        program = BY_NAME[sys.argv[1]]
        if program is not raise_before_the_group:
            dist.init_process_group("gloo")
        told = program()
        if told is not None:
            print(json.dumps(["said", told]), flush=True)
        return
    way, *names = sys.argv[1:]
    os.environ[LAUNCH] = str(os.getpid())
    # As the commands have them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, raise_end_signal)
    sim.register()
    sim.configure(num_devices=2, hosts="per_device")
    for name in names:
        print(json.dumps(["begins", name]), flush=True)
        told = outcome(way, BY_NAME[name])
        print(json.dumps(["ended", told]), flush=True)


if __name__ == "__main__":
    main()
