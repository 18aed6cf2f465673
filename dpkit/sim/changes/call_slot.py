r"""The pointer by which one shared library calls a function of another.

A library does not know where another one will lie in memory. So each of its
calls to another library goes through a pointer, a *slot*, which the dynamic
linker of Linux fills::

    libtorch_cpu.so                          libc10.so
      at::getAccelerator() ──▶ slot ───────▶ is_privateuse1_backend_registered

To write another address into the slot changes where this one library's calls
of this one function go, and nothing else.

The library brings tables, by which the linker knows what to fill. To find the
slot of a name we read them as the linker does::

    slots     where the slot is | its kind | the number of its function
    symbols   where the name of a function begins in the strings
    strings   …\0is_privateuse1_backend_registered\0…

There are two tables of slots. On x86-64, libraries call most functions by
slots of the first one, which the linker fills at the first call. On ARM,
PyTorch's call by slots of the second one: these are filled at once, and the
linker makes their memory read-only afterwards. There a slot can be
written to for the moment in which it is changed.

Source: the specification of ELF, "Dynamic Linking" (elf(5) of Linux).
"""

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from pathlib import Path

# The entries of the dynamic section that say where the tables are (elf.h).
_STRINGS = 5
_SYMBOLS = 6
_TABLES_OF_SLOTS = ((23, 2), (7, 8))  # where each is, and how many bytes
_ENTRY = struct.Struct("<QQ")  # of the dynamic section: which, and its value
_SLOT = struct.Struct("<QIIq")  # the offset, the kind, the symbol, and more
_SYMBOL = struct.Struct("<IBBHQQ")  # the offset of the name, and the rest
# The kinds of slots by which functions are called: JUMP_SLOT and GLOB_DAT.
_KINDS = {"x86_64": (7, 6), "aarch64": (1026, 1025)}
_READ = mmap.PROT_READ
_WRITE = mmap.PROT_WRITE


class _Library(ctypes.Structure):
    """What the linker knows of a loaded library: ``link_map`` of link.h."""

    _fields_ = (
        ("base", ctypes.c_uint64),
        ("path", ctypes.c_char_p),
        ("dynamic", ctypes.c_uint64),
    )


class Slot:
    """Eight bytes that hold the address of a function.

    Attributes:
        address: Where they are.
        read_only: Whether the linker has made their memory read-only.
    """

    def __init__(self, address: int) -> None:
        self.address = address
        self.read_only = not _is_writable(address)
        self._content = ctypes.c_uint64.from_address(address)

    @property
    def function(self) -> int:
        """The address of the function that is called."""
        return self._content.value

    def lead_to(self, function: int) -> None:
        """Call the function at another address from now on.

        Raises:
            OSError: the system does not let this process write to the slot.
        """
        if not self.read_only:
            self._content.value = function
            return
        _allow(self.address, _READ | _WRITE)
        try:
            self._content.value = function
        finally:
            _allow(self.address, _READ)


def _allow(address: int, rights: int) -> None:
    """Give this process rights to the page of an address."""
    page = address - address % mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    start = ctypes.c_void_p(page)
    size = ctypes.c_size_t(mmap.PAGESIZE)
    if libc.mprotect(start, size, rights):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def find_slot(library: ctypes.CDLL, name: str) -> Slot | None:
    """Return the slot by which a loaded library calls the function ``name``.

    None: it does not call it through a slot, or the machine is of a kind
    whose slots we do not know.
    """
    loaded = _Library.from_address(library._handle)
    entries = _entries(loaded.dynamic)
    if not {_STRINGS, _SYMBOLS} <= set(entries):
        return None
    for offset, number in _slots(entries):
        symbol = entries[_SYMBOLS] + number * _SYMBOL.size
        begin, *_ = _SYMBOL.unpack(ctypes.string_at(symbol, _SYMBOL.size))
        if ctypes.string_at(entries[_STRINGS] + begin) == name.encode():
            return Slot(loaded.base + offset)
    return None


def _slots(entries: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Yield the offset of each slot, and the number of its function."""
    kinds = _KINDS.get(platform.machine(), ())
    for table, size in _TABLES_OF_SLOTS:
        if not {table, size} <= set(entries):
            continue
        content = ctypes.string_at(entries[table], entries[size])
        for offset, kind, number, _ in _SLOT.iter_unpack(content):
            if kind in kinds:
                yield offset, number


def _entries(address: int) -> dict[int, int]:
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
    # Bytes, because the name of a file may be any.
    for line in Path("/proc/self/maps").read_bytes().splitlines():
        # 7f12a000-7f13b000 rw-p 0001c000 08:01 1234   /usr/lib/libtorch.so
        bounds, rights, *_ = line.split()
        first, last = (int(bound, 16) for bound in bounds.split(b"-"))
        if first <= address < last:
            return b"w" in rights
    return False


def address_of(library: ctypes.CDLL, name: str) -> int | None:
    """Return where a function of a loaded library is; None: it has none."""
    function = getattr(library, name, None)
    if function is None:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value
