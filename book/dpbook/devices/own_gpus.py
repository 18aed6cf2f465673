"""The six times of the GPUs of this machine."""

from dpbook.devices.six_times import SIZE, six_times
from dpkit.accelerator import real_devices

SMALL = 400  # the size of matrices that tell how long the large ones take
MOST_SECONDS = 20.0


def six_times_here() -> list[float]:
    """Return the six times of this machine's GPUs, if it has some.

    A run on small matrices goes before, in which libraries are loaded. Where
    it shows that the large ones would take minutes, none are returned.
    """
    if not any(device.type == "cuda" for device in real_devices()):
        return []
    six_times(SMALL)
    expected = sum(six_times(SMALL)) * (SIZE / SMALL) ** 3
    return six_times() if expected < MOST_SECONDS else []
