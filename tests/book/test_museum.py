"""Each bug of the museum is caught by its check, and by no careless one."""

import json
import re
from collections import Counter
from functools import partial

import pytest
import torch
from predict_boxes import boxes, text_of
from torch import nn

from dpbook.museum import (
    EXHIBITS,
    ROOMS,
    meshes,
    ranks,
    sequences,
    shards,
    tell,
    timers,
)
from dpbook.museum.exhibit import claim, verdict
from dpbook.museum.replicas import parity, step_of_all
from dpkit import sim
from dpkit.machine import devices
from tests.repository import ROOT

PAGE = ROOT / "book/museum.ipynb"
# What the check of each exhibit says of the wrong version, in part.
CAUGHT = {
    "assignment": "rank 1 does not hold the sum",
    "aliases": "share their memory (a step, where 1 is right: 4.00)",
    "one device": "rank 0 takes another step than one device (devices: 3",
    "sum of means": "devices: 3, rows: 6, lengths: 3.00 to 1",
    "mean of means": "rank 0 takes another step than one device",
    "whole ring": "bytes: 24000, a ring's: 6000",
    "ring that hangs": "the ranks wait for each other",
    "remainder": "elements: 1, wrong at: 0",
    "chunk": "(rows: 1, devices: 4, shards: 1)",
    "element 0": "elements: 11, wrong at: 4, 5, 6, 7, 8, 9, 10",
    "short warm-up": "neither goes on",
    "listed twice": "0B5 is there 2 times",
    "chart": "0B0 in tick 2 needs 1B0, which is in tick 2",
    "loop that is empty": "0B0 is missing",
    "loss not divided": "micro-batches: 4, lengths: 4.00 to 1",
    "ticks without waiting": "micro-batches: 4, ticks: 8, at least: 10",
    "one synchronized": "sooner than the device can be",
    "one stream": "no copy overlaps with the work (copies: 4",
    "clipped shards": "its norm: 0.76, of the shards: 0.28, 0.50, 0.50",
    "counted twice": "gradient of the shared weight is not that of one device",
    "replica 0": "in evaluation outputs are not those of one device",
    "returned nothing": "RuntimeError: Could not infer dtype of NoneType",
    "evaluation alone": "(rank 1: barrier, rank 0: broadcast(root=0) of (6,)",
    "error alone": "rank 1 has returned; rank 2 waits in allreduce",
    "uneven batches": "no rank can go on (rank 0 waits in allreduce",
    "another order": "(rank 0: allreduce(op=sum) of () float32, rank 1: "
    "allreduce(op=sum) of (3,) float32",
    "ragged batch": "of (3, 2) float32, rank 1: allgather of (2, 2) float32",
    "full batch": "devices: 3, rows: 5, lengths: 0.83 to 1",
    "summed already": "devices: 3, rows: 6, lengths: 3.00 to 1",
    "means scattered": "ranks: 4, rows: 7, lengths: 0.90 to 1",
    "freed too early": "are out of bounds for storage of size 0",
    "causal ring": "some ranks compute for longer (ms: 0.7, 2.0, 3.3, 4.6)",
    "counts from zero": "rank 0: the gradient of places.weight is",
    "router alone": "the router of rank 0 is",
    "dropped in the mean": "with room for 4 of 8 the mean is 0.5",
    "rows by rank": "(loss of all rows: 0.97, one device's: 0.92)",
    "clipped on a mesh": "rank 0: a parameter is 4e-04 away",
    "groups across nodes": "(16.0 ms on one node, 31.1 ms on two)",
    "tensor outermost": "(KeyError: \"Invalid mesh_dim_names ('fsdp', 'tp')",
}
NAMES = list(EXHIBITS)
# Whose checks launch ranks, which are simulated devices anywhere.
ON_RANKS = ["returned nothing", "evaluation alone"] + [
    exhibit.name
    for room in (ranks, sequences, shards, meshes)
    for exhibit in room.EXHIBITS
]
# Versions that change what they are given. The others return something, and
# a check could not even look at what they return if it were nothing.
IN_PLACE = [
    name
    for name, bug in EXHIBITS.items()
    if bug.right.__annotations__["return"] in ("None", None)
]
CARELESS = [name for name in NAMES if EXHIBITS[name].careless]


def on_either(names):
    """Where an exhibit leaves the choice of devices, it holds on either."""
    cases = [(name, "sim") for name in names]
    cases += [(name, "cpu") for name in names if name not in ON_RANKS]
    return pytest.mark.parametrize(("name", "place"), cases)


