"""What kernels of CUDA move to and from memory.

Most read each input once and write each result once::

    elementwise        GELU, ReLU, sums; dropout writes a mask as well
    log-softmax        of rows that stay in registers or shared memory
    layer norm         forward reads a row twice, from the cache the second
                       time
    max pooling        backward does not read its input, but fills its result
                       with zeros first, which is as much
    ``_foreach_*``     optimizers on lists

``MEMORY_PASSES`` holds what differs, and ``SOFTMAX_PASSES`` what depends on
the length of rows.

Source: PyTorch, aten/src/ATen/native/cuda, of each file a kernel:
Dropout.cu (commit 029ba61), PersistentSoftmax.cuh (072997d),
layer_norm_kernel.cu (0005c53), DilatedMaxPool2d.cu (010e5e7). Others stand
next to the entries.
"""

# Operation -> how often its kernels read all inputs, and write all results.
# For a batch norm in training of 100 bytes of x:
#
#     forward     statistics read x, then x is read and y written        300
#     backward    both kernels read x and the gradient, one writes dx    500
MEMORY_PASSES = {
    # Normalization.cuh, commit 045df43: batch_norm_collect_statistics_kernel,
    # batch_norm_transform_input_kernel; batch_norm_backward_kernel
    "native_batch_norm": (2, 1),
    "native_batch_norm_backward": (2, 1),
    # group_norm_kernel.cu, commit 0081abf: moments, then the transform; sums,
    # then dx
    "native_group_norm": (2, 1),
    "native_group_norm_backward": (2, 1),
    # layer_norm_kernel.cu, commit bad757b: dx by one kernel, dγ and dβ by
    # another
    "native_layer_norm_backward": (2, 1),
    # Loss.cu, commit 00e3254: it reads one value of each row; backward
    # fills the result with zeros and writes one value of each row
    "nll_loss_forward": (0, 1),
    "nll_loss_backward": (0, 1),
    "nll_loss2d_forward": (0, 1),
    "nll_loss2d_backward": (0, 1),
    # TensorAdvancedIndexing.cpp, commit 7bc3a81: a copy, then what is masked
    # is filled in the copy
    "masked_fill": (2, 2),
    # fused_adam_utils.cuh, commit 01e5d8d: p, m and v are written; the
    # result is counted as p alone
    "_fused_adam_": (1, 3),
    "_fused_adamw_": (1, 3),
}
# They read rows here and there: as much as they write, not the whole table.
READS_WHAT_IT_WRITES = set("embedding gather index index_select take".split())
ONLY_WRITES = {"zero_", "fill_"}
# SoftMax.cu, commit 000cace: a row that fits into the shared memory of a block
# is read once; of longer rows, such as those of a vocabulary, forward reads
# the largest, then the sum, then each value.
SHARED_ROW_BYTES = 48 * 1024
# Operation -> the position of its dimension, how often it reads all inputs if
# a row fits and if it does not, how often it writes all results. The backward
# of softmax first writes the product of gradient and result.
#
#     log-softmax, backward    gradient and result read, one written
#     softmax, backward        both read, their product written; product and
#                              result read, one written
SOFTMAX_PASSES = {
    "_log_softmax": (1, 1, 3, 1),
    "_log_softmax_backward_data": (2, 1, 2, 1),
    "_softmax": (1, 1, 3, 1),
    "_softmax_backward_data": (2, 2, 3, 2),
}
