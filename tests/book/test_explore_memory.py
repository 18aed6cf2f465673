"""The memory of a GPU: its parts, what fits, and what the bars compare."""

import re

import pytest

from dpbook.explore.memory import (
    BY_EXAMPLES,
    BY_RECOMPUTE,
    MEMORY,
    NETWORKS,
    SMALL,
)
from dpkit.units import show_memory

PARAMETERS = NETWORKS["Llama 2, 7B"].parameters


def ask(**settings):
    shown = MEMORY.ask(**settings)
    assert shown.refused == ""
    return shown, dict(shown.facts)


@pytest.mark.parametrize(
    ("part", "num_bytes", "first_stage"),
    [("weights", 2, 3), ("gradients", 4, 2), ("optimizer state", 12, 1)],
)
def test_zero_divides_a_part_from_its_stage_on(part, num_bytes, first_stage):
    whole = num_bytes * PARAMETERS
    for stage in range(4):
        held = ask(zero=str(stage))[1][part]
        if stage < first_stage:
            assert held == show_memory(int(whole))
        else:  # some blocks are whole while they compute
            assert whole / 8 <= in_bytes(held) < whole / 2


def in_bytes(words):
    """Return the bytes that a size stands for, up to its digits."""
    number, unit = words.split()
    return float(number) * {"MiB": 2**20, "GiB": 2**30}[unit] * 1.001


def bars(shown):
    """Return the sizes behind the bars, in bytes."""
    (picture,) = shown.pictures
    sizes = re.findall(r'text-anchor="end">([\d.]+ [MG]iB)<', picture.svg)
    return [in_bytes(size) for size in sizes]


def test_a_bar_for_each_stage_and_the_chosen_one_is_named():
    shown, facts = ask(zero="2")
    assert len(bars(shown)) == 4
    assert bars(shown) == sorted(bars(shown), reverse=True)
    assert shown.pictures[0].svg.count(">chosen: ") == 1
    assert ">chosen: ZeRO-2<" in shown.pictures[0].svg
    parts = [in_bytes(size) for size in list(facts.values())[:4]]
    assert sum(parts) == pytest.approx(bars(shown)[2], rel=1e-3)


def test_less_is_kept_where_more_is_computed_again():
    shown, _ = ask(model=SMALL, gpus=1, bars=BY_RECOMPUTE)
    assert len(bars(shown)) == 3
    assert bars(shown) == sorted(bars(shown), reverse=True)


def test_another_number_of_examples_has_a_bar_of_its_own():
    shown, _ = ask(model=SMALL, gpus=1, examples=3, bars=BY_EXAMPLES)
    assert ">chosen: 3<" in shown.pictures[0].svg
    first, second, third, *_ = bars(shown)
    assert second - first == pytest.approx(third - second, rel=0.01)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_one_example_more_does_not_fit(recompute):
    settings = {"model": SMALL, "gpus": 1, "recompute": recompute}
    _, facts = ask(**settings)
    most = int(facts["examples that fit"].split()[0])
    assert most > 2
    assert ask(**settings, examples=most)[0].sentence.endswith(": it fits.")
    more = ask(**settings, examples=most + 1)[0].sentence
    assert more.endswith(" too much.")


def test_the_fewest_gpus_and_half_of_them():
    settings = {"model": "Llama 3, 70B", "zero": "3", "recompute": "full"}
    _, facts = ask(**settings)
    fewest = int(facts["GPUs that it takes"])
    assert ask(**settings, gpus=fewest)[0].sentence.endswith(": it fits.")
    half = ask(**settings, gpus=fewest // 2)[0].sentence
    assert half.endswith(" too much.")
    assert ask()[1]["GPUs that it takes"].startswith("more than ")
