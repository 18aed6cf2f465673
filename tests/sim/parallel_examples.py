"""Lines with ``torch.nn.parallel``, and what they print on two devices.

They run on simulated devices, in the blocks of ``as_cuda`` and on GPUs: in a
text, KIND is "sim" or "cuda". What they print is the same, as long as a sum
has no rounding.
"""

BEFORE = """
>>> import torch
>>> import torch.cuda.comm as comm
>>> from torch import nn
>>> zero, one = (torch.device("KIND", i) for i in range(2))
>>> rows = torch.arange(20).reshape(4, 5)
>>> net = nn.Linear(2, 1, bias=False).to(zero)
>>> with torch.no_grad():
...     weight = net.weight.copy_(torch.tensor([[1.0, 2.0]]))
>>> x = torch.arange(10.0).reshape(5, 2)
"""

SCATTER = """
>>> nn.parallel.scatter(rows, [zero, one])
(tensor([[0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9]], device='KIND:0'), tensor([[10, 11, 12, 13, 14],
        [15, 16, 17, 18, 19]], device='KIND:1'))
>>> [part.shape for part in nn.parallel.scatter(rows.to(zero)[:3], [0, 1])]
[torch.Size([2, 5]), torch.Size([1, 5])]
>>> nn.parallel.scatter(rows[:1], ["KIND:0", "KIND:1"])
(tensor([[0, 1, 2, 3, 4]], device='KIND:0'),)
>>> nn.parallel.scatter({"a": rows[:2, :1], "b": "c"}, [one, zero])
[{'a': tensor([[0]], device='KIND:1'), 'b': 'c'}, \
{'a': tensor([[5]], device='KIND:0'), 'b': 'c'}]
>>> nn.parallel.scatter((rows, 7), [zero, one], dim=1)[1]
(tensor([[ 3,  4],
        [ 8,  9],
        [13, 14],
        [18, 19]], device='KIND:1'), 7)
>>> y = torch.ones(3, 2, requires_grad=True)
>>> a, b = nn.parallel.scatter(y, [zero, one])
>>> (a.sum() + 10 * b.sum().to(zero)).backward()
>>> y.grad
tensor([[ 1.,  1.],
        [ 1.,  1.],
        [10., 10.]])
>>> nn.parallel.scatter(torch.ones(2, dtype=torch.complex64), [zero, one])[1]
tensor([1.+0.j], device='KIND:1')
"""

GATHER = """
>>> parts = [torch.ones(2, 1, device=one), torch.zeros(1, 1, device=zero)]
>>> parts[0].requires_grad_().device
device(type='KIND', index=1)
>>> whole = nn.parallel.gather(parts, zero)
>>> whole.detach()
tensor([[1.],
        [1.],
        [0.]], device='KIND:0')
>>> (whole * torch.arange(3.0, device=zero).reshape(3, 1)).sum().backward()
>>> parts[0].grad
tensor([[0.],
        [1.]], device='KIND:1')
>>> nn.parallel.gather([p.detach() for p in parts], "cpu").device
device(type='cpu')
>>> nn.parallel.gather([(rows.to(one), None), (rows.to(zero), None)], 1)[1]
>>> nn.parallel.gather([torch.ones(1), torch.ones(1).to(zero)], 0)
Traceback (most recent call last):
AssertionError: Gather function not implemented for CPU tensors
>>> comm.gather([torch.ones(1), torch.ones(1).to(zero)])
Traceback (most recent call last):
RuntimeError: Expected all input tensors to be CUDA tensors, but tensor at \
index 0 has device cpu
>>> comm.gather([torch.ones(1, 2).to(one), torch.ones(1, 3).to(zero)])
Traceback (most recent call last):
RuntimeError: Input tensor at index 1 has invalid shape [1, 3], but expected \
[1, 2]
>>> comm.gather([torch.ones(1, 2).to(one), torch.ones(1).to(zero)])
Traceback (most recent call last):
RuntimeError: Expected all input tensors to have the same number of \
dimensions, but tensor at index 1 has 1 dimensions, (expected 2)
"""

COMM = """
>>> comm.broadcast(torch.ones(2, device=one), [1, 0])
[tensor([1., 1.], device='KIND:1'), tensor([1., 1.], device='KIND:0')]
>>> out = torch.zeros(2, device=zero), torch.zeros(2, device=one)
>>> comm.broadcast(torch.ones(2), out=out)[1]
tensor([1., 1.], device='KIND:1')
>>> comm.broadcast(torch.ones(3), out=out)
Traceback (most recent call last):
RuntimeError: Expected all output tensors to have same shape as the source \
tensor [3], but output tensor at index 0 has shape [2]
>>> given = [torch.ones(2, device=zero), torch.ones(1, device=zero).int()]
>>> copies = comm.broadcast_coalesced(given, [0, 1])
>>> copies[0][0] is given[0], copies[1]
(True, [tensor([1., 1.], device='KIND:1'), \
tensor([1], device='KIND:1', dtype=torch.int32)])
>>> comm.broadcast_coalesced([torch.ones(2, device=one)], [0, 1])
Traceback (most recent call last):
RuntimeError: All tensors must be on devices[0]: 0
>>> comm.reduce_add([torch.ones(2, device=d) for d in (zero, one)], 1)
tensor([2., 2.], device='KIND:1')
>>> comm.reduce_add([torch.ones(2, device=one)], 0)
Traceback (most recent call last):
RuntimeError: reduce_add expects destination to be on the same GPU with one \
of the tensors
>>> comm.reduce_add_coalesced([copies[0], copies[1]], 0)
(tensor([2., 2.], device='KIND:0'), \
tensor([2], device='KIND:0', dtype=torch.int32))
>>> comm.scatter(rows[:, :1], [one, zero], chunk_sizes=[1, 3])[0]
tensor([[0]], device='KIND:1')
>>> comm.scatter(rows, [0, 1], chunk_sizes=[4])
Traceback (most recent call last):
RuntimeError: Expected devices and chunk_sizes to be of same length, but got \
len(devices) = 2 and len(chunk_sizes) = 1
>>> comm.scatter(torch.ones(4), out=out)[1]
tensor([1., 1.], device='KIND:1')
>>> comm.gather(out, out=torch.zeros(4))
tensor([1., 1., 1., 1.])
>>> comm.scatter(rows, [])
Traceback (most recent call last):
RuntimeError: Expected at least one device to scatter to
"""

