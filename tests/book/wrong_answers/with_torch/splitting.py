# refused: keeps the activations of 2 at once
def accumulate(net, loss_fn, X, y, m):
    total = 0
    for X_part, y_part in zip(X.tensor_split(m), y.tensor_split(m)):
        share = len(y_part) / len(y)
        total = total + loss_fn(net(X_part), y_part) * share
    total.backward()
    return total.item()


# refused: times as long
def accumulate(net, loss_fn, X, y, m):
    total = 0.0
    for X_part, y_part in zip(X.tensor_split(m), y.tensor_split(m)):
        loss = loss_fn(net(X_part), y_part)
        loss.backward()
        total += loss.item()
    return total


# refused: 7 examples in 2 micro-batches: a gradient is wrong
def accumulate(net, loss_fn, X, y, m):
    total = 0.0
    for X_part, y_part in zip(X.tensor_split(m), y.tensor_split(m)):
        loss = loss_fn(net(X_part), y_part) / m
        loss.backward()
        total += loss.item()
    return total


# refused: norm [6, 6] positions
def sequence_parallel_norm(terms, norms):
    return [
        norm(sum(t.to(term.device) for t in terms))
        for norm, term in zip(norms, terms, strict=True)
    ]


# refused: carries
import torch


def sequence_parallel_norm(terms, norms):
    total = sum(term.to(terms[0].device) for term in terms)
    parts = total.tensor_split(len(terms))
    own = [
        norm(part.to(term.device))
        for norm, part, term in zip(norms, parts, terms, strict=True)
    ]
    return [torch.cat([x.to(t.device) for x in own]) for t in terms]


# refused: on 2 devices
def gradient_norm(shards, copies):
    every = [*shards, *(x for group in copies for x in group)]
    return sum(float(x.square().sum()) for x in every) ** 0.5


# refused: on 1 device
def gradient_norm(shards, copies):
    return sum(float(x.norm()) for x in [*shards, *(g[0] for g in copies)])


# refused: sends
import torch


def gradient_norm(shards, copies):
    once = [*shards, *(group[0] for group in copies)]
    return torch.cat([x.cpu().flatten() for x in once]).norm()


# refused: sends
import torch


def likeliest_words(logit_shards):
    device = logit_shards[0].device
    whole = torch.cat([x.to(device) for x in logit_shards], dim=1)
    best = whole == whole.amax(dim=1, keepdim=True)
    return best.int().argmax(dim=1)


# refused: are wrong
def likeliest_words(logit_shards):
    best = logit_shards[0] == logit_shards[0].amax(dim=1, keepdim=True)
    return best.int().argmax(dim=1)


# refused: 88 ms, where 85
def fast_and_small():
    return "1f1b", 16


# refused: 206 MB, where 60
def fast_and_small():
    return "gpipe", 16


# refused: 43 ms, where 42
def two_nodes():
    return "layer", 2, True


# refused: where 42
def two_nodes():
    return "layer", 2, False


# refused: are wrong
import torch


def likeliest_words(logit_shards):
    device, size = logit_shards[0].device, logit_shards[0].shape[1]
    best, words = [], []
    for rank, shard in enumerate(logit_shards):
        score, word = shard.max(dim=1)
        best.append(score.to(device))
        words.append((word + rank * size).to(device))
    rank = torch.stack(best, dim=1).argmax(dim=1, keepdim=True)
    return torch.stack(words, dim=1).gather(1, rank).squeeze(1)
