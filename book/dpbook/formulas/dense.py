"""What a dense layer takes on one device, with its ReLU and its host.

A layer of n inputs and m outputs, for b rows, where P is the product of a
(b, n) and an (n, m) matrix. What is moved counts values::

                products   moved besides                  launches, views
    forward        1       2bm by the ReLU                      2, 1
    backward       2       3bm by the ReLU, bm by the sum       6, 4
                           for the bias; 3(n + 1)m where
                           gradients are added to others

It takes what the device computes or what the host launches, whichever is
longer.
"""

from dataclasses import KW_ONLY, dataclass

from dpkit.sim.hardware import Cluster, operation_seconds

SIZES = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a value


@dataclass(frozen=True)
class Dense:
    """A dense layer, the rows that it is given, and where it is computed.

    Example:
        A layer of 4096 by 4096 for 1024 rows on a V100, in milliseconds:

        >>> from dpkit.sim.hardware.clusters import cluster
        >>> layer = Dense(cluster(4), rows=1024, inputs=4096, outputs=4096)
        >>> round(1e3 * layer.forward, 2), round(1e3 * layer.backward, 2)
        (2.43, 5.12)
    """

    cluster: Cluster
    _: KW_ONLY
    rows: float
    inputs: float
    outputs: float
    dtype: str = "float32"

    @property
    def size(self) -> int:
        """The bytes of a value."""
        return SIZES[self.dtype]

    @property
    def num_parameters(self) -> float:
        """How many weights and biases the layer has."""
        return (self.inputs + 1) * self.outputs

    @property
    def forward(self) -> float:
        """The seconds of the product and the ReLU."""
        relu = self.moved(2 * self.rows * self.outputs)
        return max(
            self.product + relu,
            self.cluster.host.issuing(launches=2, views=1, in_backward=False),
        )

    @property
    def backward(self) -> float:
        """The seconds of backward.

        Two matrix products make the gradients of the inputs and the weights.
        The other operations only move values: the backward of ReLU, the sum
        of the bias's gradients, and what adds gradients to the old ones.
        """
        moved = (
            self.moved(3 * self.rows * self.outputs)
            + self.moved(self.rows * self.outputs)
            + self.moved(3 * self.num_parameters)
        )
        issuing = self.cluster.host.issuing(6, 4, in_backward=True)
        return max(2 * self.product + moved, issuing)

    @property
    def product(self) -> float:
        """The seconds of one matrix product of the layer."""
        b = self.rows
        n = self.inputs
        m = self.outputs
        gpu = self.cluster.accelerator
        num_values = b * n + n * m + b * m
        return operation_seconds(
            gpu,
            flops=2 * b * n * m,
            num_bytes=self.size * num_values,
            dtype=self.dtype,
        )

    def moved(self, num_values: float) -> float:
        """Return the seconds of an operation that only moves values.

        ``num_values`` are those that it reads, and those that it writes.
        """
        gpu = self.cluster.accelerator
        return operation_seconds(
            gpu, flops=0, num_bytes=self.size * num_values
        )
