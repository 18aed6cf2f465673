"""Lines that programs for GPUs have, and what they print on each node.

Each text is run in a rank of a node of two devices, as the examples of a
docstring are. What it prints is the same on every node.
"""

DEVICES = """
>>> torch.ones(2, device="cuda:1").device
device(type='cuda', index=1)
>>> torch.ones(2, device="cuda")
tensor([1., 1.], device='cuda:0')
>>> torch.ones(2, device=torch.device("cuda", 1)).get_device()
1
>>> torch.get_device(torch.ones(2, device="cuda:1"))
1
>>> torch.ones(2).cuda(1).device, torch.ones(2).cuda(device="cuda:1").device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> torch.ones(2).cuda().is_cuda, torch.ones(2).is_cuda
(True, False)
>>> torch.ones(2).get_device(), torch.ones(2).device
(-1, device(type='cpu'))
>>> torch.ones(2).to(1).device, torch.ones(2).to(device=1).device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> torch.ones(2).to("cuda", torch.float16)
tensor([1., 1.], device='cuda:0', dtype=torch.float16)
>>> x = torch.ones(2).cuda(1).requires_grad_()
>>> torch.zeros(2, device=x.device).device, torch.zeros_like(x).device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> x.new_zeros(1, device="cuda:0").device, x.new_tensor([1]).device
(device(type='cuda', index=0), device(type='cuda', index=1))
>>> x.sum().backward()
>>> x.grad.device, x.device == torch.device("cuda:1")
(device(type='cuda', index=1), True)
>>> torch.tensor([1], device="cuda:1"), torch.as_tensor([1], device="cuda:1")
(tensor([1], device='cuda:1'), tensor([1], device='cuda:1'))
>>> torch.asarray([1], device="cuda:1").device
device(type='cuda', index=1)
>>> torch.fft.rfftfreq(4, device="cuda:1").device
device(type='cuda', index=1)
>>> torch.sparse_coo_tensor([[0]], [1.0], (2,), device="cuda")
Traceback (most recent call last):
NotImplementedError: a simulated device holds dense tensors alone ...
>>> copy.deepcopy(x.detach()).device, pickle.loads(pickle.dumps(x)).device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> pickle.loads(pickle.dumps(x.device))
device(type='cuda', index=1)
>>> torch.zeros(2, device="cuda:2")
Traceback (most recent call last):
RuntimeError: CUDA error: invalid device ordinal (device: cuda:2, simulated \
devices that this process sees: 2)
>>> torch.ones(2).to(2)  # a rank among all, where its device was meant
Traceback (most recent call last):
RuntimeError: CUDA error: invalid device ordinal (device: cuda:2, simulated \
devices that this process sees: 2)
>>> torch.ones(2, device="cuda:1") + torch.ones(2)
Traceback (most recent call last):
RuntimeError: Expected all tensors to be on the same device, but found at \
least two devices, cuda:1 and cpu!
>>> torch.ones(2, device="cuda:1").numpy()
Traceback (most recent call last):
TypeError: can't convert cuda:1 device type tensor to numpy. ...
"""

DEVICES_BY_NUMBER = """
>>> torch.ones(1, device=torch.device(1)).device
device(type='cuda', index=1)
>>> torch.ones(1).to(torch.device(1)).device
device(type='cuda', index=1)
>>> with torch.device(1):
...     torch.ones(1).device
device(type='cuda', index=1)
"""

