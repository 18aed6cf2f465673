"""Print why the tests cannot run here, or why none runs on a GPU.

Usage: python scripts/environment/fit_for_tests.py

`make setup` ends with it, and `make test` begins with it. An old Python, or a
torchvision of another torch, fails hundreds of tests otherwise. Under
continuous integration it fails too where a driver is, and no GPU can be used:
such a runner is there for its GPUs. Nothing is printed where all is well.
"""

import importlib
import os
import sys


def fault() -> str:
    """Return why no test can run; "" if they can."""
    if tuple(sys.version_info) < (3, 11):  # a Python that is too old gets here
        version = sys.version.split()[0]
        return (
            f"Python 3.11 or newer is needed ({sys.executable}: {version}); "
            "name one with: make setup PYTHON=python3.11"
        )
    for name in ("torch", "torchvision", "dpkit"):
        try:
            importlib.import_module(name)
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            return (
                f"{name} cannot be imported ({type(error).__name__}: {said}); "
                "install torch and torchvision together, from one index"
            )
    return ""


def main() -> int:
    """Print what is wrong; return the exit status."""
    if found := fault():
        print(f"The tests cannot run here: {found}.", file=sys.stderr)
        return 1
    from dpkit.accelerator import real_devices, why_unusable

    if not (reason := why_unusable()):
        return 0
    print(f"gpu: {reason}", file=sys.stderr)
    if real_devices():
        return 0
    print("NO TEST RUNS ON A GPU, though there is a driver.", file=sys.stderr)
    return int(os.environ.get("CI") == "true")


if __name__ == "__main__":
    sys.exit(main())
