"""The table of scripts/README.md has each folder and each script."""

import re
from collections import Counter

from tests.repository import ROOT

SCRIPTS = ROOT / "scripts"
NOT_LISTED = {"README.md", "__pycache__"}


def test_each_folder_and_script_stands_in_the_table_once():
    text = (SCRIPTS / "README.md").read_text("utf-8")
    _, rows, _ = re.split(r"\n\|---\|---\|\n|\n\n(?=The docstring)", text)
    first = "".join(row.split(" | ")[0] for row in rows.splitlines())
    there = {path.name for path in SCRIPTS.iterdir()}
    assert Counter(re.findall(r"`([^`]+)`", first)) == Counter(
        there - NOT_LISTED
    )
