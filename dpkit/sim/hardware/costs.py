"""Seconds that operations and copies take, from what they do.

An operation is bound by its arithmetic or by its traffic to memory, whichever
takes longer::

    seconds = fixed + max(flops / rate of arithmetic, bytes / rate of memory)

A small operation does not fill the device. Its rate follows the size n of the
work: full · n / (n + half), where half is the size that reaches half of the
full rate. So n / rate is (n + half) / full. With half = 4::

    n          1     4     12     396
    rate     1/5   1/2    3/4   99/100   of the full rate
"""

from dpkit.sim.hardware.parts import (
    AS_FLOAT32,
    ATTENTION_KINDS,
    HALVES,
    Accelerator,
    Link,
)


def operation_seconds(
    accelerator: Accelerator,
    *,
    flops: float,
    num_bytes: float,
    dtype: str = "float32",
    kind: str = "",
) -> float:
    """Return the seconds that a device takes for an operation.

    Args:
        accelerator: The device; its preset may have a rate for each kind.
        flops: The arithmetic in the operation, 0 if its time is all traffic.
        num_bytes: What it reads from memory and writes there.
        dtype: The name of the type that it computes in, such as "bfloat16".
        kind: "" for products, "fast" or "other" for the two classes of
            convolutions, or a kernel of attention in ``ATTENTION_KINDS``.

    Raises:
        NotImplementedError: no rate is known for products in this dtype.

    Example:
        The product of two 4000×4000 matrices on a V100, in milliseconds:

        >>> from dpkit.sim.hardware import ACCELERATORS
        >>> v100 = ACCELERATORS["v100-pcie"]
        >>> seconds = operation_seconds(
        ...     v100, flops=2 * 4000**3, num_bytes=3 * 4000**2 * 4
        ... )
        >>> round(1e3 * seconds, 1)
        9.8

        A convolution of VGG16, of 29.6 billion operations, on a P100, in
        milliseconds; without its class it goes at the rate of products:

        >>> p100 = ACCELERATORS["p100"]
        >>> work = {"flops": 29.6e9, "num_bytes": 0}
        >>> round(1e3 * operation_seconds(p100, **work), 1)
        3.1
        >>> round(1e3 * operation_seconds(p100, **work, kind="fast"), 1)
        2.0

    Source:
        Williams, Waterman and Patterson, "Roofline", 2009, for the larger of
        the two; Hockney and Jesshope, "Parallel Computers", 1981, for the
        size that reaches half of the rate.
    """
    seconds = 0.0
    if flops:
        rate = achieved_flops_per_second(accelerator, dtype, kind)
        seconds = (flops + accelerator.half_flops) / rate
    if num_bytes:
        rate = accelerator.bytes_per_second * accelerator.achieved_bytes
        seconds = max(seconds, (num_bytes + accelerator.half_bytes) / rate)
    return accelerator.kernel_seconds + seconds


def achieved_flops_per_second(
    accelerator: Accelerator, dtype: str, kind: str = ""
) -> float:
    """Return the rate that large operations of a kind reach.

    The rates of attention are of 16 bits. In other dtypes it has the rate of
    products: on an A100 in float32 the kernel "efficient" was faster than
    that, 2.3 times forward and 1.4 times backward (pull requests 587 and 405
    of the library xFormers).

    Raises:
        NotImplementedError: There is none for the dtype, and it is not one
            that is computed as float32 is.

    Example:
        Products in float8 on an H100:

        >>> from dpkit.sim.hardware import ACCELERATORS
        >>> f"{achieved_flops_per_second(ACCELERATORS['h100'], 'float8'):.2e}"
        '1.41e+15'

        FlashAttention-2 on an A100, forward and backward:

        >>> for kind in ("flash", "flash backward"):
        ...     rate = achieved_flops_per_second(
        ...         ACCELERATORS["a100"], "bfloat16", kind)
        ...     print(f"{rate / 1e12:.0f} TFLOP/s")
        209 TFLOP/s
        181 TFLOP/s
    """
    # P100, of its peak in float32:    products               0.9
    #                                  convolutions, fast     1.37
    #                                  convolutions, other    0.54
    # Where no convolution was measured, all have the rate of products. Where
    # no kernel of attention was measured, it has half of that.
    known = accelerator.flops_per_second
    if dtype not in known and dtype in AS_FLOAT32:
        dtype = "float32"
    if dtype not in known:
        raise NotImplementedError(
            "no rate is known for products in this dtype, so they cannot be "
            f"timed (dtype: {dtype}, accelerator: {accelerator.name}, known: "
            f"{', '.join(known)})"
        )
    fraction = accelerator.achieved_flops[dtype]
    if kind in ATTENTION_KINDS:
        if dtype in HALVES:
            fraction = accelerator.fused_attention.get(kind, fraction / 2)
    elif kind:
        of_class = getattr(accelerator, f"{kind}_convolutions")
        fraction = of_class.get(dtype, fraction)
    return accelerator.flops_per_second[dtype] * fraction


def copy_seconds(
    link: Link, num_bytes: float, at_most: float = float("inf")
) -> float:
    """Return the seconds that a copy over ``link`` takes, once it starts.

    Args:
        link: What it passes over.
        num_bytes: Its size.
        at_most: A limit in bytes per second besides that of the link, such as
            the rate of memory that is not pinned; by default there is none.

    Example:
        160 MB over a link of 16 GB/s without latency take 10 ms.

        >>> link = Link("x", bytes_per_second=16e9, achieved=1,
        ...             latency_seconds=0, peer_to_peer=True)
        >>> copy_seconds(link, 160e6)
        0.01
    """
    rate = min(link.bytes_per_second * link.achieved, at_most)
    return link.latency_seconds + num_bytes / rate
