"""How operations on simulated devices are computed.

``registered`` -- those that do not come to ``SimTensor.__torch_dispatch__``;
``own`` -- those that the CPU's own kernel does not compute;
``statistics`` -- of these, what ``nn.SyncBatchNorm`` is made of;
``half`` -- of these, products of float16;
``attention`` -- attention, in three steps: ``attention_choice`` has the
    conditions on which a kernel takes a call, ``attention`` calls the operator
    of this kernel, and ``attention_values`` has what the operators compute;
``fast_path`` -- what PyTorch's fast path for inference is made of: one of its
    operations is such a call of attention;
``flex_attention`` -- FlexAttention, whose ``flex_blocks`` are computed;
``without_values`` -- operations on a machine without values, whose ``shapes``
    are remembered;
``uncharged`` -- copies for the buffers of collectives.
"""
