"""Which GPUs this machine has that torch can use: every place asks here.

``torch.accelerator`` answers ``sim`` once simulated devices are registered,
and simulated devices are no reason to choose NCCL, to pin memory or to start
a process for each.

``found`` -- the answer; begin here.
``driver`` -- what CUDA's driver says, asked by another process.
``kernels`` -- for which GPUs this torch has kernels.
``fits`` -- whether a driver and a GPU fit a torch, and if not, why.
"""

from dpkit.accelerator.found import real_devices, why_unusable

__all__ = ["real_devices", "why_unusable"]