@pytest.fixture(autouse=True)
def _place(request, monkeypatch):
    call = getattr(request.node, "callspec", None)
    place = call.params.get("place", "sim") if call else "sim"
    monkeypatch.setenv("DPKIT_DEVICES", place)


@on_either(NAMES)
def test_the_check_catches_the_wrong_version(name, place):
    bug = EXHIBITS[name]
    assert CAUGHT[name] in verdict(bug.check, bug.wrong)


@on_either(NAMES)
def test_the_right_version_passes(name, place):
    bug = EXHIBITS[name]
    assert verdict(bug.check, bug.right) == "passes"


@on_either(CARELESS)
def test_a_careless_check_passes_both(name, place):
    bug = EXHIBITS[name]
    assert verdict(bug.careless, bug.wrong) == "passes"
    assert verdict(bug.careless, bug.right) == "passes"


def test_copies_that_nobody_waited_for_are_told():
    (race,) = timers.add_up_at_once(timers.copies_without_blocking)
    assert (race.first.name, race.first.what) == ("copy to cpu", "writes")
    assert (race.second.device, race.second.what) == ("host", "reads")


@pytest.mark.parametrize(
    "version", [timers.copies_beside, timers.copies_with_blocking]
)
def test_copies_that_were_waited_for_are_right(version):
    assert timers.add_up_at_once(version) == []


@pytest.mark.parametrize("name", ranks.OPTIMIZERS)
@pytest.mark.parametrize("num_batches", [6, 7])
def test_join_keeps_replicas_with_plain_sgd_alone(name, num_batches):
    check = partial(ranks.train_on, num_batches=num_batches, name=name)
    found = verdict(check, ranks.train_joined)
    parted = num_batches == 7 and name != "SGD"
    assert (" on rank 1, " in found) == parted
    assert (found == "passes") != parted
    assert verdict(check, EXHIBITS["uneven batches"].right) == "passes"


def join_or_stop(ddp, optimizer, batches):
    """Let an error end the epoch on all ranks, once one has no batch left."""
    try:
        with ddp.join(throw_on_early_termination=True):
            ranks.train_on_its_own(ddp, optimizer, batches)
    except RuntimeError as error:
        assert "exhausted" in str(error)  # noqa: PT017


def test_join_can_end_the_epoch_of_all():
    check = partial(ranks.train_on, num_batches=7)
    assert verdict(check, join_or_stop) == "passes"


def test_ranks_end_where_sums_are_those_of_other_names():
    """Where shapes are the same, no rank waits: the numbers are wrong."""
    swapped = {"loss": 1.75, "accuracy": 2.0}
    exhibit = EXHIBITS["another order"]
    assert ranks.sums(exhibit.wrong, *swapped)[0] == swapped
    right = {"loss": 1.5, "accuracy": 2.25}
    assert ranks.sums(exhibit.right, *right) == [right] * 3


def test_partners_that_read_other_rows_report_a_lower_loss():
    """It falls, is lower than one device's, and all ranks agree."""
    found = meshes.on_ranks(rows=meshes.rows_by_rank)
    expected = meshes.on_one_device(clips=False).losses
    for loss, right in zip(meshes.mean_losses(found), expected, strict=True):
        assert loss < 0.95 * right
    for rank in found[1:]:
        for name, p in rank.parameters.items():
            assert torch.equal(p, found[0].parameters[name])


def test_plain_sgd_shows_what_adam_hides(monkeypatch):
    """The factor by which a rank scales its parts stands in the step."""
    sgd = partial(torch.optim.SGD, lr=1.0)
    monkeypatch.setattr(
        torch.optim, "AdamW", lambda parameters, _: sgd(parameters)
    )
    wrong = sim.launch(
        meshes.learn,
        4,
        meshes.tensor_last,
        meshes.rows_by_place,
        meshes.clip_by_own_norm,
    )
    right = meshes.on_one_device(clips=True)
    losses = meshes.mean_losses(wrong)[2], right.losses[2]
    assert [f"{loss:.2f}" for loss in losses] == ["0.87", "0.95"]


def test_every_step_clips():
    """Else a check that clips would pass a version that does nothing."""
    norms = []

    def clip(parameters, bound):
        norms.append(nn.utils.clip_grad_norm_(parameters, bound))

    net = meshes.make_net(meshes.WIDTH).double()
    meshes.three_steps(net, *meshes.task(), clip)
    assert len(norms) == 3
    assert min(norms) > 2 * meshes.BOUND


