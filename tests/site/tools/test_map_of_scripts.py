"""The table of scripts/README.md has each folder, and folders what is in them.

A folder whose scripts are programs, and not parts of one, is a room.
"""

import ast
import re
from collections import Counter

import pytest

from tests.repository import ROOT

SCRIPTS = ROOT / "scripts"
NOT_LISTED = {"README.md", "__pycache__"}
ROOMS = ("chapters", "check", "environment", "owner", "pages", "teaching",
         "testing")  # fmt: skip


def test_each_folder_and_script_stands_in_the_table_once():
    text = (SCRIPTS / "README.md").read_text("utf-8")
    _, rows, _ = re.split(r"\n\|---\|---\|\n|\n\n(?=The docstring)", text)
    first = "".join(row.split(" | ")[0] for row in rows.splitlines())
    there = {path.name for path in SCRIPTS.iterdir()}
    assert Counter(re.findall(r"`([^`]+)`", first)) == Counter(
        there - NOT_LISTED
    )


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_is_in_it(room):
    folder = SCRIPTS / room
    source = (folder / "__init__.py").read_text("utf-8")
    told = re.findall(r"``([^`]+)``", ast.get_docstring(ast.parse(source)))
    there = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert there <= set(told)
    for name in told:
        paths = [folder / name, folder / f"{name}.py", ROOT / name]
        assert any(path.exists() for path in paths) or name == "make check"
