"""An algorithm or a schedule that is new is named wherever it should be."""

import inspect
import re

import pytest

import dpkit
from dpkit.network_partition.pipeline import Pipeline
from dpkit.plans import algorithms, choice, costs
from dpkit.plans.algorithms import ALLREDUCE
from dpkit.schedules import bubble
from dpkit.schedules.named import SCHEDULE_NAMES


def names_missing_in(text, names):
    """Return the names that a text lacks; "_" may be a space or a hyphen."""
    words = {name: name.replace("_", "[-_ ]") for name in names}
    return [
        name
        for name, word in words.items()
        if not re.search(rf"\b{word}\b", text, re.IGNORECASE)
    ]


@pytest.mark.parametrize(
    "text",
    [algorithms.__doc__, costs.__doc__, inspect.getdoc(dpkit.allreduce)],
    ids=["algorithms", "costs", "allreduce"],
)
def test_lists_of_algorithms_name_all(text):
    assert names_missing_in(text, ALLREDUCE) == []


def test_every_algorithm_has_its_costs():
    # By rings inside and across nodes, whose rates differ:
    # ``hierarchical_seconds``.
    assert costs.CHAINS.keys() == ALLREDUCE.keys() - {"hierarchical"}


def test_every_algorithm_is_compared():
    # On equal links this one costs what a ring does.
    assert costs.CHAINS["direct"] is costs.CHAINS["ring"]
    assert {*choice.CANDIDATES} == costs.CHAINS.keys() - {"direct"}


def test_every_schedule_has_its_formulas():
    assert bubble.FORMULAS.keys() == {*SCHEDULE_NAMES}


@pytest.mark.parametrize(
    "described", [bubble.makespan, bubble.in_flight, Pipeline]
)
def test_lists_of_schedules_name_all(described):
    assert names_missing_in(inspect.getdoc(described), SCHEDULE_NAMES) == []


def test_a_name_that_a_list_lacks_is_seen():
    names = ["ring", "tree", "star", "halving_doubling"]
    found = names_missing_in("a ring, Halving-doubling; to start", names)
    assert found == ["tree", "star"]
