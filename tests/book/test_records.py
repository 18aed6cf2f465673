"""Records are found in a clone, and beside a notebook elsewhere."""

import json

import pytest

from dpbook.common import records
from dpbook.common.records import load_record, record_path


def test_those_beside_a_notebook_come_first(tmp_path, monkeypatch):
    """As on Colab: the package is installed, and the records are copied."""
    in_clone = record_path("gpu_operators")
    monkeypatch.chdir(tmp_path)
    assert record_path("gpu_operators") == in_clone
    (tmp_path / "_data").mkdir()
    (tmp_path / "_data/gpu_operators.json").write_text('{"seconds": 3}')
    assert load_record("gpu_operators") == {"seconds": 3}


def test_what_is_nowhere_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        record_path("gpu_operatrs")
    assert "(name: 'gpu_operatrs', in: " in str(caught.value)
    assert str(tmp_path / "_data") in str(caught.value)
    assert "copy the folder _data" in str(caught.value)


def test_an_installed_package_reads_those_of_the_notebook(
    tmp_path, monkeypatch
):
    """Nothing lies beside the package itself, as in site-packages."""
    record = json.loads(record_path("gpu_operators").read_text())
    monkeypatch.chdir(record_path("gpu_operators").parents[1])
    there, _ = records.FOLDERS
    monkeypatch.setattr(records, "FOLDERS", (there, tmp_path))
    assert load_record("gpu_operators") == record
