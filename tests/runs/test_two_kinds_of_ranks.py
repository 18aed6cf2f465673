"""Ranks that are processes offer what ranks that are threads do."""

import ast
import inspect
import sys
from multiprocessing import Pipe
from pathlib import Path

import pytest

import dpkit.runs.forked
from dpkit.runs.forked.clock import RemoteClock, RemoteHosts
from dpkit.runs.forked.group import ForkedGroup, ForkedWork
from dpkit.runs.forked.proxy import ORDERS, QUESTIONS
from dpkit.runs.forked.requests import Requests
from dpkit.runs.forked.store import STORE_METHODS, RemoteStore
from dpkit.runs.ranks.alike import AlikeGroup
from dpkit.runs.ranks.group import SimGroup
from dpkit.runs.ranks.store import RankStore
from dpkit.runs.ranks.works import SimWork
from dpkit.sim.clock.clock import Clock
from dpkit.sim.clock.interface import ClockInterface, HostsInterface
from dpkit.sim.clock.issuers import Hosts
from dpkit.sim.hardware.clusters import cluster

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)


def public(owner):
    """Return the names that a class defines for others."""
    return {name for name in vars(owner) if not name.startswith("_")}


def parameters(owner, name):
    """Return what a method takes: names, defaults, whether by name alone."""
    found = inspect.signature(getattr(owner, name)).parameters.values()
    by_name = inspect.Parameter.KEYWORD_ONLY
    return [(one.name, one.default, one.kind is by_name) for one in found]


@pytest.fixture
def clocks():
    """Return the clock, and what stands in for it in a rank's process."""
    one, two = Pipe()
    hardware = cluster(num_devices=2, hosts="per_device")
    yield Clock(hardware), RemoteClock(hardware, 0, Requests(one))
    one.close()
    two.close()


def test_both_clocks_have_what_a_program_asks(clocks):
    for clock in clocks:
        for asked, there in (
            (ClockInterface, clock),
            (HostsInterface, clock.hosts),
        ):
            assert [n for n in public(asked) if not hasattr(there, n)] == []


@pytest.mark.parametrize(
    ("asked", "kinds"),
    [
        (ClockInterface, (Clock, RemoteClock)),
        (HostsInterface, (Hosts, RemoteHosts)),
    ],
)
def test_both_clocks_are_asked_in_the_same_way(asked, kinds):
    methods = [n for n in public(asked) if inspect.isfunction(vars(asked)[n])]
    assert len(methods) >= 3
    for name in methods:
        for kind in kinds:
            taken = parameters(kind, name)
            expected = parameters(asked, name)
            if name in ("end_of", "is_done"):  # their first has no name
                taken, expected = taken[2:], expected[2:]
            assert taken[: len(expected)] == expected, (kind, name)


@pytest.mark.parametrize(
    "kind", [SimGroup, AlikeGroup, ForkedGroup, SimWork, ForkedWork]
)
def test_groups_and_works_leave_nothing_open(kind):
    found = inspect.getmembers(kind, inspect.isfunction)
    left = [n for n, f in found if getattr(f, "__isabstractmethod__", False)]
    assert left == []


def test_both_stores_have_what_pytorch_asks():
    assert public(RankStore) == set(STORE_METHODS)
    assert public(RankStore) <= public(RemoteStore)


def test_every_request_has_its_handler_and_every_handler_its_request():
    found = set()
    for path in Path(dpkit.runs.forked.__path__[0]).glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            match call:
                case ast.Call(
                    func=ast.Attribute(attr="add" | "add_later" | "ask"),
                    args=[ast.Constant(value=str(name)), *_],
                ):
                    found.add(name)
    assert found | {"end"} == set(ORDERS) | set(QUESTIONS)
