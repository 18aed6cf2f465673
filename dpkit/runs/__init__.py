"""Ranks and whole scripts on simulated GPUs, written as for real ones.

``ranks/`` -- begin here: ``dpkit.sim.launch``. Ranks are threads of this
process, and PyTorch's own engines run on them: ``torch.distributed`` with the
backend "sim";
``forked/`` -- ranks as processes that are forked from this one, with one
simulated clock;
``cuda_names/`` -- ``dpkit.sim.as_cuda``: ``cuda`` means the simulated devices;
``torchrun/`` -- a script, unchanged, with a report of what it did;
``check/`` -- several ranks of a script, compared with one;
``commands/`` -- ``python -m dpkit run``, ``torchrun`` and ``check``.

A program that launches ranks asks for :func:`launch`, and one whose code says
``cuda`` for :func:`as_cuda`. Both are names of ``dpkit.sim`` as well.
"""

from typing import TYPE_CHECKING

from dpkit.lazy import lazy_names

if TYPE_CHECKING:
    from dpkit.runs.cuda_names.patches import as_cuda
    from dpkit.runs.ranks import launch

__all__ = ["as_cuda", "launch"]

_DEFINED_IN = {
    "as_cuda": "dpkit.runs.cuda_names.patches",
    "launch": "dpkit.runs.ranks",
}

if not TYPE_CHECKING:  # or any name would be one of the package
    __getattr__, __dir__ = lazy_names(__name__, _DEFINED_IN)
