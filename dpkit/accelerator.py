"""Which real accelerators this machine has: every place asks here alone.

``torch.accelerator`` answers ``sim`` once simulated devices are registered,
and simulated devices are no reason to choose NCCL, to pin memory or to start
a process for each.
"""

import torch


def real_devices() -> list[torch.device]:
    """Return the GPUs of this machine in order; none if there are none.

    Asking starts no GPU, so a process can still be forked afterwards.
    """
    count = torch.cuda.device_count()
    return [torch.device("cuda", index) for index in range(count)]
