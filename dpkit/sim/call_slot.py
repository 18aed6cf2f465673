r"""The pointer by which one shared library calls a function of another.

A library does not know where another one will lie in memory. So each of its
calls to another library goes through a pointer, a *slot*, which the dynamic
linker of Linux fills::

    libtorch_cpu.so                          libc10.so
      at::getAccelerator() ──▶ slot ───────▶ is_privateuse1_backend_registered

To write another address into the slot changes where this one library's calls
of this one function go, and nothing else.

The library brings three tables, by which the linker knows what to fill. To
find the slot of a name we read them as the linker does::

    slots     where the slot is | the number of its function      24 bytes each
    symbols   where the name of a function begins in the strings  24 bytes each
    strings   …\0is_privateuse1_backend_registered\0…

Source: the specification of ELF, "Dynamic Linking" (elf(5) of Linux).
"""

import ctypes
import struct
from pathlib import Path

# The entries of the dynamic section that say where the tables are (elf.h).
_SIZE_OF_SLOTS, _STRINGS, _SYMBOLS, _SLOTS = 2, 5, 6, 23
_ENTRY = struct.Struct("<QQ")  # of the dynamic section: which, and its value
_SLOT = struct.Struct("<QQq")  # the offset, the symbol in the upper 32 bits
_SYMBOL = struct.Struct("<IBBHQQ")  # the offset of the name, and the rest


class _Library(ctypes.Structure):
    """What the linker knows of a loaded library: ``link_map`` of link.h."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("path", ctypes.c_char_p),
        ("dynamic", ctypes.c_uint64),
    )


def find_slot(library: ctypes.CDLL, name: str) -> ctypes.c_uint64 | None:
    """Return the slot by which a loaded library calls the function ``name``.

    None: it does not call it through a slot, or the slot is read-only.
    """
    loaded = _Library.from_address(library._handle)
    tables = _tables(loaded.dynamic)
    if not {_SIZE_OF_SLOTS, _STRINGS, _SYMBOLS, _SLOTS} <= set(tables):
        return None
    slots = ctypes.string_at(tables[_SLOTS], tables[_SIZE_OF_SLOTS])
    for offset, info, _ in _SLOT.iter_unpack(slots):
        symbol = tables[_SYMBOLS] + (info >> 32) * _SYMBOL.size
        begin, *_ = _SYMBOL.unpack(ctypes.string_at(symbol, _SYMBOL.size))
        if ctypes.string_at(tables[_STRINGS] + begin) == name.encode():
            address = loaded.base + offset
            if _is_writable(address):
                return ctypes.c_uint64.from_address(address)
    return None


def _tables(address: int) -> dict[int, int]:
    """Return which -> value for the entries of a dynamic section."""
    found: dict[int, int] = {}
    while True:
        entry = ctypes.string_at(address, _ENTRY.size)
        which, value = _ENTRY.unpack(entry)
        if which == 0:  # the end
            return found
        found[which] = value
        address += _ENTRY.size


def _is_writable(address: int) -> bool:
    """Return whether this process may write to an address."""
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        # 7f12a000-7f13b000 rw-p 0001c000 08:01 1234   /usr/lib/libtorch.so
        bounds, rights, *_ = line.split()
        first, last = (int(bound, 16) for bound in bounds.split("-"))
        if first <= address < last:
            return "w" in rights
    return False


def address_of(library: ctypes.CDLL, name: str) -> int | None:
    """Return where a function of a loaded library is; None: it has none."""
    function = getattr(library, name, None)
    if function is None:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
