"""``torch.nn.parallel`` on simulated devices: one process, several devices.

PyTorch's own Python runs here: ``scatter``, ``replicate``, ``gather``,
``data_parallel``, ``nn.DataParallel``, and ``torch.cuda.comm`` below them. So
the values, the gradients, what is sent and when are PyTorch's: each forward
copies all parameters from device 0 to the others, and each backward sends
their gradients back to device 0. Three things are done in PyTorch's place:

``copies`` -- what PyTorch does in C++, for CUDA alone: tensors get to devices;
``in_turn`` -- ``parallel_apply``: replicas compute one after another;
``copy_streams`` -- the streams that bring parts from the CPU.

``simulated_calls`` decides which calls are on simulated devices, where there
are GPUs too, and ``patches`` has all that is changed, in one table.

PyTorch broadcasts by NCCL where it can. These are the copies it makes where it
cannot, one after another from device 0.
"""

from dpkit.sim.parallel.patches import DATA_PARALLEL

__all__ = [
    "DATA_PARALLEL",
]
