"""The table of scripts/README.md has each script once."""

import re
from collections import Counter

from tests.repository import ROOT

NOT_LISTED = {"README.md", "__pycache__"}


def test_each_script_stands_in_the_table_once():
    text = (ROOT / "scripts" / "README.md").read_text("utf-8")
    table = text[text.index("\n|---|---|\n") : text.index("\n- [")]
    there = {path.name for path in (ROOT / "scripts").iterdir()}
    assert Counter(re.findall(r"`([^`]+)`", table)) == Counter(
        there - NOT_LISTED
    )
