"""Write the inventories of this folder.

Usage: python book/_inventories/make_inventories.py

An inventory tells Sphinx the page of each name that another project
documents. The published ones hold thousands of names and need a network;
these hold the names that the docstrings of dpkit use. A name that is missing
fails the build: add it below, run this script and commit the result.
"""

import zlib
from pathlib import Path

HERE = Path(__file__).parent

BUILTINS = {
    "library/functions.html": "bool float int object slice type",
    "library/stdtypes.html": "bytes dict frozenset list range set str tuple",
}
EXCEPTIONS = """
    ArithmeticError AssertionError AttributeError BaseException Exception
    FileExistsError FileNotFoundError ImportError IndexError KeyError
    LookupError MemoryError ModuleNotFoundError NotADirectoryError
    NotImplementedError OSError RuntimeError StopIteration TimeoutError
    TypeError ValueError
"""
ABSTRACT = """
    Callable Collection Generator Hashable Iterable Iterator Mapping
    MutableMapping MutableSequence Sequence Set Sized
"""
LAYERS = {  # and the modules of torch.nn.modules that define them
    "Conv2d": "conv",
    "Embedding": "sparse",
    "Linear": "linear",
    "MultiheadAttention": "activation",
}
DISPLAYED = ("Code", "HTML", "Markdown", "SVG")

# Sphinx names a class by the module that defines it, or as an annotation in
# quotes is written, so these forms need a page too.
SHORT = {
    "python": {
        "Any": "typing.Any",
        "Literal": "typing.Literal",
        "Path": "pathlib.Path",
        "Self": "typing.Self",
    }
    | {name: f"collections.abc.{name}" for name in ABSTRACT.split()},
    "torch": {
        "Tensor": "torch.Tensor",
        "nn.Module": "torch.nn.Module",
        "dist.ProcessGroup": "torch.distributed.ProcessGroup",
        "torch.distributed.distributed_c10d.ProcessGroup": (
            "torch.distributed.ProcessGroup"
        ),
        **{
            f"torch.nn.modules.{module}.{name}": f"torch.nn.{name}"
            for name, module in LAYERS.items()
        },
        "torch.nn.modules.container.ModuleList": "torch.nn.ModuleList",
        "torch.nn.modules.container.Sequential": "torch.nn.Sequential",
        "torch._C.Generator": "torch.Generator",
        "torch.nn.modules.module.Module": "torch.nn.Module",
        "torch.optim.optimizer.Optimizer": "torch.optim.Optimizer",
    },
    "ipython": {
        f"IPython.core.display.{name}": f"IPython.display.{name}"
        for name in DISPLAYED
    },
    "matplotlib": {
        "matplotlib.axes._axes.Axes": "matplotlib.axes.Axes",
        "Figure": "matplotlib.figure.Figure",
    },
}


def python_objects() -> dict[str, tuple[str, str]]:
    """Name: (role, page) of what the Python manual documents."""
    objects = {"None": ("data", "library/constants.html")}
    for page, names in BUILTINS.items():
        objects |= dict.fromkeys(names.split(), ("class", page))
    for name in EXCEPTIONS.split():
        objects[name] = ("exception", "library/exceptions.html")
    for name in ABSTRACT.split():
        full = f"collections.abc.{name}"
        objects[full] = ("class", "library/collections.abc.html")
    for name in ("Any", "Callable", "Literal", "Optional", "Self", "Union"):
        objects[f"typing.{name}"] = ("data", "library/typing.html")
    for name in ("NamedTuple", "Protocol", "TypeVar"):
        objects[f"typing.{name}"] = ("class", "library/typing.html")
    for name in ("FunctionType", "ModuleType", "TracebackType"):
        objects[f"types.{name}"] = ("class", "library/types.html")
    objects["contextlib.AbstractContextManager"] = (
        "class",
        "library/contextlib.html",
    )
    objects["os.PathLike"] = ("class", "library/os.html")
    objects["pathlib.Path"] = ("class", "library/pathlib.html")
    objects["time.perf_counter"] = ("function", "library/time.html")
    return objects


