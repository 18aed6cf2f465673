"""The checks on layer partitioning: right answers pass, each slip is told."""

import re

import pytest
import torch

from dpbook.common.checks import failure


def normed_apart(terms, norms):
    k = len(terms)
    parts = [term.tensor_split(k) for term in terms]
    own = []
    for rank in range(k):
        total = parts[rank][rank].clone()
        for other in range(k):
            if other != rank:
                total += parts[other][rank].to(total.device)
        own.append(norms[rank](total))
    return [torch.cat([x.to(t.device) for x in own]) for t in terms]


def not_joined(terms, norms):
    joined = normed_apart(terms, norms)
    return [x.tensor_split(len(terms))[0] for x in joined]


def through_the_cpu(terms, norms):
    k = len(terms)
    total = sum(term.cpu() for term in terms).tensor_split(k)
    own = [
        norm(part.to(t.device))
        for norm, part, t in zip(norms, total, terms, strict=True)
    ]
    return [torch.cat([x.to(t.device) for x in own]) for t in terms]


def norm_of_all(shards, copies):
    once = [*shards, *(group[0] for group in copies)]
    return sum(float(x.square().sum()) for x in once) ** 0.5


def norm_of_the_first(shards, copies):
    return norm_of_all(shards[:1], copies)


def words(logit_shards):
    device = logit_shards[0].device
    scores, numbers, start = [], [], 0
    for shard in logit_shards:
        score, number = shard.max(dim=1)
        # max() names any of equal scores: take the first.
        number = (shard == score.unsqueeze(1)).int().argmax(dim=1)
        scores.append(score.to(device))
        numbers.append((number + start).to(device))
        start += shard.shape[1]
    best = torch.stack(scores)
    first = (best == best.amax(dim=0)).int().argmax(dim=0)
    return torch.stack(numbers).gather(0, first.unsqueeze(0)).squeeze(0)


def words_of_the_first(logit_shards):
    return words(logit_shards[:1])


def words_elsewhere(logit_shards):
    return words(logit_shards).cpu()


ANSWERS = [
    ("sequence_parallel_norm", normed_apart, None),
    ("sequence_parallel_norm", not_joined, "2 devices: rank 0 is wrong"),
    ("sequence_parallel_norm", through_the_cpu, "goes through the CPU"),
    ("gradient_norm", norm_of_all, None),
    ("gradient_norm", norm_of_the_first, "on 2 devices"),
    ("likeliest_words", words, None),
    ("likeliest_words", words_of_the_first, r"2 devices: examples \[.*wrong"),
    ("likeliest_words", words_elsewhere, "not a tensor on sim:0"),
]


@pytest.mark.parametrize(("name", "answer", "why"), ANSWERS)
def test_the_verdict(name, answer, why, monkeypatch):
    monkeypatch.setattr(answer, "__name__", name)
    found = failure(answer)
    if why is None:
        assert found is None
    else:
        assert re.search(why, found or "solved")
