"""Print why `make test` runs no test on a GPU, though there is a driver.

Usage: python scripts/without_gpu_tests.py

Under continuous integration this is a failure: a runner with a driver is there
for its GPUs, and must not pass without them.
"""

import os
import sys

from dpkit.accelerator import why_unusable


def main() -> int:
    """Print the reason; return the exit status."""
    reason = why_unusable()
    if not reason:  # a driver of another maker's, for instance
        return 0
    print(f"\nNO TEST RUNS ON A GPU: {reason}\n", file=sys.stderr)
    if os.environ.get("CI") != "true":
        return 0
    print(
        "a runner with a driver fails without its GPUs (CI: true)",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
