"""Make up the data that scripts read whose steps others have timed.

They need more of it than the scripts of ``made_up``: batches are those of the
published runs.
"""

import base64
import itertools
import json
from pathlib import Path

import numpy
from PIL import Image

PAIRS = 12_000  # images of each of two classes, all the same
LLAMA_RANKS = 128_000  # of its vocabulary, without the special words
WORDS = "a few words that are said again and again, in one order. "


def make_up_for_forecasts(made: Path) -> None:
    """Write tokens, texts, a vocabulary and images into a folder, once."""
    done = made / "done-for-forecasts"
    if done.exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    draw = numpy.random.default_rng(0)
    ids = draw.integers(0, 50257, 1_300_000)
    ids.astype(numpy.uint16).tofile(made / "tokens.bin")
    ids.astype(numpy.int32).tofile(made / "tokens-int32.bin")
    text = WORDS * 20_000
    (made / "words.txt").write_text(text)
    lines = [json.dumps({"text": text[:100_000]})] * 20
    (made / "c4.json").write_text("\n".join(lines))
    vocabulary(made / "llama3.model")
    many_images(made / "many-images")
    done.touch()


def vocabulary(path: Path) -> None:
    """Write a vocabulary of Llama 3's size: bytes, then more of them."""
    longer = itertools.chain.from_iterable(
        itertools.product(range(256), repeat=count) for count in (1, 2, 3)
    )
    words = map(bytes, itertools.islice(longer, LLAMA_RANKS))
    path.write_text(
        "".join(
            f"{base64.b64encode(word).decode()} {rank}\n"
            for rank, word in enumerate(words)
        )
    )


def many_images(folder: Path) -> None:
    """Write one image of ImageNet's usual size, and many links to it."""
    folder.mkdir(exist_ok=True)
    image = folder / "image.jpeg"
    Image.new("RGB", (500, 375), "gray").save(image)
    for part, count in (("train", PAIRS), ("val", 16)):
        for label in ("0", "1"):
            inside = folder / part / label
            inside.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                (inside / f"{number}.jpeg").symlink_to(image)
