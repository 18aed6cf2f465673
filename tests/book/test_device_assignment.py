"""Each rank of a job has its own GPU, or all compute on the CPU."""

import os
import subprocess
import sys

import pytest
import torch
from torch.distributed import HashStore

from dpbook.job import device_assignment
from dpbook.job.device_assignment import choose_device, why_cpu

TRAIN = "train --model linear --batch-size 500 --max-steps 2".split()


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        (["a"], ""),
        ([""], ""),
        (["a", "b", "c"], ""),
        (["", "", ""], ""),
        (["a", "a"], "ranks 0 and 1 see the same GPU"),
        (["c", "a", "b", "a", "a"], "ranks 1, 3 and 4 see the same GPU"),
        (["a", "", "b"], "rank 1 has no GPU"),
        (["a", "a", ""], "rank 2 has no GPU"),
    ],
)
def test_why_the_cpu_computes(numbers, reason):
    assert why_cpu(numbers) == reason


def test_a_rank_takes_the_gpu_of_its_number_or_the_only_one(monkeypatch):
    def taken(num_gpus, local_rank):
        gpus = [torch.device("cuda", i) for i in range(num_gpus)]
        monkeypatch.setattr(device_assignment, "gpus_for_ranks", lambda: gpus)
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        return device_assignment._taken()

    assert taken(4, 3) == torch.device("cuda:3")
    assert taken(1, 3) == torch.device("cuda:0"), "Slurm gives each rank one"
    assert taken(2, 3) is None, "two are not enough, nor is one its own"
    assert taken(0, 0) is None


@pytest.mark.parametrize("others", ["a", ""])
@pytest.mark.parametrize("gpu", [torch.device("cuda:0"), None])
def test_all_ranks_choose_the_cpu_together(gpu, others, monkeypatch):
    """A rank that has its own GPU is on the CPU if another one has none."""
    monkeypatch.setattr(device_assignment, "_taken", lambda: gpu)
    monkeypatch.setattr(device_assignment, "_serial_number", lambda gpu: "a")
    store = HashStore()
    store.set("gpu/1", others)
    device, reason = choose_device(0, world_size=2, store=store)
    assert device == torch.device("cpu")
    assert bool(reason) == bool(gpu or others)


def test_a_rank_makes_its_gpu_the_current_one(monkeypatch, pretend_gpus):
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(device_assignment, "_serial_number", str)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    store, gpu = HashStore(), torch.device("cuda:1")
    store.set("gpu/0", "cuda:0")
    pretend_gpus(2)
    assert choose_device(1, world_size=2, store=store) == (gpu, "")
    assert chosen == [gpu]
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    assert choose_device(1, world_size=2, store=store)[0] == torch.device(
        "cpu"
    )
    assert chosen == [gpu]


def train(visible, environments):
    """Run two ranks, each of which sees the GPUs given; return rank 0's."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "dpbook", *TRAIN],
            env=os.environ | environment | {"CUDA_VISIBLE_DEVICES": seen},
            stdout=subprocess.PIPE,
            text=True,
        )
        for environment, seen in zip(environments(2), visible)
    ]
    try:
        told = [rank.communicate(timeout=1200)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], told
    return told[0].splitlines()


@pytest.mark.cuda
def test_ranks_on_one_gpu_say_why_the_cpu_computes(need_gpus, environments):
    need_gpus(1)
    first, second, *_ = train(["0", "0"], environments)
    assert first.startswith("linear on 2 x cpu (gloo)")
    assert second == "the CPU computes, because ranks 0 and 1 see the same GPU"


@pytest.mark.cuda
@pytest.mark.parametrize("visible", [["0", "1"], ["0,1", "0,1"]])
def test_ranks_with_a_gpu_each_train_on_them(need_gpus, environments, visible):
    """Also where each sees one alone, as under Slurm."""
    need_gpus(2)
    first, second, *_ = train(visible, environments)
    assert first.startswith("linear on 2 x cuda (nccl)")
    assert "CPU" not in second
