"""How the error of a script is told: its causes, and the errors of a group."""

import runpy

from dpkit.runs.torchrun.failures import failure_of

HEAD = "Traceback (most recent call last):"


def failed(tmp_path, text):
    script = tmp_path / "script.py"
    script.write_text(text)
    try:
        runpy.run_path(str(script))
    except Exception as error:
        return failure_of(error)
    raise AssertionError("the script has not failed")


def test_the_cause_of_an_error_is_told_before_it(tmp_path):
    text = """
try:
    int("x")
except ValueError as error:
    raise KeyError("no such setting") from error
"""
    failure = failed(tmp_path, text)
    assert failure.error == "KeyError: 'no such setting'"
    first, second = failure.frames.split(f"\n{HEAD}\n")
    assert "line 3" in first
    assert "ValueError: invalid literal for int()" in first
    assert first.endswith("direct cause of the following exception:\n")
    assert "line 5" in second


def test_an_error_while_another_is_handled(tmp_path):
    failure = failed(tmp_path, "try:\n    1 / 0\nfinally:\n    int('x')\n")
    first, second = failure.frames.split(f"\n{HEAD}\n")
    assert "ZeroDivisionError: division by zero" in first
    assert "During handling of the above exception" in first
    assert "line 4" in second


def test_what_is_suppressed_or_goes_round_ends(tmp_path):
    failure = failed(
        tmp_path,
        "try:\n    1 / 0\nexcept Exception:\n    raise ValueError from None\n",
    )
    assert HEAD not in failure.frames
    text = """
first, second = ValueError("first"), ValueError("second")
try:
    raise first
except ValueError as error:
    try:
        raise second from error
    except ValueError as error:
        first.__cause__ = error
        raise first
"""
    assert failed(tmp_path, text).frames.count(HEAD) == 1


def test_what_a_library_has_caught_inside_is_left_out(tmp_path):
    """zoneinfo raises its error while it handles one of its own."""
    text = "import zoneinfo\nzoneinfo.ZoneInfo('No/Where')\n"
    failure = failed(tmp_path, text)
    assert failure.error.startswith("ZoneInfoNotFoundError")
    assert HEAD not in failure.frames


def test_an_error_of_a_loader_ends_in_the_words_of_its_worker(tmp_path):
    text = """
from torch.utils.data import DataLoader, Dataset

class Data(Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        raise ValueError("in the loader")

list(DataLoader(Data(), num_workers=1))
"""
    failure = failed(tmp_path, text)
    assert failure.error.endswith("\nValueError: in the loader")


def test_the_errors_of_a_group_are_told_with_their_lines(tmp_path):
    text = """
def found():
    for kind in (ValueError, KeyError):
        try:
            raise kind("wrong")
        except kind as error:
            yield error


raise ExceptionGroup("two tasks", list(found()))
"""
    failure = failed(tmp_path, text)
    assert failure.error == "ExceptionGroup: two tasks (2 sub-exceptions)"
    assert [note.split(" (")[0] for note in failure.notes] == [
        "  ValueError: wrong",
        "  KeyError: 'wrong'",
    ]
    assert all("script.py" in note for note in failure.notes)