MODULES = """
>>> nn.Linear(2, 2).to(1).weight.device
device(type='cuda', index=1)
>>> nn.Linear(2, 2).to(2)
Traceback (most recent call last):
RuntimeError: CUDA error: invalid device ordinal (device: cuda:2, ...
>>> nn.Linear(2, 2).to(torch.device(1)).weight.device
device(type='cuda', index=1)
>>> nn.Linear(2, 2).cuda(1).weight.device, nn.Linear(2, 2).cuda().bias.is_cuda
(device(type='cuda', index=1), True)
>>> nn.Linear(2, 2, device="cuda:1").weight.device
device(type='cuda', index=1)
>>> nn.Linear(2, 2, device="meta").to_empty(device="cuda").weight.device
device(type='cuda', index=0)
>>> with torch.device("cuda:1"):
...     nn.Linear(2, 2).weight.device, torch.get_default_device()
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> torch.set_default_device("cuda")
>>> torch.ones(1).device, torch.get_default_device()
(device(type='cuda', index=0), device(type='cuda', index=0))
>>> torch.set_default_device(None)
>>> torch.get_default_device()
device(type='cpu')
>>> torch.compile(nn.Linear(2, 2).cuda())(torch.ones(1, 2).cuda()).shape
torch.Size([1, 2])
>>> torch.compile(mode="max-autotune")(abs)(-1)
1
>>> net = nn.Linear(2, 2).cuda()
>>> net.compile()
>>> net(torch.ones(1, 2).cuda()).shape
torch.Size([1, 2])
"""

TYPES = """
>>> x = torch.ones(2).cuda(1)
>>> x.type(), torch.ones(2).type()
('torch.cuda.FloatTensor', 'torch.FloatTensor')
>>> x.type("torch.cuda.HalfTensor").type()
'torch.cuda.HalfTensor'
>>> x.type(torch.cuda.LongTensor)
tensor([1, 1], device='cuda:1')
>>> torch.ones(2).type(torch.cuda.LongTensor)
tensor([1, 1], device='cuda:0')
>>> x.type(torch.FloatTensor), x.type(torch.float16).dtype
(tensor([1., 1.]), torch.float16)
>>> torch.cuda.FloatTensor([1, 2]), torch.cuda.BoolTensor([1])
(tensor([1., 2.], device='cuda:0'), tensor([True], device='cuda:0'))
>>> torch.cuda.LongTensor(2, 3).shape
torch.Size([2, 3])
>>> isinstance(x, torch.cuda.FloatTensor), isinstance(x, torch.FloatTensor)
(True, False)
>>> isinstance(x.half(), torch.cuda.FloatTensor)
False
>>> isinstance(torch.ones(2), torch.cuda.FloatTensor)
False
>>> torch.set_default_tensor_type(torch.cuda.DoubleTensor)
>>> torch.ones(1)
tensor([1.], device='cuda:0')
>>> torch.ones(1).dtype
torch.float64
>>> torch.set_default_tensor_type("torch.FloatTensor")
>>> torch.ones(1), torch.ones(1).dtype
(tensor([1.]), torch.float32)
"""

NUMBERS = """
>>> torch.cuda.is_available(), torch.cuda.is_initialized()
(True, True)
>>> torch.cuda.device_count(), torch.cuda.current_device()
(2, 0)
>>> torch.cuda.set_device(1)
>>> torch.ones(1, device="cuda").device, torch.cuda.current_device()
(device(type='cuda', index=1), 1)
>>> torch.cuda.set_device("cuda:0")
>>> torch.cuda.set_device(-1)
>>> torch.cuda.current_device()
0
>>> with torch.cuda.device(1):
...     torch.ones(1).cuda().device, torch.ones(1).cuda(0).device
(device(type='cuda', index=1), device(type='cuda', index=0))
>>> with torch.cuda.device(None):
...     torch.ones(1).cuda().device
device(type='cuda', index=0)
>>> with torch.cuda.device_of(torch.ones(1).cuda(1)):
...     torch.cuda.current_device()
1
>>> with torch.cuda.device_of(torch.ones(1)):
...     torch.cuda.current_device()
0
>>> torch.cuda._exchange_device(1), torch.cuda._maybe_exchange_device(0)
(0, 1)
>>> torch.cuda.get_device_name(1), torch.cuda.get_device_capability(1)
('h100 (simulated)', (9, 0))
>>> torch.cuda.get_device_properties("cuda:1")
_CudaDeviceProperties('h100 (simulated)', 81920 MB)
>>> found = torch.cuda.get_device_properties(0)
>>> found.major, found.minor, found.total_memory >> 30
(9, 0, 80)
>>> found.uuid
Traceback (most recent call last):
AttributeError: a simulated device has no uuid; it has a name, total_memory, \
and the major and minor number of its capability
>>> copy.deepcopy(found).name
'h100 (simulated)'
>>> torch.cuda.get_arch_list(), torch.cuda.can_device_access_peer(0, 1)
(['sm_90'], True)
>>> torch.cuda.is_bf16_supported(including_emulation=False)
True
>>> torch.cuda.is_tf32_supported()
True
>>> torch.cuda.synchronize()
"""

