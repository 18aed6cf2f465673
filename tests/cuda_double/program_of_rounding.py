"""Print how far values of the double are from those of the CPU, as JSON."""

import json
import os
import warnings

import torch
from torch.nn import functional as F


def error(gpu: torch.Tensor, cpu: torch.Tensor) -> float:
    """Return the root mean square of an error, as a share of the values'."""
    wrong = (gpu.cpu() - cpu).double().square().mean().sqrt()
    return float(wrong / cpu.double().square().mean().sqrt())


def convolution() -> tuple[torch.Tensor, torch.Tensor]:
    x, w = torch.randn(8, 3, 12, 12), torch.randn(5, 3, 3, 3)
    return F.conv2d(x.cuda(), w.cuda()), F.conv2d(x, w)


def product(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.randn(50, 60, dtype=dtype)
    return a.cuda() @ a.cuda().T, a @ a.T


def whole_product() -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.randint(-9, 9, (20, 30)).float()
    return a.cuda() @ a.cuda().T, a @ a.T


def mean(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.arange(24.0).square().view(*shape)
    return x.cuda().mean(1), x.mean(1)


def put(accumulate: bool) -> tuple[torch.Tensor, torch.Tensor]:
    where, values = torch.arange(0, 9, 2), torch.randn(5)
    on_cpu, on_gpu = torch.zeros(9), torch.zeros(9, device="cuda")
    on_cpu.index_put_((where,), values, accumulate)
    on_gpu.index_put_((where.cuda(),), values.cuda(), accumulate)
    return on_gpu, on_cpu


def exponential() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(99)
    return x.cuda().exp(), x.exp()


def masked() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(100).relu()
    return (x.cuda().unsqueeze(1) @ torch.ones(1, 3).cuda()).cpu(), x


def same_twice(layer: torch.nn.Module, x: torch.Tensor) -> bool:
    """Return whether two equal backwards give equal gradients."""
    found = []
    for _ in range(2):
        layer.zero_grad()
        layer(x).square().sum().backward()
        found.append([p.grad.clone() for p in layer.parameters()])
    return all(map(torch.equal, *found))


def main() -> None:
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    told = {
        "convolution": error(*convolution()),
        "product": error(*product(torch.float32)),
        "product in float64": error(*product(torch.float64)),
        "whole product": error(*whole_product()),
        "mean of four": error(*mean(6, 4)),
        "mean of three": error(*mean(8, 3)),
        "mean of one": error(*mean(24, 1)),
        "put": error(*put(False)),
        "added at indices": error(*put(True)),
        "exp": error(*exponential()),
    }
    on_gpu, on_cpu = masked()
    told["zeros stay"] = bool((on_gpu[:, 0].eq(0) == on_cpu.eq(0)).all())
    image = torch.randn(4, 2, 9, 9, device="cuda")
    told["linear twice"] = same_twice(
        torch.nn.Linear(9, 5, device="cuda"), image
    )
    conv = torch.nn.Conv2d(2, 3, 3, device="cuda")
    told["convolution twice"] = same_twice(conv, image)
    cudnn = torch.backends.cudnn
    cudnn.deterministic = True
    told["deterministic convolution twice"] = same_twice(conv, image)
    cudnn.allow_tf32 = False
    told["convolution without TF32"] = error(*convolution())
    torch.backends.cuda.matmul.allow_tf32 = True
    told["product with TF32"] = error(*product(torch.float32))
    a = torch.randn(20, 30).cuda()
    told["digits"] = (a @ a.T).flatten().tolist()
    print(json.dumps(told), flush=True)
    # PyTorch's thread of a device still lets go of the last backward; to wait
    # for Python, which is ending, would abort the process.
    os._exit(0)


if __name__ == "__main__":
    main()
