"""``python -m dpkit check`` puts back what a script writes."""

import sys

import pytest

from tests.runs.running_scripts import command

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

# It goes on from its checkpoint, as after a failure of the machine.
SCRIPT = """
import os, shutil, sys, torch, torch.distributed as dist
from pathlib import Path
from torch import nn

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
net = nn.Linear(4, 2)
nn.init.ones_(net.weight)
if os.path.exists("last.pt"):
    net.load_state_dict(torch.load("last.pt"))
net = nn.parallel.DistributedDataParallel(net.cuda())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
if rank == 0:
    Path("data.bin").write_bytes(b"downloaded")
x = torch.arange(16.0).view(4, 4).chunk(world)[rank].cuda()
for step in range(3):
    optimizer.zero_grad()
    net(x).square().mean().backward()
    optimizer.step()
    if rank:
        continue
    with open("log.txt", "a") as log:
        print(step, file=log)
    os.makedirs("out/new", exist_ok=True)
    torch.save(net.module.state_dict(), "last.pt")
    torch.save(net.module.state_dict(), f"out/new/{step}.pt")
    if step == 0:
        torch.save(net.module.state_dict(), "out/best.pt")
        os.rename("moved.txt", "out/moved.txt")
        shutil.rmtree("gone")
    if "fails" in sys.argv:
        raise ValueError("step")
"""


def files_in(folder):
    """Return the bytes of each file, by its path; of a folder, None."""
    return {
        str(path.relative_to(folder)): None
        if path.is_dir()
        else path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.slow
@pytest.mark.untraced  # coverage writes files, too
def test_files_are_as_before(tmp_path):
    """And one rank does not go on from what the ranks have written."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "out").mkdir()
    (tmp_path / "gone" / "inside").mkdir(parents=True)
    for name in ("log.txt", "moved.txt", "out/best.pt", "gone/inside/a"):
        (tmp_path / name).write_text(f"old {name}")
    before = files_in(tmp_path)
    for arguments, status, sentence in [
        ([], 0, "2 ranks compute the gradients of one"),
        (["fails"], 2, "rank 0 failed (ValueError: step)"),
    ]:
        process = command(
            "check", "--steps", "3", "script.py", *arguments, cwd=tmp_path
        )
        text, _ = process.communicate()
        assert process.returncode == status, text
        assert sentence in text
        assert (
            "the script has written files in this check: gone, log.txt, "
            "moved.txt, out/best.pt (put back as it was); last.pt, "
            "out/moved.txt, out/new (removed again)"
        ) in text
        if "data.bin" not in before:
            assert "data.bin (kept, as it was made before the first" in text
            before["data.bin"] = b"downloaded"
        assert files_in(tmp_path) == before
