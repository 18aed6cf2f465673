"""Print all about the GPUs, their driver, and what dpkit would use."""

import shutil
import subprocess

from torch.utils.collect_env import get_pretty_env_info

from dpkit.__main__ import main
from dpkit.accelerator import real_devices


def ask_the_driver(*arguments: str) -> None:
    """Print what nvidia-smi says, if it is there."""
    if not shutil.which("nvidia-smi"):
        print("no nvidia-smi on the PATH")
        return
    done = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=20
    )
    print(done.stdout + done.stderr)


if __name__ == "__main__":
    ask_the_driver()
    if len(real_devices()) > 1:
        ask_the_driver("topo", "-m")
    print(get_pretty_env_info(), end="\n\n", flush=True)
    main(["devices"])
