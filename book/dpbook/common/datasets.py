"""Fashion-MNIST in memory: a sample of it, or the full set."""

import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import torch

_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
# SHA-256 of the uncompressed contents of _FILES in the full set: those of
# MNIST have the same names and sizes.
_FULL_SHA256 = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)

_DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
_RAW = Path("FashionMNIST", "raw")  # where torchvision puts it, in its root
_ADVICE = (
    "delete these files and try again (Debian's: reinstall the package), or "
    "set DPKIT_DATA to a folder with good files"
)


class Labelled(NamedTuple):
    """A labelled set of images; a pair, so its length is 2.

    Images are (n, 1, 28, 28) float32 in [0, 1], labels (n,) int64 in 0 … 9.
    """

    images: torch.Tensor
    labels: torch.Tensor


def load_fashion_mnist(full: bool = False) -> tuple[Labelled, Labelled]:
    """Load the training set and the test set of Fashion-MNIST to the CPU.

    The sample has 10,000 and 2,000 images: of each class every sixth and every
    fifth, in the order of the files. It lies in the repository, and in a
    wheel of the archive of a term. A dpkit that was installed without these
    makes the same sample of the full set.

    The full set, 60,000 and 10,000 images, is looked for in

    1. the folder ``$DPKIT_DATA``, else ``dpkit`` in ``$XDG_CACHE_HOME``
       (``~/.cache``); in its ``FashionMNIST/raw`` first;
    2. the folder of Debian's package ``dataset-fashion-mnist``.

    The first that holds any of the four idx files, each as it is or as
    ``.gz``, must hold all of them undamaged. If none does, torchvision
    downloads them into ``FashionMNIST/raw``.

    Raises:
        FileNotFoundError: If a place holds some of the files and not all, or
            if no place holds any and the download fails. The sample raises
            it only where it must be made of the full set.
        NotADirectoryError: If ``$DPKIT_DATA`` is a file.
        ValueError: If a file is not what was published.

    Example:
        >>> train, test = load_fashion_mnist()
        >>> train.images.shape, test.images.shape
        (torch.Size([10000, 1, 28, 28]), torch.Size([2000, 1, 28, 28]))
        >>> train.labels[:3].tolist()  # an ankle boot, a t-shirt, a dress
        [9, 0, 3]

    Source:
        Xiao, Rasul, Vollgraf: Fashion-MNIST, a novel image dataset for
        benchmarking machine learning algorithms, 2017, arXiv:1708.07747.
    """
    if full:
        return _load_full_set()
    sample = resources.files("dpbook.common") / "data"
    if any(_find(sample, name) for name in _FILES):
        advice = "check these files out again"
        return _read_set(sample, [None] * 4, advice)  # a .gz has a checksum
    train, test = _load_full_set()
    return thin_out(train, 6), thin_out(test, 5)


def thin_out(labelled: Labelled, step: int) -> Labelled:
    """Return every ``step``-th example of each class, in their order.

    The first so many of each class would be as many, but the rarer classes
    would be alone at the end of the set.

    Example:
        >>> images = torch.arange(6.0)
        >>> labels = torch.tensor([0, 0, 1, 0, 1, 1])
        >>> thin_out(Labelled(images, labels), step=2).images
        tensor([0., 2., 3., 5.])
    """
    rows_by_class = [
        (labelled.labels == label).nonzero().flatten()[::step]
        for label in range(10)
    ]
    rows = torch.cat(rows_by_class).sort().values
    return Labelled(labelled.images[rows], labelled.labels[rows])


def _load_full_set() -> tuple[Labelled, Labelled]:
    """Load the full set from the first place that holds it."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(os.environ.get("DPKIT_DATA") or f"{cache}/dpkit").expanduser()
    if root.exists() and not root.is_dir():
        raise NotADirectoryError(f"DPKIT_DATA is not a folder (path: {root})")
    folders = [root / _RAW, root, _DEBIAN_FOLDER]
    for folder in folders:
        if any(_find(folder, name) for name in _FILES):
            return _read_set(folder, _FULL_SHA256, _ADVICE)
    try:
        return _download(root / _RAW)
    except Exception as error:  # of many kinds; each is named and chained
        raise FileNotFoundError(
            "no Fashion-MNIST here, and the download failed (looked in: "
            f"{', '.join(map(str, folders))}; download: "
            f"{' '.join(str(error).split())})\nset DPKIT_DATA to a folder "
            "with the four idx files, or install Debian's package "
            "dataset-fashion-mnist, or work in a clone of the repository, "
            "which holds a sample: full=False"
        ) from error


def _find(folder: Traversable, name: str) -> Traversable | None:
    """Return the file of that name in a place, unpacked or as .gz."""
    files = [folder / name, folder / f"{name}.gz"]
    return next((file for file in files if file.is_file()), None)


def _read_set(
    folder: Traversable, checksums: Sequence[str | None], advice: str
) -> tuple[Labelled, Labelled]:
    """Read the training set and the test set from the files in a place."""
    contents = []
    for name, sha256 in zip(_FILES, checksums, strict=True):
        file = _find(folder, name)
        if file is None:
            raise FileNotFoundError(
                f"incomplete Fashion-MNIST (missing: {folder / name} or "
                f"{name}.gz)\n{advice}"
            )
        contents.append(_read_file(file, sha256, advice))
    return _labelled(*contents[:2]), _labelled(*contents[2:])


def _read_file(file: Traversable, sha256: str | None, advice: str) -> bytes:
    """Return the uncompressed contents of a file, checked."""
    contents = file.read_bytes()
    found = "another SHA-256"
    try:
        if file.name.endswith(".gz"):
            contents = gzip.decompress(contents)
    except (EOFError, OSError, zlib.error) as error:
        contents = b""
        found = str(error)
    if contents and sha256 in (None, hashlib.sha256(contents).hexdigest()):
        return contents
    raise ValueError(
        "damaged file, or a file of another data set (file: "
        f"{file}, found: {found})\n{advice}"
    )


def _labelled(images: bytes, labels: bytes) -> Labelled:
    """Make tensors of idx files, which _read_file has checked."""
    # A header has 4 bytes, and 4 more for each dimension. For images,
    # (n, 28, 28), that is 4 + 3 · 4 = 16; for labels, (n,), 4 + 4 = 8.
    # frombuffer shares its memory, which must be writable: a bytearray is.
    pixels = torch.frombuffer(bytearray(images), dtype=torch.uint8, offset=16)
    classes = torch.frombuffer(bytearray(labels), dtype=torch.uint8, offset=8)
    scaled = pixels.view(-1, 1, 28, 28).float().div_(255)
    return Labelled(scaled, classes.long())


def _download(folder: Path) -> tuple[Labelled, Labelled]:
    """Download, check, and only then put the files in place, all at once."""
    # Here, not above: it takes a second, and the sample does not need it.
    from torchvision import datasets  # type: ignore[import-untyped]

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        datasets.FashionMNIST(scratch, download=True)
        fresh = Path(scratch, _RAW)
        loaded = _read_set(fresh, _FULL_SHA256, "try again")
        try:
            fresh.rename(folder)
        except OSError:
            # Another process may have been faster: its files serve.
            if not any(_find(folder, name) for name in _FILES):
                raise
    return loaded
