"""How operations on simulated devices are computed.

``registered`` -- those that do not come to ``SimTensor.__torch_dispatch__``;
``own`` -- those that the CPU's own kernel does not compute;
``statistics`` -- of these, what ``nn.SyncBatchNorm`` is made of;
``uncharged`` -- copies for the buffers of collectives.
"""