REPLICATE = """
>>> first, second = nn.parallel.replicate(net, [0, 1])
>>> second.weight.device, second.weight.is_leaf, [*second.parameters()]
(device(type='KIND', index=1), False, [])
>>> first.weight.data_ptr() == net.weight.data_ptr()
True
>>> inputs = nn.parallel.scatter(x.to(zero), [0, 1])
>>> outputs = nn.parallel.parallel_apply([first, second], inputs)
>>> [output.tolist() for output in outputs]
[[[2.0], [8.0], [14.0]], [[20.0], [26.0]]]
>>> nn.parallel.gather(outputs, 0).sum().backward()
>>> net.weight.grad
tensor([[20., 25.]], device='KIND:0')
>>> nn.parallel.parallel_apply([first], inputs)
Traceback (most recent call last):
AssertionError: The number of modules 1 is not equal to the number of inputs 2
"""

DATA_PARALLEL = """
>>> for ids in ([0, 1], [zero, one], ["KIND:0", "KIND:1"]):
...     net.weight.grad = None
...     parallel = nn.DataParallel(net, device_ids=ids)
...     out = parallel(x.to(zero))
...     out.sum().backward()
...     print(out.device, out.flatten().tolist(), net.weight.grad.tolist())
KIND:0 [2.0, 8.0, 14.0, 20.0, 26.0] [[20.0, 25.0]]
KIND:0 [2.0, 8.0, 14.0, 20.0, 26.0] [[20.0, 25.0]]
KIND:0 [2.0, 8.0, 14.0, 20.0, 26.0] [[20.0, 25.0]]
>>> [*parallel.state_dict()], parallel.device_ids, parallel.output_device
(['module.weight'], [0, 1], 0)
>>> [*nn.DataParallel(nn.Linear(1, 1)).state_dict()]
['module.weight', 'module.bias']
>>> nn.DataParallel(net, [0, 1], output_device=1)(x).device
device(type='KIND', index=1)
>>> nn.DataParallel(net, [1, 0])(x)
Traceback (most recent call last):
RuntimeError: module must have its parameters and buffers on device KIND:1 \
(device_ids[0]) but found one of them on device: KIND:0
>>> nn.DataParallel(net, [1])(input=x[:1]), net.weight.device
(tensor([[2.]], device='KIND:1', grad_fn=...), \
device(type='KIND', index=1))
>>> net = net.to(zero)
>>> parallel = nn.DataParallel(net, [0, 1])
>>> parallel(x[:1]).device, parallel(input=x[:1].to(zero)).tolist()
(device(type='KIND', index=0), [[2.0]])
>>> nn.parallel.data_parallel(net, x, [0, 1], output_device=1).device
device(type='KIND', index=1)
"""

MODULES = """
>>> class Counting(nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.register_buffer("calls", torch.zeros(1))
...     def forward(self, x, factor=1, note=None):
...         self.calls += 1
...         return {"sum": x.sum() * factor, "note": (x[:, :1], None)}
>>> parallel = nn.DataParallel(Counting().to(zero), [0, 1])
>>> found = parallel(x, factor=2)
>>> found["sum"], found["note"][0].flatten(), found["note"][1]
(tensor([30., 60.], device='KIND:0'), \
tensor([0., 2., 4., 6., 8.], device='KIND:0'), None)
>>> parallel.module.calls
tensor([1.], device='KIND:0')
>>> norm = nn.DataParallel(nn.BatchNorm1d(2, momentum=1.0).to(zero), [0, 1])
>>> norm(x.to(zero)).shape, norm.module.running_mean  # of the first rows
(torch.Size([5, 2]), tensor([2., 3.], device='KIND:0'))
>>> class Current(nn.Module):  # each replica has its device for the current
...     def forward(self, x):
...         return x[:, :1] + torch.ones(1, device="KIND")
>>> nn.DataParallel(Current().to(zero), [zero, one])(x).flatten().tolist()
[1.0, 3.0, 5.0, 7.0, 9.0]
>>> class Failing(nn.Module):
...     def forward(self, x):
...         raise KeyError(x.get_device())
>>> nn.DataParallel(Failing().to(zero), ["KIND:0", "KIND:1"])(x)
Traceback (most recent call last):
KeyError: Caught KeyError in replica 0 on device 0.
...
KeyError: 0
<BLANKLINE>
>>> with torch.autocast("KIND", torch.bfloat16):
...     nn.DataParallel(net, ["KIND:0", "KIND:1"])(x).dtype  # a mistake
torch.float16
>>> with torch.no_grad():
...     nn.DataParallel(net, ["KIND:0", "KIND:1"])(x).requires_grad
False
"""

EXAMPLES = {name: text for name, text in vars().items() if name.isupper()}
