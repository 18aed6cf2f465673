"""A wrong ``--local_rank`` is told where a script reads it, and not before."""

import copy
import pickle
from argparse import ArgumentParser, Namespace
from contextlib import ExitStack

import pytest

from dpkit.runs.torchrun.watchers import LocalRankOption


@pytest.fixture
def watcher():
    with ExitStack() as stack:
        found = LocalRankOption(0)
        found.begin(stack)
        yield found


@pytest.fixture
def options(watcher, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    parser = ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    parser.add_argument("--lr", type=float, default=0.1)
    return parser.parse_args([])


def test_what_nobody_reads_is_no_mistake(watcher, options):
    assert repr(options) == "Namespace(local_rank=-1, lr=0.1)"
    assert vars(options) == {"local_rank": -1, "lr": 0.1}
    for other in (copy.copy(options), pickle.loads(pickle.dumps(options))):
        assert type(other) is Namespace
        assert other == options
    assert options.lr == 0.1
    assert watcher.findings == {}


def test_what_is_read_is_told_with_its_line(watcher, options):
    assert options.local_rank == -1
    ((sentence, line),) = watcher.findings.items()
    assert "option --local_rank is -1" in sentence
    assert line.startswith("test_local_rank.py:")


def test_a_script_may_set_it(watcher, options):
    if options.local_rank == -1:
        options.local_rank = 1
    assert options.local_rank == 1
    assert watcher.findings == {}
