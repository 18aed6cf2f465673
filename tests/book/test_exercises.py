"""Each exercise: the solution passes; the stub and wrong answers do not.

An answer is tried as its reader gives it: in the page, which runs it alone, or
in a notebook if the exercise needs torch. The check of the built pages reads
the same wrong answers, in a browser.
"""

import json
import re

import pytest
from assignment.chapter import answer_of, exercises_of
from assignment.known import FOLDER, wrong_answers
from torch import nn

import dpkit
from dpbook.common.batches import Batches
from dpbook.common.checks import all_checks, check, failure
from dpbook.common.models import lenet, lenet_params
from dpbook.exercises.listed import CHECKS
from dpbook.exercises.page import run_code
from tests.repository import ROOT

CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
EXERCISES = {e.name: e for path in CHAPTERS for e in exercises_of(path)}
WRONG = wrong_answers()
SOLVED = {"printed": "", "value": "", "why": "", "solved": True}


def tagged(tag):
    """Return what cells with a tag hold, by the name of the function."""
    found = {}
    for path in CHAPTERS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if tag in cell["metadata"].get("tags", []):
                code = "".join(cell["source"])
                found[re.findall(r"(?m)^def (\w+)", code)[-1]] = code
    return found


STUBS, SOLUTIONS = tagged("stub"), tagged("solution")


def in_page(name, code):
    return json.loads(run_code(json.dumps({"exercise": name, "code": code})))


def refused(name, code):
    """Return why an answer is refused, or "" if it is right."""
    if name in CHECKS:
        found = in_page(name, code)
        assert found["solved"] == (not found["why"])
        return found["why"]
    return failure(answer_of(EXERCISES[name], code)) or ""


def test_each_check_has_its_exercise_and_wrong_answers():
    names = sorted(all_checks())
    assert names == sorted(EXERCISES) == sorted(STUBS) == sorted(SOLUTIONS)
    assert names == sorted(WRONG)


def test_wrong_answers_stand_where_the_page_looks_for_them():
    for path in FOLDER.rglob("*.py"):
        names = re.findall(r"(?m)^# refused: .*\n(?:.*\n)*?def (\w+)",
                           path.read_text("utf-8"))  # fmt: skip
        in_pages = {name in CHECKS for name in names}
        assert in_pages == {path.parent == FOLDER}, path


@pytest.mark.parametrize("name", EXERCISES)
def test_the_solution_passes(name):
    if name in CHECKS:
        # Alone, but for what the stub imports, which stays in the editor.
        imports = STUBS[name].split("def ")[0]
        assert in_page(name, f"{imports}\n{SOLUTIONS[name]}") == SOLVED
    else:
        assert refused(name, EXERCISES[name].solution) == ""


@pytest.mark.parametrize("name", EXERCISES)
def test_the_stub_is_refused(name):
    assert refused(name, STUBS[name])


@pytest.mark.parametrize("name", EXERCISES)
def test_wrong_answers_are_refused_with_their_reasons(name):
    for why, code in WRONG[name]:
        assert why in refused(name, code), code


# ------------------------------------------------------- check in a notebook


def test_no_exercise_has_this_name():
    def allreduce_by_halves(tensors):
        pass

    with pytest.raises(ValueError, match=r"exercise: 'allreduce_by_halves'"):
        check(allreduce_by_halves)


def test_an_answer_that_raises(capsys):
    def allreduce_by_parts(tensors):
        return 1 / 0

    check(allreduce_by_parts)
    words = "not yet (it raised ZeroDivisionError: division by zero)"
    assert capsys.readouterr().out == f"allreduce_by_parts: {words}\n"


def test_the_inputs_are_on_simulated_devices():
    seen = []

    def allreduce_by_parts(tensors):
        seen.extend(t.device.type for t in tensors)

    check(allreduce_by_parts)
    assert set(seen) == {"sim"}


def test_a_right_answer_in_other_words():
    """A sum in 32 bits, fields of the set by name, more micro-batches."""

    def accuracy_on_all(net, X, y, device_params, devices):
        shards = zip(*dpkit.split_batch(X, y, devices), device_params)
        counts = [
            (net(X, p).argmax(1) == y).sum() for X, y, p in shards if len(X)
        ]
        return sum(count.cpu() for count in counts).float() / len(y)

    def train_scaled(train_set, test_set, devices, batch_size, lr, epochs):
        batches = Batches(
            train_set.images, train_set.labels, len(devices) * batch_size
        )
        sets = batches, Batches(*test_set, 50)
        loss = nn.CrossEntropyLoss(reduction="none")
        return dpkit.train(
            lenet, loss, lenet_params(), *sets, devices, lr, epochs
        )

    def fast_and_small():
        return "zb-h1", 32

    for answer in (accuracy_on_all, train_scaled, fast_and_small):
        assert failure(answer) is None
