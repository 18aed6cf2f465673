"""The records of long runs, in `_data` of the folder of chapters."""

import json
from pathlib import Path
from typing import Any

# Beside the notebook, which may be on Colab or in an archive; or in a clone.
FOLDERS = Path("_data"), Path(__file__).parents[2] / "_data"


def record_path(name: str) -> Path:
    """Return the file of a record.

    Raises:
        FileNotFoundError: There is no such record.
    """
    for folder in FOLDERS:
        if (path := folder / f"{name}.json").is_file():
            return path.resolve()
    searched = ", ".join(str(folder.resolve()) for folder in FOLDERS)
    raise FileNotFoundError(
        f"there is no such record (name: {name!r}, in: {searched})\n"
        "copy the folder _data of book/ to the folder of the notebook"
    )


def load_record(name: str) -> dict[str, Any]:
    """Return what a record holds, and where it comes from.

    Example:
        >>> load_record("gpu_operators")["provenance"]["gpus"]
        ['NVIDIA H200']

    Raises:
        FileNotFoundError: There is no such record.
    """
    record: dict[str, Any] = json.loads(record_path(name).read_text("utf-8"))
    return record
