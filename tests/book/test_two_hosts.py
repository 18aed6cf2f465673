"""The training job on two hosts, and what it says when the cable is cut.

The hosts are network namespaces of this machine, each with a name of its
own, joined by a pair of virtual interfaces.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ADDRESSES = {"host-a": "10.177.31.1", "host-b": "10.177.31.2"}
WORDS = ["--model", "linear", "--batch-size", "500"]
EVERY = ["--checkpoint-every", "5"]
TIMEOUT_SECONDS = 5
# TCP alone would notice the cut after a quarter of an hour.
DEADLINE_SECONDS = 300

pytestmark = pytest.mark.weekly


def ip(*words):
    return subprocess.run(
        ["ip", *words], check=True, capture_output=True, text=True
    )


class Hosts:
    """Two hosts and the cable between them."""

    def __init__(self, folder):
        self.folder = folder
        self.names = {
            name: f"dpkit-{os.getpid()}-{name}" for name in ADDRESSES
        }
        self.started = []

    def set_up(self):
        table = [f"{address} {name}\n" for name, address in ADDRESSES.items()]
        (self.folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(table)
        )
        for name in self.names.values():
            ip("netns", "add", name)
        a, b = self.names.values()
        ip("link", "add", "cable", "netns", a, "type", "veth",
           "peer", "name", "cable", "netns", b)  # fmt: skip
        for name, address in ADDRESSES.items():
            inside = ("-n", self.names[name])
            ip(*inside, "address", "add", f"{address}/24", "dev", "cable")
            ip(*inside, "link", "set", "lo", "up")
            ip(*inside, "link", "set", "cable", "up")

    def tear_down(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        for name in self.names.values():
            subprocess.run(["ip", "netns", "pids", name], check=False)
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def cable(self, state):
        ip("-n", self.names["host-a"], "link", "set", "cable", state)

    def num_processes(self):
        return sum(
            len(ip("netns", "pids", name).stdout.split())
            for name in self.names.values()
        )

    def start(self, name, *words):
        """Start what a reader types on a host; return it running."""
        script = (
            f"mount --bind {self.folder}/hosts /etc/hosts && "
            f'hostname {name} && exec "$@"'
        )
        command = [
            "ip", "netns", "exec", self.names[name],
            "unshare", "--uts", "--mount", "sh", "-c", script, "sh",
            sys.executable, "-m", "torch.distributed.run",
            "--nnodes", "2", "--node-rank", str(list(ADDRESSES).index(name)),
            "--nproc-per-node", "1", "--master-addr", "host-a",
            "--master-port", "29400", "-m", "dpbook", "train",
            "--timeout", str(TIMEOUT_SECONDS), *map(str, words),
        ]  # fmt: skip
        log = self.folder / f"log-{len(self.started)}"
        with log.open("w") as file:
            process = subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "TMPDIR": str(self.folder),  # torchrun leaves a folder
                    "OMP_NUM_THREADS": "1",
                    "CUDA_VISIBLE_DEVICES": "",
                },
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        process.log = log
        return process


@pytest.fixture
def hosts(tmp_path):
    hosts = Hosts(tmp_path)
    if not all(map(shutil.which, ("ip", "unshare", "mount"))):
        pytest.skip("no ip, unshare or mount here, to make two hosts of one")
    try:
        try:
            hosts.set_up()
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", None) or error
            pytest.skip(f"no network namespaces here: {str(told).strip()}")
        yield hosts
    finally:
        hosts.tear_down()
    assert not set(hosts.names.values()) & set(os.listdir("/run/netns"))


def digest(told):
    (found,) = re.findall(r"sha256 of the parameters (\w{64})\n", told)
    return found


def wait_for(log: Path, words: str) -> None:
    deadline = time.monotonic() + 1200
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.01)


RANK = """
import sys
from dpbook.__main__ import main
sys.exit(main(["train", *sys.argv[1:]]))
"""


def on_one_host(popen, environments, *words):
    """Return what two ranks of one host print, by a Popen."""
    ranks = [
        popen(
            [sys.executable, "-c", RANK, *words],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "", **environment},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for environment in environments(2)
    ]
    told = [rank.communicate()[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return told[0]


def test_two_hosts_and_a_cut_cable(forking, environments, hosts, tmp_path):
    """Taken up after the cut, the run ends as one that was all on one."""
    folder = tmp_path / "checkpoints"
    long = [*WORDS, "--max-steps", "1000000", *EVERY, "--checkpoint", folder]
    both = [hosts.start(name, *long) for name in ADDRESSES]
    wait_for(both[0].log, "step 20 of")
    hosts.cable("down")
    codes = [process.wait(DEADLINE_SECONDS) for process in both]
    assert codes == [1, 1]
    for rank, (mine, other) in enumerate(([*ADDRESSES], [*ADDRESSES][::-1])):
        told = (
            f"rank {rank} on {mine} stops: no answer from rank {1 - rank} on "
            f"{other} (why: "
        )
        assert told in both[rank].log.read_text()
    assert hosts.num_processes() == 0

    steps = max(int(path.name[5:13]) for path in folder.glob("*.ckpt"))
    goal = [*WORDS, "--max-steps", str(steps + 7)]
    told = [
        on_one_host(forking.Popen, environments, *goal, *words)
        for words in (["--checkpoint", str(folder)], [])
    ]
    assert f"resumed from {folder}/step-{steps:08d}-" in told[0]
    assert digest(told[0]) == digest(told[1])
