"""The checks of the exercises on practice refuse the usual mistakes."""

import pytest
import torch

import dpkit
from dpkit.lab.common.checks import check


def verdict(name, answer, capsys):
    answer.__name__ = name
    check(answer)
    return capsys.readouterr().out


def mean(numbers):
    return sum(numbers) / len(numbers)


def flat(ranks):
    return [answer for rank in ranks for answer in rank]


def merged(means, variances, size):
    between = sum((m - mean(means)) ** 2 for m in means) * size
    within = sum(variances) * (size - 1)
    total = len(means) * size
    return mean(means), (within + between) / (total - 1)


def interleaved(ranks, num_examples):
    in_order = [answer for step in zip(*ranks) for answer in step]
    return sum(in_order[:num_examples]) / num_examples


def by_allreduce(shards):
    flags = [shard.isfinite().all().float() for shard in shards]
    dpkit.allreduce(flags, op="min")
    return flags


def factors(counts):
    return [len(counts) * count / sum(counts) for count in counts]


RIGHT = {
    "loss_factors": factors,
    "merged_statistics": merged,
    "exact_accuracy": interleaved,
    "all_finite": by_allreduce,
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_answers(capsys, name):
    assert verdict(name, RIGHT[name], capsys) == f"{name}: solved\n"


def whole_gathered(shards):
    found = [torch.cat([s.to(d.device) for s in shards]) for d in shards]
    return [x.isfinite().all() for x in found]


def max_of_flags(shards):
    flags = [shard.isfinite().all().float() for shard in shards]
    dpkit.allreduce(flags, op="max")
    return flags


def all_on_one(shards):
    return [by_allreduce(shards)[0]] * len(shards)


def variance_of_groups(means, variances, size):
    between = mean([(m - mean(means)) ** 2 for m in means])
    return mean(means), mean(variances) + between


NONE = "it returned None"
WRONG = {
    "loss_factors": [
        (lambda counts: [1.0] * len(counts), "[3, 2, 2] examples"),
        (lambda counts: [n / sum(counts) for n in counts], "[4, 4]"),
        (lambda counts: [sum(counts) / n for n in counts if n], "[4, 4]"),
        (lambda counts: [], "it returned []"),
        (lambda counts: None, NONE),
    ],
    "merged_statistics": [
        (lambda means, vs, size: (mean(means), mean(vs)), "2 groups of 2"),
        (lambda means, vs, size: (means[0], vs[0]), "2 groups of 2"),
        (variance_of_groups, "2 groups of 2"),
        (lambda means, vs, size: None, "not a mean and a variance"),
    ],
    "exact_accuracy": [
        (lambda ranks, n: mean(flat(ranks)), "7 examples on 3 ranks"),
        (lambda ranks, n: sum(flat(ranks)) / n, "7 examples on 3 ranks"),
        (lambda ranks, n: mean(flat(ranks)[:n]), "7 examples on 3 ranks"),
        (lambda ranks, n: mean(ranks[0]), "7 examples on 3 ranks"),
        (lambda ranks, n: None, NONE),
    ],
    "all_finite": [
        (
            lambda shards: [s.isfinite().all() for s in shards],
            "2 shards, inf on device 0",
        ),
        (lambda shards: [~s.isinf().any() for s in shards], "nan on device 0"),
        (max_of_flags, "2 shards, inf on device 0"),
        (all_on_one, "the answers lie on"),
        (whole_gathered, "bytes, where"),
        (lambda shards: None, NONE),
    ],
}
CASES = [(name, *case) for name, cases in WRONG.items() for case in cases]


@pytest.mark.parametrize(("name", "answer", "why"), CASES)
def test_wrong_answers(capsys, name, answer, why):
    text = verdict(name, answer, capsys)
    assert "not yet" in text
    assert why in text
