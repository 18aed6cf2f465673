"""``dpkit calibrate`` of things so small that a double of a GPU is quick.

What it measures is the speed of the double; that it ends is the rehearsal.
"""

import sys
from dataclasses import replace

from dpkit.__main__ import main
from dpkit.calibration import probes

if __name__ == "__main__":
    probes.ON_GPU = replace(
        probes.ON_CPU,
        rows=[16, 64, 256],
        lengths=[4**k for k in range(10)],
        images=[(2, 8, 16), (4, 32, 28)],
        pool=2**20,
    )
    main(["calibrate", *sys.argv[1:]])
