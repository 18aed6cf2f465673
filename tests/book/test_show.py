"""Tests of dpbook.common.show."""

import pytest

from dpbook.common.show import show, source
from dpbook.data_parallelism_concise import ddp_program


class Example:
    """First line.

    More.
    """

    def method(self):
        """Do it.

        Returns:
            Two.
        """
        return 2  # twice one

    def short(self):
        """Stay."""


def test_docstrings_are_cut_to_their_first_line():
    assert source(Example).splitlines() == [
        "class Example:",
        '    """First line."""',
        "",
        "    def method(self):",
        '        """Do it."""',
        "        return 2  # twice one",
        "",
        "    def short(self):",
        '        """Stay."""',
    ]


def test_method_is_shown_without_its_indent():
    assert source(Example.method).splitlines()[0] == "def method(self):"


def test_several_in_one_block():
    block = show(Example.method, Example.short).data
    assert block.startswith("```python\ndef method(self):")
    assert block.endswith('"""Stay."""\n```')
    assert block.count("```") == 2


def test_listing_runs():
    """What is shown is Python, and does what the original does."""
    names = {}
    exec(source(Example), names)
    assert names["Example"]().method() == 2


def test_a_file_is_shown_whole():
    block = show(ddp_program).data
    assert block.splitlines()[1].startswith('"""torchrun --standalone')
    assert block.endswith('\nif __name__ == "__main__":\n    main()\n```')
    assert '    """Train as one process of several' in block


def test_no_source():
    with pytest.raises(TypeError):
        show(len)
