"""The command line of the book: what it refuses, and its help."""

import re

import pytest

from dpbook.__main__ import main
from tests.runs.test_main import refused


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: command"),
        (["train", "--model", "abacus"], "invalid choice: 'abacus'"),
        (["train", "--epochs", "0"], r"not a count from 1 up \('0'\)"),
        (["train", "--keep", "x"], r"not a count from 1 up \('x'\)"),
        (["train", "--lr", "nan"], r"--lr: not a number from 0 up \('nan'\)"),
        (["train", "--lr", "x"], r"--lr: not a number from 0 up \('x'\)"),
        (["train", "--timeout", "-1"], r"not a number above 0, .* \('-1'\)"),
    ],
)
def test_what_the_book_cannot_do_is_refused(arguments, words, capsys):
    line = refused(arguments, capsys, main, "python -m dpbook")
    assert re.search(words, line), line


@pytest.mark.parametrize("words", [[], ["train"]])
def test_help_is_given_of_the_book(words, capsys):
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    assert "python -m dpbook" in capsys.readouterr().out
