"""Scripts of released packages, as they are, on simulated GPUs.

They are run by `make test ON=packages`, in an environment with these packages.
The scripts of Accelerate compare what they compute with what is expected.
"""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.repository import ROOT

HERE = Path(__file__).parent
PINS = (HERE / "requirements.txt").read_text().splitlines()


def torchrun(*words, folder, ranks=2):
    """Run a script on ranks; return what is printed."""
    command = [sys.executable, "-W", "ignore", "-m", "dpkit", "torchrun"]
    done = subprocess.run(
        [*command, f"--nproc-per-node={ranks}", *words],
        cwd=folder,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "TORCHELASTIC_RUN_ID": "none",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_packages_are_those_that_are_pinned():
    pins = [line.split("==") for line in PINS if "==" in line]
    assert pins
    assert {name: version(name) for name, _ in pins} == dict(pins)


@pytest.mark.parametrize(
    ("script", "ranks", "last"),
    [
        ("test_cli", 2, "Successfully ran on 2 GPUs"),
        ("test_ops", 2, "testing sending tensors across devices"),
        ("test_ops", 3, "testing sending tensors across devices"),
        ("test_sync", 2, "`sync_each_batch=True`**"),
        ("test_distributed_data_loop", 2, "an instance of `BatchSampler`"),
        ("test_script", 2, "**Test reinstantiated state**"),
        ("test_ddp_comm_hook", 2, "batched_power_sgd, comm wrapper: bf16"),
        ("test_merge_weights", 2, "merged FSDP weights and saved to"),
    ],
)
def test_a_script_of_accelerate_passes(tmp_path, script, ranks, last):
    module = f"accelerate.test_utils.scripts.{script}"
    text = torchrun("-m", module, folder=tmp_path, ranks=ranks)
    assert last in text
    is_simulated = "What is sent (counted)" in text
    assert is_simulated or script == "test_cli"  # which sends nothing


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize(
    "program", ["train_boring_model.py", "train_with_fabric.py"]
)
def test_lightning_computes_what_one_process_does(tmp_path, program, strategy):
    text = torchrun(HERE / program, strategy, tmp_path, folder=tmp_path)
    assert "backend nccl" in text
    for rank in range(2):
        assert f"rank {rank}: " in text
    assert text.count("as in one process") == 2
