"""PyTorch's process group for NCCL runs on the double."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", 2)


@pytest.fixture(scope="module")
def told(run: Any) -> dict[str, Any]:
    ended = run(2, *TORCHRUN, HERE / "program_of_ranks.py")
    assert ended.returncode == 0, ended.stderr[-3000:]
    (line,) = [x for x in ended.stdout.splitlines() if x.startswith("{")]
    return json.loads(line)


def test_ddp_equals_one_device(told: dict[str, Any]) -> None:
    assert told["ddp_with_synchronized_batch_norm"]


def test_fsdp_equals_one_device(told: dict[str, Any]) -> None:
    assert told["fsdp"]


def test_collectives(told: dict[str, Any]) -> None:
    assert told["collectives"] == {
        "SUM": [10, 12, 14, 16],
        "PRODUCT": [0, 11, 24, 39],
        "MAX": [10, 11, 12, 13],
        "MIN": [0, 1, 2, 3],
        "AVG": [5, 6, 7, 8],
        "broadcast": [10, 11, 12, 13],
        "all_gather": [0, 1, 2, 3, 10, 11, 12, 13],
        "reduce_scatter": [10, 12],
        "all_to_all": [0, 1, 10, 11],
        "bfloat16": [10, 12, 14, 16],
    }


def test_messages_and_objects(told: dict[str, Any]) -> None:
    assert told["messages"] == {
        "round": [1, 1, 1],
        "all": [{"rank": 0}, {"rank": 1}],
        "sent": [{"from": 1}],
    }


def test_the_engines_have_no_race(told: dict[str, Any]) -> None:
    assert told["findings"] == []


def test_a_collective_that_nobody_waits_for(told: dict[str, Any]) -> None:
    (finding,) = told["without a wait"]
    assert "read by mul" in finding
    assert "write by nccl all_reduce" in finding


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("one GPU for two", "Duplicate GPU detected"),
        # PyTorch 2.15 refuses by itself what NCCL refused before.
        ("no set_device", "Duplicate GPU detected|Expected tensor on cuda:1"),
        ("other shapes", "ranks differ in call"),
        ("a rank is missing", "waits for rank 1"),
    ],
)
def test_what_nccl_does_not_bear(fault: str, error: str, run: Any) -> None:
    is_to_wait = fault == "a rank is missing"
    limit = {"CUDA_DOUBLE_NCCL_SECONDS": "10"} if is_to_wait else {}
    program = HERE / "program_of_wrong_ranks.py"
    ended = run(2, *TORCHRUN, program, fault, **limit)
    assert ended.returncode != 0
    assert re.search(error, ended.stderr)
