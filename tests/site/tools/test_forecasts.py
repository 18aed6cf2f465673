"""The record of what forecasts of scripts are worth, and its recorder."""

import json
import subprocess
from pathlib import Path

import pytest
from recorders.public import made_for_forecasts
from recorders.public.checkout import lay_out, replace
from recorders.public.forecasts import (
    Published,
    gib_of,
    longest,
    read_forecasts,
    seconds_of,
)
from recorders.public.table import PublicScript

from tests.repository import ROOT

RECORD = ROOT / "book" / "_data" / "forecasts_of_scripts.json"
WIDE = 1.5  # a forecast that is further off has its reason in the table


def test_the_record_has_all_runs_of_the_table():
    rows = json.loads(RECORD.read_text())["runs"]
    read = read_forecasts()
    assert [row["name"] for row in rows] == [f.script.name for f in read]
    for row, forecast in zip(rows, read):
        assert row["failed"] == "", row["name"]
        assert row["commit"].startswith(forecast.script.at[:7])
        assert row["options"] == forecast.script.options
        assert row["arguments"] == forecast.script.arguments
        assert row["changed"] == forecast.script.replaced
        published = forecast.published.step_seconds()
        assert row["published_seconds"] == pytest.approx(published, rel=1e-3)
        ratio = row["forecast_seconds"] / row["published_seconds"]
        assert row["ratio"] == pytest.approx(ratio, rel=2e-3)


def test_what_is_far_off_has_a_reason():
    rows = json.loads(RECORD.read_text())["runs"]
    for row, forecast in zip(rows, read_forecasts()):
        if not 1 / WIDE < row["ratio"] < WIDE:
            assert row["reason"] == forecast.script.reason != "", row["name"]


def test_a_step_is_published_in_three_ways():
    about = ("source", "date", "hardware", "torch", "batch", "precision")
    common = (*about, False, "fused")
    assert Published(*common, seconds=2).step_seconds() == 2
    rate = Published(*common, per_second=50, work=100)
    assert rate.step_seconds() == 2
    training = Published(*common, hours=1, steps=1800)
    assert training.step_seconds() == 2


REPORT = """\
A step of the optimizer, one of 3 (modelled)
  255 ms (median; from 254.5 ms to 255.6 ms)

What GPU 0 spends most time on (modelled)
  operation       times  of the time
  mm                520          21%
  copy from host      6           9%

Otherwise than on a GPU
"""


def test_the_report_is_read():
    assert seconds_of("255 ms (median; from 254.5 ms to 255.6 ms)") == 0.255
    assert seconds_of("1.5 s (median)") == 1.5
    assert gib_of("512 MiB") == 0.5
    assert longest(REPORT) == [["mm", "21%"], ["copy from host", "9%"]]
    assert longest("") == []


def test_a_commit_is_laid_out_with_its_replacements(tmp_path: Path):
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(
            ["git", *who, *words], cwd=repository, check=True,
            capture_output=True,
        )  # fmt: skip

    git("init", "-q")
    for version in ("old", "new"):
        (repository / "train.py").write_text(f"print({version!r}, 4)\n")
        git("add", ".")
        git("commit", "-qm", version)
    script = PublicScript(
        "name", "a/repository", "train.py", at="HEAD~1",
        replaced=[["4", "8"]], linked={"data/x": "{made}/y"},
    )  # fmt: skip
    target = tmp_path / "at"
    lay_out(repository, target, script, str(tmp_path))
    assert (target / "train.py").read_text() == "print('old', 8)\n"
    assert (target / "data" / "x").readlink() == tmp_path / "y"


def test_what_is_replaced_is_there_once(tmp_path: Path):
    script = tmp_path / "train.py"
    script.write_text("a, a, b")
    with pytest.raises(ValueError, match=r"just once .*'a', found: 2"):
        replace(script, [["a", "c"]])
    with pytest.raises(ValueError, match="found: 0"):
        replace(script, [["d", "c"]])
    assert script.read_text() == "a, a, b"


def test_data_are_made_up_once(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(made_for_forecasts, "PAIRS", 3)
    made_for_forecasts.make_up_for_forecasts(tmp_path)
    ranks = (tmp_path / "llama3.model").read_text().splitlines()
    assert len({line.split()[0] for line in ranks}) == 128_000
    assert len(list((tmp_path / "many-images/train").glob("*/*.jpeg"))) == 6
    assert len((tmp_path / "tokens.bin").read_bytes()) == 2 * 1_300_000
    (tmp_path / "words.txt").unlink()
    made_for_forecasts.make_up_for_forecasts(tmp_path)
    assert not (tmp_path / "words.txt").exists()