@pytest.mark.parametrize(
    "make_mesh", [meshes.groups_dealt_out, meshes.tensor_last]
)
def test_both_meshes_send_the_same_bytes(make_mesh):
    """Two pairs of layers, in 16 bits, over two ranks along each dimension."""
    outputs = 2 * (meshes.MANY_ROWS // 2) * meshes.LARGE_WIDTH
    pair = 2 * 2 * meshes.LARGE_WIDTH**2 // 2  # what a tensor rank has
    # The gradient of the first inputs is not needed, so three allreduces;
    # a pair is gathered twice, and its gradients are scattered once.
    of_fsdp = 2 * 3 * pair // 2
    each = 3 * outputs + of_fsdp
    assert of_fsdp / each == 0.2  # a fifth, as the page says
    for nodes in (1, 2):
        assert meshes.large_step(make_mesh, nodes).num_bytes == 4 * each


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
    assert sorted(CAUGHT) == sorted(EXHIBITS)
    assert sum(len(room.EXHIBITS) for room in ROOMS) == len(CAUGHT) == 39


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
        "wrong version, eight_rows: passes",
        "wrong version, every_number_of_rows: AssertionError: not a shard "
        "for each device (rows: 1, devices: 4, shards: 1)",
        "right version, every_number_of_rows: passes",
    ]


@pytest.fixture(scope="module")
def cells():
    found = json.loads(PAGE.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in found]


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_each_exhibit(name, cells):
    """Its wrong version; then what its check said, and what caught it."""
    bug = EXHIBITS[name]
    (listing,), (told,) = (
        [c for c in cells if c["source"] == f'museum.{verb}("{name}")']
        for verb in ("listing", "tell")
    )
    (shown,) = listing["outputs"]
    assert functions(shown) == [bug.wrong.__name__]
    said, caught = told["outputs"]
    assert CAUGHT[name] in "".join(said["text"])
    assert functions(caught) == [bug.check.__name__, bug.right.__name__]


def functions(output):
    """Return the names of the functions in a listing."""
    text = "".join(output["data"]["text/markdown"])
    return re.findall(r"(?m)^def (\w+)", text)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_asks_before_it_tells(name, cells):
    """Between the wrong version and the answer; the call, too, is hidden."""
    (at,) = (
        i
        for i, cell in enumerate(cells)
        if cell["source"] == f'museum.listing("{name}")'
    )
    listing, asked, told = cells[at : at + 3]
    assert listing["metadata"]["tags"] == ["remove-input"]
    assert told["source"] == f'museum.tell("{name}")'
    (box,) = (b for b in boxes({"cells": cells}) if b.cell == asked["id"])
    assert box.choice is not None
    assert told["id"] in box.folds[0]
    # Nothing before the fold says what the check says of the mistake.
    fold = {cell for b in boxes({"cells": cells}) for cell in b.folds[0]}
    before = [text_of(cell) for cell in cells if cell["id"] not in fold]
    assert CAUGHT[name] not in "\n".join(before)


def test_the_right_answers_stand_in_no_favourite_place(cells):
    places = Counter(box.choice.found for box in boxes({"cells": cells}))
    assert sorted(places) == ["1", "2", "3"]
    assert min(places.values()) >= len(NAMES) // 4


@pytest.mark.parametrize("name", NAMES)
def test_the_contents_of_the_page_name_each_exhibit(name, cells):
    """A row of the table, which leads to the entry's heading."""
    label = f"museum-{name.replace(' ', '-')}"
    told = EXHIBITS[name].check.__doc__.splitlines()[0].rstrip(".")
    texts = [c["source"] for c in cells if c["cell_type"] == "markdown"]
    row = rf"(?m)^\| {{ref}}`(.+) <{label}>` \| .+ \| (.+) \|$"
    ((title, check),) = (m for text in texts for m in re.findall(row, text))
    assert check == told
    assert any(f"({label})=\n### {title}\n" in text for text in texts)


def test_no_cell_of_the_page_warns(cells):
    """PyTorch's wrapper does on simulated devices, unless it is kept off."""
    outputs = [out for cell in cells for out in cell.get("outputs", [])]
    assert {out.get("name") for out in outputs} <= {"stdout", None}
