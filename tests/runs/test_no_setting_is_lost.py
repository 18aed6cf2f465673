"""What stands in for PyTorch's functions uses each setting, or says so.

A setting that is dropped in silence lets a script compute something else. So
each parameter of these functions is read, or stands here with the reason why
nothing is lost.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpkit
from tests.runs.running_scripts import section, torchrun

ROOT = Path(dpkit.__file__).parent
PLACES = (
    "runs/cuda_names",
    "sim/parallel",
    "sim/streams",
    "runs/ranks/group.py",
    "runs/ranks/rank_group.py",
    "runs/ranks/store.py",
    "runs/ranks/works.py",
)
NO_BODY = "each kind of ranks has its own"
NOTED = "the report says so"
REFUSED = "the call is refused"
NOTHING_ELSE = "there is nothing else that it could mean here"
UNREAD = {
    "runs/ranks/rank_group.py _perform(call, tensors, outs)": NO_BODY,
    "runs/ranks/rank_group.py _work(called, outs)": NO_BODY,
    "runs/cuda_names/not_modelled.py compile_nothing(options)": NOTED,
    "runs/cuda_names/not_modelled.py record_no_memory(_, __)": NOTED,
    "runs/cuda_names/not_modelled.py refuse(args, kwargs)": REFUSED,
    "runs/cuda_names/cuda_module.py nothing(_, __)": (
        "hardware's own affairs: its profiler, its sensors, its debug modes"
    ),
    "runs/cuda_names/loading.py storage_to_cuda(non_blocking)": (
        "a storage moves as a whole while the host waits: no other result"
    ),
    "runs/cuda_names/patches.py lambda(given)": "all devices are meant",
    "sim/streams/sending.py make_group(backend_options)": (
        "those of NCCL, which are noted where a group is made"
    ),
    "sim/streams/streams.py __init__(blocking, interprocess)": (
        "how a thread waits, and which processes see an event: no result"
    ),
    "runs/ranks/rank_group.py _get_backend(device)": NOTHING_ELSE,
    "runs/ranks/rank_group.py _start_coalescing(device)": NOTHING_ELSE,
    "runs/ranks/rank_group.py _end_coalescing(device)": NOTHING_ELSE,
    "runs/ranks/rank_group.py monitored_barrier(wait_all_ranks)": NOTHING_ELSE,
    "runs/ranks/rank_group.py recv_anysource(xs, tag)": REFUSED,
    **{
        f"runs/ranks/rank_group.py {name}(opts)": (
            "its root, operation and time limit are none of this collective"
        )
        for name in (
            "allgather",
            "allgather_coalesced",
            "all_gather_single",
            "barrier",
        )
    },
    **{
        f"runs/ranks/rank_group.py {name}(_)": (
            "its root, operation and time limit are none of this collective"
        )
        for name in ("alltoall", "all_to_all_single")
    },
}


def unread(path: Path) -> Iterator[str]:
    """Yield each function of a module with the parameters it never reads."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            continue
        body = node.body if isinstance(node.body, list) else [node.body]
        read = {
            inner.id
            for part in body
            for inner in ast.walk(part)
            if isinstance(inner, ast.Name)
        }
        arguments = ast.walk(node.args)
        names = [x.arg for x in arguments if isinstance(x, ast.arg)]
        left = [x for x in names if x not in read | {"self", "cls"}]
        if left:
            name = getattr(node, "name", "lambda")
            place = path.relative_to(ROOT).as_posix()
            yield f"{place} {name}({', '.join(left)})"


def test_each_parameter_is_read_or_has_a_reason():
    found = set()
    for place in PLACES:
        path = ROOT / place
        for module in path.rglob("*.py") if path.is_dir() else [path]:
            found |= set(unread(module))
    assert found == set(UNREAD)


def taken_out(path: Path) -> Iterator[str]:
    """Yield what a module takes out of the arguments of a call."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pop"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("kwargs", "options", "named")
        ):
            yield f"{path.name}: {ast.unparse(node)}"


def test_no_argument_is_taken_out_of_a_call():
    """Those of DDP were once, so that right scripts failed."""
    found = {
        line
        for folder in ("sim", "runs/cuda_names", "runs/ranks")
        for path in (ROOT / folder).rglob("*.py")
        for line in taken_out(path)
    }
    assert found == {
        "registered.py: kwargs.pop('device')",
        "registered.py: kwargs.pop('pin_memory', None)",
        "storages.py: kwargs.pop('pin_memory', None)",
    }


LIMITS = """
from datetime import timedelta
import torch, torch.distributed as dist

options = dist.ProcessGroupNCCL.Options(True)  # of high priority
dist.init_process_group("nccl", pg_options=options)
torch.cuda.set_device(dist.get_rank())
x = torch.ones(1, device="cuda")
dist.all_reduce(x, async_op=True).wait(timedelta(seconds=1))
print("sum:", x.item())
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)
def test_what_has_no_effect_is_noted(tmp_path):
    text = torchrun(tmp_path, "--nproc-per-node", "2", script=LIMITS)
    assert text.count("sum: 2.0") == 2
    options, limit = section(text, "Otherwise than on a GPU")
    assert "pg_options" in options
    assert "a time limit of one wait" in limit