MEMORY = """
>>> x = torch.ones(2).cuda(1)
>>> torch.cuda.memory_allocated(1), torch.cuda.memory_allocated("cuda:1")
(8, 8)
>>> torch.cuda.memory_allocated(), torch.cuda.memory.memory_allocated(1)
(0, 8)
>>> torch.cuda.memory_reserved(1), torch.cuda.memory_cached(device=1)
(8, 8)
>>> torch.cuda.memory_stats(1)["allocated_bytes.all.current"]
8
>>> torch.cuda.memory_stats_as_nested_dict(1)["active_bytes"]["all"]["current"]
8
>>> torch.cuda.memory_summary(1)[:32]
'allocated_bytes.all.current: 8\\na'
>>> y = torch.ones(2).cuda(1); del y
>>> torch.cuda.max_memory_allocated(1), torch.cuda.max_memory_reserved(1)
(16, 16)
>>> torch.cuda.reset_peak_memory_stats(1)
>>> torch.cuda.max_memory_cached(1)
8
>>> y = torch.ones(2).cuda(1); del y
>>> torch.cuda.reset_max_memory_allocated(1)
>>> torch.cuda.max_memory_allocated(1)
8
>>> y = torch.ones(2).cuda(1); del y
>>> torch.cuda.reset_max_memory_cached(1)
>>> torch.cuda.max_memory_allocated(1)
8
>>> free, total = torch.cuda.mem_get_info(1)
>>> total - free
8
>>> torch.cuda.set_per_process_memory_fraction(0.5)
>>> torch.cuda.empty_cache(), torch.cuda.ipc_collect()
(None, None)
>>> try:
...     torch.empty(1 << 40, device="cuda:1")
... except torch.cuda.OutOfMemoryError as error:
...     print(error)
CUDA out of memory. Tried to allocate 4096.00 GiB. GPU 1 has a total capacity \
of 80.00 GiB of which 80.00 GiB is free. Of the allocated memory 8 bytes is \
allocated by PyTorch.
>>> torch.cuda.memory_stats(1)["num_ooms"]
1
>>> torch.cuda.reset_accumulated_memory_stats(1)
>>> torch.cuda.memory_stats(1)["num_ooms"]
0
"""

STREAMS = """
>>> torch.cuda.Stream(1).device, torch.cuda.Stream(device="cuda:1").device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> torch.Stream(1).device, torch.Stream("cuda:1").device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> isinstance(torch.cuda.Stream(), torch.cuda.Stream)
True
>>> isinstance(torch.cuda.current_stream(1), torch.cuda.Stream)
True
>>> torch.cuda.streams.Stream is torch.cuda.Stream
True
>>> torch.cuda.current_stream(1).device, torch.cuda.default_stream(1).device
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> side = torch.cuda.Stream(1)
>>> with torch.cuda.stream(stream=side):
...     torch.ones(1).cuda().device, torch.cuda.current_stream() == side
(device(type='cuda', index=1), True)
>>> with torch.cuda.StreamContext(side):
...     torch.ones(1).cuda().device
device(type='cuda', index=1)
>>> torch.cuda.set_stream(torch.cuda.Stream(0))
>>> torch.cuda.current_stream() == torch.cuda.default_stream()
False
>>> torch.cuda.set_stream(torch.cuda.default_stream())
>>> start = torch.cuda.Event(enable_timing=True)
>>> end = torch.cuda.Event(enable_timing=True)
>>> start.device, torch.Event("cuda", enable_timing=True).device
(device(type='cuda', index=0), device(type='cuda', index=0))
>>> start.record(); x = torch.ones(1000, 1000).cuda(); x = x @ x; end.record()
>>> torch.cuda.synchronize()
>>> start.elapsed_time(end) > 0
True
>>> torch.cuda.is_current_stream_capturing()
False
"""

