"""The launches of a step, recorded once and launched at once: a CUDA graph."""

from collections.abc import Callable

import torch


def record_launches(
    step: Callable[[], None], device: torch.device
) -> Callable[[], None]:
    """Return a function that launches all of ``step`` by one launch.

    It works with the memory of the recording: new images are written into the
    tensors that ``step`` reads. ``step`` is taken once before it is recorded.

    Args:
        step: Launches work on ``device``. It reads no number from there, and
            copies nothing to or from the CPU.
        device: A GPU, or a simulated device.

    Example:
        >>> (device,) = dpkit.devices(1)
        >>> x = torch.ones(2, device=device)
        >>> double = record_launches(lambda: x.mul_(2), device)
        >>> double(); double()
        >>> x.tolist()
        [8.0, 8.0]
    """
    api = torch.get_device_module(device)  # torch.cuda, or torch.sim
    side = api.Stream(device)
    side.wait_stream(api.current_stream(device))
    with api.stream(side):  # libraries get their memory before the recording
        step()
    api.current_stream(device).wait_stream(side)
    graph = api.CUDAGraph()
    with api.device(device), api.graph(graph):
        step()
    replay: Callable[[], None] = graph.replay
    return replay
