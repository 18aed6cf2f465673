"""``dpkit.sim.as_cuda``: ``cuda`` means the simulated devices, in a block.

``names`` -- which device ``cuda:1`` is, and what a program sees of one;
``cuda_module`` -- the functions that take the places of those in
``torch.cuda``; ``tensor_types``, the types ``torch.cuda.FloatTensor`` …;
``functions`` -- the functions of torch that read a device, or tell one;
``loading`` -- where ``torch.load`` puts what it loads;
``distributed`` -- ``backend="nccl"`` and the like;
``time_of_programs`` -- the simulated time that a program sees;
``not_modelled`` -- what runs otherwise than on a GPU, and is noted, and what
is refused;
``patches`` -- all that is changed, in one table.

A program makes real devices, ``torch.device("cuda:1")``, and these are what it
sees of its tensors. Where PyTorch reads a device, it gets ``sim:1`` instead::

    program     torch.ones(3, device="cuda:1")     x.device.type
                      │ functions                       ▲ names
    PyTorch     torch.ones(3, device="sim:1")      x.device: sim:1

Code of PyTorch itself, and of dpkit, sees ``sim``: it asks for the device of a
tensor as always, and is known by who calls. So ``torch.sim`` is the
module of its devices, and the numbers are those of the machine. Functions of
``torch.cuda`` are for programs, and take the numbers of their node.

Two things stay as they are. ``torch.device(1)`` prints as ``sim:1``; given to
a function, it means ``cuda:1``. And the type of PyTorch's C++ for a device
cannot be changed: what a library asks C++ for by itself goes to CUDA, and the
error says so.
"""

from dpkit.sim.places import runs_beneath

runs_beneath(__path__[0])
