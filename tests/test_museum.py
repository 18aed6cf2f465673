"""Each bug of the museum is caught by its check, and by no careless one."""

import json
from pathlib import Path

import pytest
from torch import nn

from dpkit.lab.museum import EXHIBITS, ROOMS, tell
from dpkit.lab.museum.exhibit import claim, verdict
from dpkit.lab.museum.parity import step_of_all
from dpkit.lab.museum.replicas import parity
from dpkit.machine import devices

PAGE = Path(__file__).parent.parent / "book/museum.ipynb"
# Each bug that has to be there, and the exhibit that shows it.
BUGS = {
    "assignment instead of copy in allreduce": "assignment",
    "replicas that alias on one device": "aliases",
    "parity check with k = 1 on a one-GPU box": "one device",
    "sum instead of mean of gradients": "sum of means",
    "mean of means with ragged shards": "mean of means",
    'a "ring" that sends the whole tensor': "whole ring",
    "a ring that hangs when sends block": "ring that hangs",
    "numel // p chunks": "remainder",
    "x.chunk(4) of 5 rows": "chunk",
    "a test of element 0": "element 0",
    "1F1B with s + 1 forwards before a backward": "short warm-up",
    "a list in which the first stage runs B5-B7 twice": "listed twice",
    "a chart in which B0 starts with the last stage's": "chart",
    "a backward loop over range(0, num_layers, -1)": "loop that is empty",
    "loss not divided by m in a pipeline": "loss not divided",
    "steps counted without dependencies": "ticks without waiting",
    "timer that synchronizes one device": "one synchronized",
    "non-blocking copies that overlap with nothing": "one stream",
    "gradient-norm clipping per shard": "clipped shards",
    "a tied or replicated parameter counted twice": "counted twice",
    "batch-norm statistics of replica 0 alone": "replica 0",
    "torch.tensor(dist.all_reduce(...))": "returned nothing",
    "rank 0 evaluates alone, by PyTorch's wrapper": "evaluation alone",
}
NAMES = list(EXHIBITS)
# Whose checks start processes, and take seconds.
STARTS_RANKS = ["evaluation alone"]
# Versions that change what they are given. The others return something, and
# a check could not even look at what they return if it were nothing.
IN_PLACE = [
    name
    for name, bug in EXHIBITS.items()
    if bug.right.__annotations__["return"] in ("None", None)
]
CARELESS = [name for name in NAMES if EXHIBITS[name].careless]


def on_either(names):
    """Where an exhibit leaves the choice of devices, it holds on either.

    Ranks have the CPU, and are forked, which is quicker.
    """
    cases = []
    for name in names:
        if name in STARTS_RANKS:
            cases.append(pytest.param(name, "cpu", marks=pytest.mark.slow))
        else:
            cases += [(name, "sim"), (name, "cpu")]
    return pytest.mark.parametrize(("name", "place"), cases)


@pytest.fixture(autouse=True)
def _place(request, monkeypatch):
    call = getattr(request.node, "callspec", None)
    given = call.params if call else {}
    monkeypatch.setenv("DPKIT_DEVICES", given.get("place", "sim"))
    if given.get("name") in STARTS_RANKS and "place" in given:
        request.getfixturevalue("forked_ranks")


@on_either(NAMES)
def test_the_check_catches_the_wrong_version(name, place):
    bug = EXHIBITS[name]
    assert bug.caught in verdict(bug.check, bug.wrong)


@on_either(NAMES)
def test_the_right_version_passes(name, place):
    bug = EXHIBITS[name]
    assert verdict(bug.check, bug.right) == "passes"


@on_either(CARELESS)
def test_a_careless_check_passes_both(name, place):
    bug = EXHIBITS[name]
    assert verdict(bug.careless, bug.wrong) == "passes"
    assert verdict(bug.careless, bug.right) == "passes"


def leave_nothing(*args):
    """Do no work, and let no gradient be left from before."""
    for module in args:
        if isinstance(module, nn.Module):
            module.zero_grad()


@on_either(IN_PLACE)
def test_checks_refuse_what_does_nothing(name, place):
    """The careless one too: it sees at least that nothing is left."""
    bug = EXHIBITS[name]
    for check in filter(None, (bug.check, bug.careless)):
        found = verdict(check, leave_nothing)
        assert found.startswith(("AssertionError", "ValueError")), found


def test_every_bug_has_an_exhibit():
    assert sorted(BUGS.values()) == sorted(EXHIBITS)
    assert sum(len(room.EXHIBITS) for room in ROOMS) == len(BUGS) == 23


def test_parity_on_one_device_is_refused():
    with pytest.raises(AssertionError, match=r"proves nothing \(devices: 1"):
        parity(step_of_all, devices(1))
    parity(step_of_all, devices(2))


def test_a_claim_that_does_not_hold_is_an_error():
    claim(True, "no matter")
    with pytest.raises(AssertionError, match="two is not one"):
        claim(False, "two is not one")


def test_what_is_told(capsys):
    tell("chunk")
    assert capsys.readouterr().out.splitlines() == [
        "by_chunk, eight_rows: passes",
        "by_chunk, every_number_of_rows: AssertionError: not a shard for "
        "each device (rows: 1, devices: 4, shards: 1)",
        "scatter, every_number_of_rows: passes",
    ]


@pytest.fixture(scope="module")
def cells():
    found = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_each_exhibit(name, cells):
    """Its versions in a listing, and what its check said, and no other."""
    bug = EXHIBITS[name]
    (listing,), (told,) = (
        [c for c in cells if c["source"] == f'museum.{verb}("{name}")']
        for verb in ("listing", "tell")
    )
    (shown,) = listing["outputs"]
    assert f"def {bug.wrong.__name__}(" in "".join(
        shown["data"]["text/markdown"]
    )
    (said,) = told["outputs"]
    assert bug.caught in "".join(said["text"])


@pytest.mark.parametrize("name", NAMES)
def test_the_contents_of_the_page_name_each_exhibit(name, cells):
    """A row of the table, which leads to the entry's heading."""
    bug, label = EXHIBITS[name], f"museum-{name.replace(' ', '-')}"
    told = bug.check.__doc__.splitlines()[0].rstrip(".")
    link = f"{{ref}}`{bug.title} <{label}>`"
    texts = [c["source"] for c in cells if c["cell_type"] == "markdown"]
    row = f"| {bug.room} | {link} | {bug.symptom} | {told} |\n"
    assert sum(row in f"{text}\n" for text in texts) == 1
    assert any(f"({label})=\n### {bug.title}\n" in text for text in texts)
