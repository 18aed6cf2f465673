"""Three things of PyTorch that a simulated device does otherwise than a GPU.

They are where PyTorch's tests of one device fail. A program of training meets
them seldom.
"""

import torch
from torch.nn import functional as F


def lazy_clone_shares_memory() -> bool:
    """Return whether PyTorch's internal lazy clone shares its memory.

    On a GPU it does, until one of the two is written to. Here it is copied at
    once.

    Example:
        >>> dpkit.sim.register()
        >>> lazy_clone_shares_memory()
        False
    """
    x = torch.ones(3, device="sim:0")
    return torch._lazy_clone(x).data_ptr() == x.data_ptr()


def storage_device() -> str:
    """Return the kind of device that a storage says it is on.

    The storage of a simulated tensor is that of its values.

    Example:
        >>> dpkit.sim.register()
        >>> storage_device()
        'cpu'
    """
    return torch.ones(3, device="sim:0").untyped_storage().device.type


def alert_of_order() -> str:
    """Run an operation whose sums have no fixed order on GPUs.

    Return what PyTorch says, where a program asks for results that are always
    the same. On a GPU it raises; here sums have one order.

    Example:
        >>> dpkit.sim.register()
        >>> alert_of_order()
        'no alert'
    """
    x = torch.ones(1, 4, 4, device="sim:0", requires_grad=True)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        F.adaptive_avg_pool2d(x, 2).sum().backward()
    except RuntimeError as error:
        return str(error)
    finally:
        torch.use_deterministic_algorithms(before)
    return "no alert"
