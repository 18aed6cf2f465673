"""Which scripts are run, and how."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TABLE = HERE / "scripts.toml"


@dataclass
class PublicScript:
    """A script that someone else wrote, and what it is given.

    ``{made}`` in an argument or a variable is the folder of data made up,
    ``{temporary}`` one for what the script writes.
    """

    name: str
    repository: str  # "karpathy/nanoGPT"; a package: "package:accelerate"
    script: str  # its path in the folder, or a module
    folder: str = "."  # of the repository, in which it is run
    module: bool = False  # python -m
    arguments: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)  # of dpkit torchrun
    ranks: int = 2
    steps: int = 3  # of the optimizer; -1: to the script's end
    made: str = "nothing"  # what was made up
    stand_ins: list[str] = field(default_factory=list)  # folders of packages
    old_names: bool = False  # whether names that are no more are put back
    removed: list[str] = field(default_factory=list)  # of an earlier run
    variables: dict[str, str] = field(default_factory=dict)
    compared: bool = False  # whether it is run in real processes, too
    at: str = ""  # a commit whose files are laid out apart; "": the checkout
    replaced: list[list[str]] = field(default_factory=list)  # old and new text
    linked: dict[str, str] = field(default_factory=dict)  # there -> made data
    blind: bool = False  # chosen before any script like it was tried
    reason: str = ""  # why it does not run, or what is to be known

    def filled(
        self, arguments: list[str], places: dict[str, str]
    ) -> list[str]:
        """Return arguments with the places put in."""
        return [fill(argument, places) for argument in arguments]


def fill(text: str, places: dict[str, str]) -> str:
    """Return a text with the places put in."""
    for name, path in places.items():
        text = text.replace(f"{{{name}}}", path)
    return text


def read_table(path: Path = TABLE) -> list[PublicScript]:
    """Return the scripts of a table.

    Raises:
        TypeError: one has a field that is not known.
    """
    rows: list[dict[str, Any]] = tomllib.loads(path.read_text())["script"]
    return [PublicScript(**row) for row in rows]