RANDOM_NUMBERS = """
>>> torch.cuda.manual_seed(1337)
>>> torch.cuda.initial_seed()
1337
>>> torch.cuda.random.manual_seed_all(7)
>>> torch.cuda.default_generators[1].initial_seed()
7
>>> torch.cuda.seed(); torch.cuda.seed_all()
>>> torch.cuda.initial_seed() == 7
False
>>> len(torch.cuda.default_generators), len([*torch.cuda.default_generators])
(2, 2)
>>> torch.Generator("cuda:1").device, torch.Generator(device="cuda").device
(device(type='cuda', index=1), device(type='cuda', index=0))
>>> generator = torch.Generator("cuda:1").manual_seed(3)
>>> torch.rand(2, generator=generator, device="cuda:1").device
device(type='cuda', index=1)
>>> torch.randperm(2, generator=generator, device="cuda:1").device
device(type='cuda', index=1)
>>> pickle.loads(pickle.dumps(generator)).device
device(type='cuda', index=1)
>>> state = torch.cuda.get_rng_state(1)
>>> x = torch.rand(2, device="cuda:1")
>>> torch.cuda.set_rng_state(state, "cuda:1")
>>> torch.equal(torch.rand(2, device="cuda:1"), x)
True
>>> torch.cuda.set_rng_state_all(torch.cuda.get_rng_state_all())
>>> with torch.random.fork_rng(devices=[1]):
...     torch.manual_seed(1).initial_seed()
1
"""

ACCELERATOR = """
>>> torch.accelerator.current_accelerator(), torch.accelerator.device_count()
(device(type='cuda'), 2)
>>> torch.accelerator.set_device_index("cuda:1")
>>> torch.accelerator.current_device_index(), torch.ones(1).cuda().device
(1, device(type='cuda', index=1))
>>> torch.accelerator.set_device_index(0)
>>> torch.accelerator.current_device_index()
0
>>> with torch.accelerator.device_index(1):
...     torch.ones(1).cuda().device, torch.cuda.current_device()
(device(type='cuda', index=1), 1)
>>> with torch.accelerator.device_index(None):
...     torch.ones(1).cuda().device
device(type='cuda', index=0)
>>> x = torch.ones(2).cuda(1)
>>> torch.accelerator.memory_allocated(1)
8
>>> torch.accelerator.current_stream(1).device
device(type='cuda', index=1)
>>> torch.accelerator.synchronize()
>>> torch.get_device_module().__name__, torch.get_device_module("cpu").__name__
('torch.cuda', 'torch.cpu')
"""

AUTOCAST = """
>>> x = torch.ones(2, 2).cuda()
>>> with torch.autocast("cuda"):
...     (x @ x).dtype, torch.is_autocast_enabled("cuda")
(torch.float16, True)
>>> with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
...     torch.get_autocast_gpu_dtype(), torch.get_autocast_dtype("cuda")
(torch.bfloat16, torch.bfloat16)
>>> with torch.autocast("cuda", torch.float32):
...     (x.half() @ x).dtype
torch.float32
>>> torch.autocast("cuda").device
'cuda'
>>> with torch.cuda.amp.autocast():
...     (x @ x).dtype
torch.float16
>>> torch.get_autocast_dtype("cuda"), torch.amp.is_autocast_available("cuda")
(torch.float16, True)
>>> torch.set_autocast_enabled("cuda", True)
>>> torch.set_autocast_dtype("cuda", torch.bfloat16)
>>> (x @ x).dtype
torch.bfloat16
>>> torch.set_autocast_gpu_dtype(torch.float16)
>>> (x @ x).dtype
torch.float16
>>> torch.set_autocast_enabled("cuda", False)
>>> class Double(torch.autograd.Function):
...     @staticmethod
...     @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
...     def forward(ctx, x):
...         return 2 * x
>>> with torch.autocast("cuda"):
...     Double.apply(x).dtype
torch.float16
>>> torch.amp.GradScaler("cuda").scale(torch.ones(()).cuda())
tensor(65536., device='cuda:0')
>>> torch.cuda.amp.GradScaler().is_enabled()
True
"""

