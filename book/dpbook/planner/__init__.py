"""How to split a case: what each layout holds and takes, and the best one.

Begin with ``case``: a model, the examples of a step and a cluster.

``layouts`` -- how a step may be cut: data × context × tensor ×
pipeline, and groups of devices for experts;
``launches`` -- what the host of an eager program takes to launch a block;
``work`` -- what a block of a network does and keeps: counts, then seconds;
``experts`` -- what layers of experts add: groups, rows on their way;
``plain`` -- the same for plain modules, under PyTorch's engines;
``peak`` -- what a device of these engines has when it has most;
``zero_messages`` -- the messages by which replicas share what ZeRO divides;
``networks`` -- the networks that the book plans for;
``machines`` -- machines as one rents them: eight GPUs, and the network;
``case`` -- what each device of a layout holds, what each second is for;
``search`` -- all layouts that fit, by their seconds; why one is behind or
does not fit.

The formulas of a transformer are in ``formulas.transformer``.
"""
