"""How operations on simulated devices are computed.

``registered`` -- those that do not come to ``SimTensor.__torch_dispatch__``;
``own`` -- those that the CPU's own kernel does not compute;
``statistics`` -- of these, what ``nn.SyncBatchNorm`` is made of;
``half`` -- of these, products of float16;
``attention`` -- attention, by the operator that CUDA takes, which
    ``attention_on_cuda`` chooses and ``attention_values`` computes;
``flex_attention`` -- FlexAttention, whose ``flex_blocks`` are computed;
``fast_path`` -- what PyTorch's fast path for inference is made of;
``without_values`` -- operations on a machine without values, whose ``shapes``
    are remembered;
``uncharged`` -- copies for the buffers of collectives.
"""
