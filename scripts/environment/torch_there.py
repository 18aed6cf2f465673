"""Make a virtual environment that sees the torch of this Python.

Usage: python3 -P scripts/environment/torch_there.py .venv

A cluster's module, Colab, a laptop with a torch for the CPU: what is there
fits the machine, and another one is gigabytes. The new environment finds what
this Python finds, after what is its own, by a file of paths. The switch
--system-site-packages of venv does less: of an environment it would see the
Python below, without the torch.

What is left to install, without torch and the libraries that come with it, is
written to a file: pip takes it with --no-deps, for requirements.txt is
complete.
"""

import os
import re
import sys
import sysconfig
import venv
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
WITH_TORCH = re.compile(
    r"(torch|torchvision|triton|nvidia-[\w-]+|cuda-[\w-]+)=="
)


def without_torch(requirements: str) -> str:
    """Leave out torch, torchvision, and the libraries for them."""
    lines = requirements.splitlines(keepends=True)
    return "".join(line for line in lines if not WITH_TORCH.match(line))


def places() -> list[str]:
    """Return where this Python finds what is installed, in order."""
    standard = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    standard |= {f"{path}/lib-dynload" for path in standard}
    others = [path for path in sys.path if Path(path).is_dir()]
    return [path for path in others if path not in {*standard, str(ROOT)}]


def make(folder: Path) -> None:
    """Make the environment; it finds what this Python finds."""
    brings_pip = find_spec("ensurepip") is not None  # not on Colab
    builder = venv.EnvBuilder(symlinks=os.name != "nt", with_pip=brings_pip)
    builder.create(folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "outer.pth").write_text("\n".join(places()) + "\n")


def main(folder: Path) -> int:
    """Make the environment, unless it is there; write what it still needs."""
    file = folder / "without-torch.txt"
    if folder.exists() and not file.exists():
        print(
            f"there is an environment with a torch of its own ({folder}), or "
            f"a part of one; first: rm -r {folder}",
            file=sys.stderr,
        )
        return 1
    if not file.exists():
        torch = find_spec("torch")
        vision = find_spec("torchvision")
        if torch is None:
            print(
                f"there is no torch (Python: {sys.executable}); name the one "
                "that has it: make setup TORCH=there PYTHON=…",
                file=sys.stderr,
            )
            return 1
        print(f"{folder} sees {torch.origin}")
        if vision is None:
            print("without torchvision: what needs it fails", file=sys.stderr)
        make(folder)
    text = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    file.write_text(without_torch(text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
