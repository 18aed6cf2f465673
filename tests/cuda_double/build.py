"""Build the double's two libraries, where they are not built yet.

Prints the folder that holds them: ``_build/cuda_double/KEY``, where the key
is made of all that goes into them, so that another torch, another Python or
a changed source makes another folder. The folder appears complete, or not at
all: several runs may build at once.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "_build" / "cuda_double"

# The two libraries: runtime is loaded before torch, and stands for CUDA's
# runtime and for NCCL; kernels is loaded after it, and uses torch.
RUNTIME, KERNELS = "runtime.so", "kernels.so"


class CannotBuildError(Exception):
    """The double cannot be built here; the text says in a line why not."""


def torch_folder() -> Path:
    """Give the folder of torch, which is not imported."""
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise CannotBuildError("torch is not installed")
    torch = Path(spec.submodule_search_locations[0])
    if not (torch / "lib" / "libtorch_cuda.so").exists():
        raise CannotBuildError(f"torch is no build for CUDA ({torch})")
    if not (torch / "include" / "ATen" / "ATen.h").exists():
        raise CannotBuildError(f"torch is without its headers ({torch})")
    return torch


def include_folders(torch: Path) -> list[Path]:
    """Give the folders of the headers: torch's, CUDA's, NCCL's, Python's.

    The headers of CUDA come with the packages that torch requires. One
    folder of them, ``crt``, comes with Triton, or with CUDA's compiler.
    """
    packages = torch.parent
    wanted = {
        "CUDA's": ("nvidia/cu*/include", "cuda_runtime_api.h"),
        "NCCL's": ("nvidia/nccl/include", "nccl.h"),
        "the compiler's": ("*/**/include", "crt/host_defines.h"),
    }
    folders = [
        torch / "include",
        torch / "include" / "torch" / "csrc" / "api" / "include",
        Path(sysconfig.get_paths()["include"]),
    ]
    if not (folders[-1] / "Python.h").exists():
        raise CannotBuildError(f"no Python.h (in: {folders[-1]})")
    for whose, (pattern, header) in wanted.items():
        if whose == "the compiler's":
            places = [
                packages / "nvidia" / "cuda_crt" / "include",
                packages / "triton" / "backends" / "nvidia" / "include",
                *packages.glob("nvidia/cu*/include"),
                Path("/usr/local/cuda/include"),
            ]
        else:
            places = list(packages.glob(pattern))
            places.append(Path("/usr/local/cuda/include"))
        found = [place for place in places if (place / header).exists()]
        if not found:
            raise CannotBuildError(f"no headers of {whose} ({header})")
        folders.append(found[0])
    return folders


def sources(folder: str) -> list[Path]:
    return sorted((HERE / folder).glob("*.cpp"))


def key(torch: Path) -> str:
    """Tell one thing to build from another."""
    parts = [str(torch), sysconfig.get_config_var("SOABI") or ""]
    parts.append((torch / "version.py").read_text())
    files = [
        file
        for folder in ("runtime", "nccl", "kernels")
        for file in sorted((HERE / folder).glob("*"))
    ]
    for file in [*files, Path(__file__)]:
        parts += [file.name, file.read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def commands(torch: Path, folder: Path) -> list[list[str]]:
    """Give one command of the compiler for each library."""
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise CannotBuildError("no g++ on the PATH")
    includes = [f"-I{path}" for path in include_folders(torch)]
    common = [compiler, "-std=c++20", "-O1", "-fPIC", "-shared", "-w"]
    libraries = [f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}"]
    libraries += ["-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda"]
    # One file that includes the others: the headers of torch take ten
    # seconds, and are read once.
    whole = folder / "kernels.cpp"
    whole.write_text(
        "".join(f'#include "{file}"\n' for file in sources("kernels"))
    )
    runtime = [*map(str, sources("runtime")), *map(str, sources("nccl"))]
    soname = "-Wl,-soname,libcuda.so.1"  # see runtime/driver.cpp
    return [
        [
            *(*common, soname, *includes, *runtime),
            *("-o", str(folder / RUNTIME), "-ldl"),
        ],
        [
            *(*common, *includes, str(whole)),
            *("-o", str(folder / KERNELS), *libraries),
        ],
    ]


def compile_into(torch: Path, folder: Path) -> None:
    """Run the compiler twice, at once."""
    to_run = commands(torch, folder)
    print("building the double of CUDA (half a minute)", file=sys.stderr)
    started = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for command in to_run
    ]
    told = [compiler.communicate()[1] for compiler in started]
    if any(compiler.returncode for compiler in started):
        sys.stderr.write("".join(told))
        raise CannotBuildError("g++ failed")


def build() -> Path:
    torch = torch_folder()
    done = BUILT / key(torch)
    if done.exists():
        return done
    BUILT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=BUILT) as started:
        folder = Path(started) / "built"
        folder.mkdir()
        compile_into(torch, folder)
        try:
            folder.rename(done)
        except OSError:
            if not done.exists():  # nobody else was faster
                raise
    return done


if __name__ == "__main__":
    try:
        print(build())
    except CannotBuildError as why:
        sys.exit(f"the double of CUDA cannot be built: {why}")
