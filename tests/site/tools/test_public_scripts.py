"""The recorder of scripts that others wrote."""

import json
from pathlib import Path
from typing import Any

import pytest
from recorders.public.compare import largest_difference
from recorders.public.run import Ended, Runner, failure
from recorders.public.table import PublicScript, read_table

TOY = """
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(0)
net = DistributedDataParallel(torch.nn.Linear(8, 4).cuda(), device_ids=[rank])
optimizer = torch.optim.SGD(net.parameters(), 0.1)
torch.manual_seed(rank)
for _ in range(3):
    X = torch.randn(2, 8).to(f"cuda:{rank}")
    net(X).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def write(path: Path, ranks: int, *steps: Any) -> None:
    """Write the sums of steps, on each rank."""
    for rank in range(ranks):
        lines = "\n".join(json.dumps(step) for step in steps)
        path.with_name(f"{path.name}.{rank}").write_text(lines)


def test_names_in_the_table_are_different() -> None:
    names = [script.name for script in read_table()]
    assert len(names) == len(set(names)) >= 30


def test_a_field_that_is_not_known_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "scripts.toml"
    row = '[[script]]\nname="a"\nrepository="b/c"\nscript="d"\n'
    table.write_text(row + "rank = 2\n")
    with pytest.raises(TypeError, match="rank"):
        read_table(table)


def test_places_are_put_into_arguments() -> None:
    script = PublicScript("a", "b/c", "d", arguments=["--data={made}/images"])
    words = script.filled(script.arguments, {"made": "/m"})
    assert words == ["--data=/m/images"]


def test_the_largest_difference_is_relative_to_the_norm(
    tmp_path: Path,
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    same = [[[2], 1.0, 4.0]]
    write(ours, 2, same, [[[2], 1.0, 4.0]])
    write(theirs, 2, same, [[[2], 1.5, 4.0]])
    found = largest_difference(ours, theirs)
    assert found == {"steps": 2, "parameters": 1, "difference": 0.125}


@pytest.mark.parametrize("other", [[[3], 1.0, 4.0], [[2], float("nan"), 4.0]])
def test_other_shapes_and_no_numbers_are_infinitely_far(
    tmp_path: Path, other: Any
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(ours, 1, [[[2], 1.0, 4.0]])
    write(theirs, 1, [other])
    found = largest_difference(ours, theirs)
    assert found["difference"] == float("inf")


def test_without_steps_there_is_no_difference(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    write(ours, 2, [[[2], 1.0, 4.0]])
    assert largest_difference(ours, theirs)["difference"] is None


def test_the_reason_of_a_failure_is_that_of_the_rank() -> None:
    said = "Traceback\npython -m dpkit torchrun: rank 1 failed (Error: no)\n"
    ended = Ended(1, said, 0.0, 0.0)
    assert failure(ended) == "rank 1 failed (Error: no)"
    assert failure(Ended(0, said, 0.0, 0.0)) == ""
    assert "stopped" in failure(Ended(None, said, 0.0, 0.0))


def test_a_script_leaves_the_same_on_both(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.py").write_text(TOY)
    script = PublicScript("toy", "none/toy", "toy.py", steps=2, compared=True)
    row = Runner(tmp_path, tmp_path / "logs").record(script)
    assert row["ran"], row["failed"]
    assert row["step"]
    assert row["peak"]
    found = row["compared"]
    assert (found["steps"], found["parameters"]) == (2, 2), found
    assert found["difference"] == 0.0
