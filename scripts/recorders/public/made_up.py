"""Make up the data that public scripts read, where the real is a download.

Everything is drawn with one seed and lies under ``made`` in the folder of the
repositories, except what a script reads from its own folder.
"""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import matplotlib
import numpy
import torch
import torchvision
from PIL import Image

from recorders.public import made_models

Draw = numpy.random.Generator
WORDS = "the cat sat on a mat and then ran far away from home".split()


def make_up(repositories: Path) -> None:
    """Make up all data, unless it has been done."""
    made = repositories / "made"
    done = made / "done"
    if done.exists():
        return
    draw = numpy.random.default_rng(0)
    images(made / "images", draw)
    coco(made / "coco", draw)
    yolo(made / "yolo", draw)
    digits(made / "MNIST" / "raw", draw)
    text(made / "text", draw)
    weights(made / "torch" / "hub")
    shutil.copy(
        Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans.ttf",
        made / "Arial.ttf",
    )
    for folder in ("examples/data", "pytorch-lightning/Datasets"):
        target = repositories / folder / "MNIST"
        if (repositories / folder).parent.exists():
            shutil.copytree(made / "MNIST", target, dirs_exist_ok=True)
    for name in ("build-nanogpt", "nanoGPT", "llm.c"):
        if (repositories / name).exists():
            tokens(name, repositories / name, draw)
    models(repositories, made, draw)
    done.touch()


def models(repositories: Path, made: Path, draw: Draw) -> None:
    """Make up what is read from a hub, for the repositories that are there."""
    lines = (made / "text" / "train.txt").read_text().splitlines()
    made_models.language_model(made / "llama", lines)
    (made / "lines").mkdir(exist_ok=True)
    shutil.copy(made / "text" / "train.jsonl", made / "lines")
    made_models.sounds(made / "sounds", draw)
    if (folder := repositories / "DiT").exists():
        vae = folder / "stabilityai" / "sd-vae-ft-ema"
        made_models.autoencoder(vae)
    if (folder := repositories / "hifi-gan").exists():
        made_models.speech_config(
            folder / "config_v3.json", made / "hifi-gan.json"
        )
    if (folder := repositories / "nanochat").exists():
        made_models.documents(made / "nanochat", folder, lines)
    if (folder := repositories / "picotron").exists():
        made_models.picotron_config(
            made / "picotron.json", made, folder / "template/base_config.json"
        )
        target = folder / "hf_model_safetensors"
        shutil.copytree(made / "llama", target, dirs_exist_ok=True)


def picture(path: Path, pixels: int, draw: Draw) -> None:
    """Write a square image of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = draw.integers(0, 256, (pixels, pixels, 3), dtype=numpy.uint8)
    Image.fromarray(values).save(path)


def images(folder: Path, draw: Draw) -> None:
    """Write images in a folder for each of two classes, as ImageNet's."""
    for part, count in (("train", 160), ("val", 16)):
        for number in range(2 * count):
            name = f"{part}/class{number % 2}/{number}.png"
            picture(folder / name, 64, draw)


def coco(folder: Path, draw: Draw) -> None:
    """Write images and boxes, as COCO's of 2017."""
    for part, count in (("train2017", 8), ("val2017", 4)):
        found: dict[str, list[dict[str, Any]]] = {
            "images": [],
            "annotations": [],
            "categories": [{"id": k, "name": f"c{k}"} for k in range(1, 91)],
        }
        for number in range(count):
            name = f"{number:06}.jpg"
            picture(folder / part / name, 96, draw)
            about = {"id": number, "file_name": name}
            found["images"].append({**about, "height": 96, "width": 96})
            for j in range(2):
                x, y, w, h = 10 * j + 5, 12, 30, 40
                corners = [x, y, x + w, y, x + w, y + h, x, y + h]
                found["annotations"].append({
                    "id": 2 * number + j + 1,
                    "image_id": number,
                    "category_id": 1 + j,
                    "bbox": [x, y, w, h],
                    "area": w * h,
                    "iscrowd": 0,
                    "segmentation": [corners],
                })  # fmt: skip
        file = folder / "annotations" / f"instances_{part}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(found))


def yolo(folder: Path, draw: Draw) -> None:
    """Write images and boxes in the form of YOLO."""
    labels = "0 0.5 0.5 0.4 0.4\n1 0.3 0.3 0.2 0.2\n"
    for part, count in (("train", 8), ("val", 4)):
        for number in range(count):
            picture(folder / "images" / part / f"{number}.jpg", 64, draw)
            file = folder / "labels" / part / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(labels)
    (folder / "data.yaml").write_text(
        f"path: {folder}\ntrain: images/train\nval: images/val\n"
        "names:\n  0: a\n  1: b\n"
    )


def digits(folder: Path, draw: Draw) -> None:
    """Write images and labels in the files of MNIST."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, n in (("train", 512), ("t10k", 128)):
        pixels = draw.integers(0, 256, (n, 28, 28), dtype=numpy.uint8)
        labels = draw.integers(0, 10, n, dtype=numpy.uint8)
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            struct.pack(">IIII", 2051, n, 28, 28) + pixels.tobytes()
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 2049, n) + labels.tobytes()
        )


def text(folder: Path, draw: Draw) -> None:
    """Write sentences of a few words, as a file and as lines of JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [" ".join(draw.choice(WORDS, 40)) for _ in range(500)]
    (folder / "train.txt").write_text("\n".join(lines))
    (folder / "train.jsonl").write_text(
        "\n".join(json.dumps({"text": line}) for line in lines)
    )


def weights(hub: Path) -> None:
    """Write weights that a script would download, as they are at first."""
    (hub / "checkpoints").mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    state = torchvision.models.resnet50().state_dict()
    torch.save(state, hub / "checkpoints" / "resnet50-0676ba61.pth")
    empty = hub / "facebookresearch_xcit_main" / "hubconf.py"
    empty.parent.mkdir(exist_ok=True)
    empty.write_text("dependencies = []\n")
    (hub / "trusted_list").write_text("facebookresearch_xcit\n")


def questions(folder: Path, draw: Draw) -> None:
    """Write questions with four endings each, as HellaSwag has them."""
    folder.mkdir(exist_ok=True)
    lines = [
        {
            "ctx": " ".join(draw.choice(WORDS, 12)),
            "endings": [" ".join(draw.choice(WORDS, 6)) for _ in range(4)],
            "label": int(draw.integers(4)),
        }
        for _ in range(8)
    ]
    (folder / "hellaswag_val.jsonl").write_text(
        "\n".join(map(json.dumps, lines))
    )


def tokens(name: str, folder: Path, draw: Draw) -> None:
    """Write tokens of GPT-2's vocabulary where a script reads them."""
    ids = draw.integers(0, 50257, 1_300_000).astype(numpy.uint16)
    if name == "build-nanogpt":
        (folder / "edu_fineweb10B").mkdir(exist_ok=True)
        for part in ("train", "val"):
            numpy.save(folder / "edu_fineweb10B" / f"{part}_0.npy", ids)
        questions(folder / "hellaswag", draw)
        return
    made = folder / "data" / "made"
    made.mkdir(parents=True, exist_ok=True)
    if name == "nanoGPT":
        for part in ("train", "val"):
            ids.tofile(made / f"{part}.bin")
        return
    header = numpy.zeros(256, numpy.int32)
    header[:3] = 20240520, 1, 65536
    (made / "train.bin").write_bytes(header.tobytes() + ids[:65536].tobytes())