LOADING = """
>>> def saved(what):
...     file = io.BytesIO()
...     torch.save(what, file)
...     file.seek(0)
...     return file
>>> def loaded(where):
...     return torch.load(saved(torch.ones(1, device="cuda:0")), where).device
>>> loaded(None), loaded("cpu")
(device(type='cuda', index=0), device(type='cpu'))
>>> loaded("cuda:1"), loaded(torch.device("cuda:1"))
(device(type='cuda', index=1), device(type='cuda', index=1))
>>> loaded({"cuda:0": "cuda:1"})
device(type='cuda', index=1)
>>> loaded(lambda storage, place: storage)
device(type='cpu')
>>> loaded(lambda storage, place: storage.cuda(1))
device(type='cuda', index=1)
>>> places = []
>>> loaded(lambda storage, place: places.append(place))
device(type='cuda', index=0)
>>> places
['cpu', 'cuda:0']
>>> torch.load(saved({"device": torch.device("cuda:1")}))
{'device': device(type='cuda', index=1)}
>>> torch.load(saved(torch.ones(1)), "cuda:1").device
device(type='cuda', index=1)
"""

NOTHING_TO_DO = """
>>> torch.cuda.init(); torch.cuda._lazy_init()
>>> torch.cuda.nvtx.range_push("x"); torch.cuda.nvtx.range_pop()
>>> torch.cuda.nvtx.mark("x")
>>> torch.cuda.nvtx.range_end(torch.cuda.nvtx.range_start("x"))
>>> with torch.cuda.nvtx.range("x"):
...     pass
>>> torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStart())
>>> torch.cuda.profiler.start(); torch.cuda.profiler.stop()
>>> torch.cuda.cudart().cudaHostRegister
Traceback (most recent call last):
NotImplementedError: torch.cuda.cudart().cudaHostRegister is not simulated ...
>>> torch.cuda.set_sync_debug_mode("warn"), torch.cuda.get_sync_debug_mode()
(None, 0)
>>> torch.cuda.memory._record_memory_history(max_entries=100)
>>> torch.cuda.memory._dump_snapshot("snapshot.pickle")
>>> torch.cuda.nccl.version() > (2, 0)
True
"""

REFUSED = """
>>> torch.cuda.utilization()
Traceback (most recent call last):
NotImplementedError: torch.cuda.utilization is not simulated (asked for in \
...); leave out what reads a GPU's sensors
>>> torch.cuda.graphs.CUDAGraph is torch.cuda.CUDAGraph
True
>>> torch.cuda.CUDAGraph | None
torch.cuda.CUDAGraph | None
>>> torch.cuda.memory_snapshot()
Traceback (most recent call last):
NotImplementedError: torch.cuda.memory_snapshot is not simulated ...
>>> torch.cuda.memory._snapshot()
Traceback (most recent call last):
NotImplementedError: torch.cuda.memory._snapshot is not simulated ...
"""

ON_ONE_DEVICE = """
>>> net = nn.DataParallel(nn.Linear(2, 2), device_ids=[1])
>>> next(net.parameters()).device, [*net.state_dict()]
(device(type='cuda', index=1), ['module.weight', 'module.bias'])
>>> net(torch.ones(3, 2)).device, net(input=torch.ones(3, 2).cuda()).shape
(device(type='cuda', index=1), torch.Size([3, 2]))
"""

PROGRAMS = {name: text for name, text in vars().items() if name.isupper()}