def torch_objects() -> dict[str, tuple[str, str]]:
    """Name: (role, page and anchor) of what PyTorch documents."""
    own_page = {
        "torch.Generator": "class",
        "torch.chunk": "function",
        "torch.cuda.Event": "class",
        "torch.cuda.device_count": "function",
        "torch.cuda.synchronize": "function",
        "torch.nn.CrossEntropyLoss": "class",
        "torch.nn.DataParallel": "class",
        "torch.nn.Module": "class",
        "torch.nn.ModuleList": "class",
        "torch.nn.Sequential": "class",
        **{f"torch.nn.{name}": "class" for name in LAYERS},
        "torch.nn.parallel.DistributedDataParallel": "class",
        "torch.optim.lr_scheduler.LinearLR": "class",
        "torch.optim.lr_scheduler.SequentialLR": "class",
        "torch.tensor_split": "function",
    }
    objects = {
        name: (role, f"generated/{name}.html")
        for name, role in own_page.items()
    }
    for name in ("torch.device", "torch.dtype"):
        objects[name] = ("class", "tensor_attributes.html")
    objects["torch.distributed.ProcessGroup"] = ("class", "distributed.html")
    objects["torch.optim.Optimizer"] = ("class", "optim.html")
    objects["torch.Size"] = ("class", "size.html")
    objects["torch.Tensor"] = ("class", "tensors.html")
    for name in ("PipelineScheduleMulti", "PipelineScheduleSingle"):
        module = "torch.distributed.pipelining.schedules"
        objects[f"{module}.{name}"] = (
            "class",
            f"distributed.pipelining.html#{module}.{name}",
        )
    for name in ("DataLoader", "Dataset"):
        objects[f"torch.utils.data.{name}"] = ("class", "data.html")
    out_of_memory = (
        "exception",
        "generated/torch.cuda.OutOfMemoryError.html"
        "#torch.cuda.OutOfMemoryError",
    )
    objects["torch.OutOfMemoryError"] = out_of_memory
    objects["torch.cuda.OutOfMemoryError"] = out_of_memory
    parameter = "generated/torch.nn.parameter.Parameter.html"
    parameter += "#torch.nn.parameter.Parameter"
    objects["torch.nn.parameter.Parameter"] = ("class", parameter)
    objects["torch.nn.Parameter"] = ("class", parameter)
    return objects


def matplotlib_objects() -> dict[str, tuple[str, str]]:
    """Name: (role, page) of what Matplotlib documents."""
    return {
        "matplotlib.figure.Figure": ("class", "api/figure_api.html"),
        "matplotlib.axes.Axes": (
            "class",
            "api/_as_gen/matplotlib.axes.Axes.html",
        ),
    }


def ipython_objects() -> dict[str, tuple[str, str]]:
    """Name: (role, page) of what IPython documents."""
    page = "api/generated/IPython.display.html"
    return {f"IPython.display.{name}": ("class", page) for name in DISPLAYED}


def write(project: str, objects: dict[str, tuple[str, str]]) -> None:
    """Write `objects` as version 2 of Sphinx's inventory format."""
    head = (
        "# Sphinx inventory version 2\n"
        f"# Project: {project}\n# Version: \n"
        "# The remainder of this file is compressed using zlib.\n"
    )
    targets = {
        name: (role, page if "#" in page else f"{page}#{name}")
        for name, (role, page) in objects.items()
    }
    for short, name in SHORT[project].items():
        targets[short] = targets[name]
    lines = [
        f"{name} py:{role} 1 {target} -\n"
        for name, (role, target) in sorted(targets.items())
    ]
    body = zlib.compress("".join(lines).encode(), 9)
    (HERE / f"{project}.inv").write_bytes(head.encode() + body)


if __name__ == "__main__":
    write("python", python_objects())
    write("torch", torch_objects())
    write("ipython", ipython_objects())
    write("matplotlib", matplotlib_objects())
