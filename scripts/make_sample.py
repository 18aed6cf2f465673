"""Make the sample of Fashion-MNIST that lies in the repository.

    python scripts/make_sample.py [FOLDER]

Takes every sixth training image and every fifth test image of each class, in
the order of the full set: 1,000 and 200 per class. Writes them as four idx
``.gz`` files to FOLDER (``book/dpbook/common/data``). It is the same choice
each time, and the same bytes wherever zlib is the same.
"""

import gzip
import struct
import sys
from pathlib import Path

import torch

from dpbook.common.datasets import load_fashion_mnist, thin_out

FOLDER = Path(__file__).parent.parent / "book" / "dpbook" / "common" / "data"


def to_idx(values: torch.Tensor) -> bytes:
    """Write integers in 0 ... 255, of any shape, in the idx format.

    Two zeros, the type (8: unsigned byte), the number of dimensions, their
    sizes as big-endian int32, then the values.
    """
    header = struct.pack(">BBBB", 0, 0, 8, values.ndim)
    sizes = struct.pack(f">{values.ndim}i", *values.shape)
    return header + sizes + values.to(torch.uint8).numpy().tobytes()


def make_sample() -> dict[str, bytes]:
    """Make the contents of the four idx files, by name."""
    train, test = load_fashion_mnist(full=True)
    files = {}
    for name, labelled, step in (("train", train, 6), ("t10k", test, 5)):
        images, labels = thin_out(labelled, step)
        pixels = images.squeeze(1).mul(255).round()  # (n, 28, 28)
        files[f"{name}-images-idx3-ubyte"] = to_idx(pixels)
        files[f"{name}-labels-idx1-ubyte"] = to_idx(labels)
    return files


def main() -> None:
    """Write the files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, contents in make_sample().items():
        packed = gzip.compress(contents, compresslevel=9, mtime=0)
        (folder / f"{name}.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
