"""What the chapter ``sharding`` runs and draws.

``runs`` -- steps by hand on simulated devices, their time and memory;
``engine`` -- the same step by PyTorch's ``fully_shard``;
``pictures`` -- what a device keeps, several steps, what is alive at a peak;
``seven_billion`` -- a language model by ``fully_shard``, without values;
``programs`` -- what it runs on ranks, simulated and real.
"""
