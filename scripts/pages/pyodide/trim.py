"""Compile the packages, and what they need of Python's library, in Pyodide.

`pack.mjs` runs this file inside Pyodide, as its Python reads what it compiled
itself and nothing else. The folder `/src` there holds the packages.
"""

import importlib.util
import io
import marshal
import pkgutil
import sys
import types
import zipfile
from pathlib import Path

SOURCE = Path("/src")
# What an exercise may import though nothing of the book does, and what
# Pyodide needs to unpack an archive.
ALSO = (
    "collections",
    "functools",
    "heapq",
    "itertools",
    "math",
    "traceback",
    "encodings.cp437",
    "zipfile",
)


def thin(code):
    """Leave out which line each instruction is from: a fifth of the bytes."""
    inner = tuple(
        thin(c) if isinstance(c, types.CodeType) else c for c in code.co_consts
    )
    return code.replace(co_consts=inner, co_linetable=b"", co_filename="")


def compiled(source, name):
    """Return the bytes of a .pyc file that is not checked for its age."""
    code = compile(source, name, "exec", dont_inherit=True, optimize=2)
    head = importlib.util.MAGIC_NUMBER + b"\0" * 12
    return head + marshal.dumps(thin(code))


def archive(files):
    """Return a zip of name -> bytes; sources are compiled, times are gone."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name in sorted(files):
            data = files[name]
            if name.endswith(".py"):
                data = compiled(data, name)
                name += "c"
            made.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue()


def use_everything():
    """Import all that is there, and ask each figure for its frames."""
    sys.path.insert(0, str(SOURCE))
    from dpbook.explore.all import FIGURES

    for name in ALSO:
        importlib.import_module(name)
    for module in pkgutil.walk_packages([str(SOURCE)]):
        importlib.import_module(module.name)
    for figure in FIGURES.values():
        for _, shown in figure.frames():
            shown.as_json()


def library():
    """Return name -> source of the library's modules that are imported."""
    archive = next(path for path in sys.path if path.endswith(".zip"))
    modules = [getattr(m, "__file__", None) for m in sys.modules.values()]
    used = [
        f[len(archive) + 1 :] for f in modules if f and f.startswith(archive)
    ]
    with zipfile.ZipFile(archive) as whole:
        return {name: whole.read(name) for name in used}


def theory():
    """Return name -> bytes of all files of the packages."""
    return {
        str(path.relative_to(SOURCE)): path.read_bytes()
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


use_everything()
Path("/python.zip").write_bytes(archive(library()))
Path("/theory.zip").write_bytes(archive(theory()))
