"""Trains a small language model by data parallelism, on one GPU a process."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

VOCABULARY, LENGTH = 1000, 64


class LanguageModel(nn.Module):
    def __init__(self, width, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(
            layer, num_layers, enable_nested_tensor=False
        )
        self.scores = nn.Linear(width, VOCABULARY)

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(
            LENGTH, device=x.device
        )
        return self.scores(self.layers(x, mask=mask, is_causal=True))


def mean_loss(model, tokens):
    scores = model(tokens[:, :-1])
    return nn.functional.cross_entropy(
        scores.flatten(0, 1), tokens[:, 1:].flatten()
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()

    dist.init_process_group("nccl")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.manual_seed(0)
    tokens = torch.randint(VOCABULARY, (128, LENGTH + 1))
    data = TensorDataset(tokens)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, options.batch, sampler=sampler, pin_memory=True)
    with torch.device("cuda", local):
        model = LanguageModel(options.width, options.layers)
    model = DistributedDataParallel(model, device_ids=[local])
    torch.manual_seed(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        begin = time.perf_counter()
        for (batch,) in loader:
            optimizer.zero_grad()
            loss = mean_loss(model, batch.cuda(non_blocking=True))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        dist.all_reduce(loss, op=dist.ReduceOp.AVG)
        if rank == 0:
            print(f"epoch {epoch}: {1e3 * seconds:.1f} ms, loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
