"""Ranks that do what NCCL does not bear. Usage: … NAME_OF_THE_FAULT."""

import os
import sys

import torch
import torch.distributed as dist


def main() -> None:
    fault = sys.argv[1]
    rank = int(os.environ["RANK"])
    if fault == "one GPU for two":
        os.environ["CUDA_VISIBLE_DEVICES"] = "1"
        torch.cuda.set_device(0)
    elif fault != "no set_device":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl")
    num_elements = 3 + rank if fault == "other shapes" else 3
    x = torch.ones(num_elements, device="cuda")
    if fault == "a rank is missing" and rank == 1:
        os._exit(0)
    dist.all_reduce(x)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
