"""How a model is laid out on a mesh of ranks.

The mesh has a dimension for each way to split the work. The last one is
innermost: its neighbours are ranks one apart. 8 ranks, pp 2, fsdp 2, tp 2::

                   tp 0   tp 1
    pp 0   fsdp 0     0      1    rows 0 … 7
           fsdp 1     2      3    rows 8 … 15
    pp 1   fsdp 0     4      5    rows 0 … 7
           fsdp 1     6      7    rows 8 … 15

Ranks 0 and 1 share each layer, so they read the same rows. Ranks 0 and 4 have
other blocks of the model, and the same rows too.
"""

from dataclasses import dataclass
from math import prod

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from dpkit.processes import rank_device

#: Outermost first. What is sent most often, and waited for, is innermost.
ORDER = ("pp", "ddp", "replicate", "fsdp", "cp", "tp")
ROWS = ("ddp", "replicate", "fsdp")  # along these, ranks read other rows


@dataclass(frozen=True)
class Layout:
    """How many ranks each way to split the work has.

    Example:
        >>> layout = Layout(pp=2, fsdp=4, micro_batches=4)
        >>> print(layout)
        pp2 × fsdp4
        >>> layout.num_ranks
        8
    """

    pp: int = 1  #: stages of the pipeline
    ddp: int = 1  #: replicas of DistributedDataParallel, which stands alone
    replicate: int = 1  #: replicas of what fsdp has in shards (HSDP)
    fsdp: int = 1  #: shards of parameters, gradients and Adam's state
    cp: int = 1  #: parts of each sequence, on ranks that have shards as fsdp's
    tp: int = 1  #: parts of each layer, with sequence parallelism
    micro_batches: int = 1  #: of the pipeline, in a step
    cut: tuple[int, ...] = ()  #: blocks of each stage; (): as even as can be
    recompute: bool = False  #: whether backward computes blocks once more
    bfloat16: bool = False  #: whether it computes in 16 bits
    order: tuple[str, ...] = ORDER  #: of the mesh, outermost first

    def __post_init__(self) -> None:
        if self.ddp > 1 and self.num_ranks > self.ddp:
            raise ValueError(
                "DistributedDataParallel goes with no other way here, but "
                f"replicate does (ddp: {self.ddp}, ranks: {self.num_ranks})"
            )
        if self.replicate > 1 and self.cp > 1:
            raise ValueError(
                "replicas of shards go with no parts of sequences here "
                f"(replicate: {self.replicate}, cp: {self.cp})"
            )
        if self.micro_batches > 1 and self.pp == 1:
            raise ValueError(
                "micro-batches need a pipeline (micro_batches: "
                f"{self.micro_batches}, pp: 1)"
            )
        if self.cut and len(self.cut) != self.pp:
            raise ValueError(
                "the cut needs a number of blocks for each stage (cut: "
                f"{self.cut}, pp: {self.pp})"
            )

    @property
    def num_ranks(self) -> int:
        """How many ranks it takes."""
        return prod(self.size(name) for name in ORDER)

    def size(self, name: str) -> int:
        """Return how many ranks a dimension has, of one name in ORDER."""
        sizes = {
            "pp": self.pp,
            "ddp": self.ddp,
            "replicate": self.replicate,
            "fsdp": self.fsdp,
            "cp": self.cp,
            "tp": self.tp,
        }
        return sizes[name]

    @property
    def names(self) -> tuple[str, ...]:
        """The dimensions of its mesh, outermost first.

        fsdp is among them also if it has one rank: then ``fully_shard`` cuts
        nothing, but it computes in 16 bits where that is asked for.
        """
        always = "ddp" if self.ddp > 1 else "fsdp"
        return tuple(
            name
            for name in self.order
            if self.size(name) > 1 or name == always
        )

    def __str__(self) -> str:
        large = [n for n in ORDER if self.size(n) > 1]
        sizes = " × ".join(f"{n}{self.size(n)}" for n in large)
        again = ", recomputed" if self.recompute else ""
        wrong = "" if self.order == ORDER else f", {self.names[-1]} innermost"
        return (sizes or "one device") + again + wrong

    def stage(self, number: int, num_blocks: int) -> range:
        """Return the blocks of a stage.

        Args:
            number: Which stage.
            num_blocks: The blocks of the whole model.

        Example:
            >>> Layout(pp=2).stage(1, num_blocks=6)
            range(3, 6)
            >>> Layout(pp=2, cut=(4, 2)).stage(1, num_blocks=6)
            range(4, 6)
        """
        if self.cut:
            first = sum(self.cut[:number])
            return range(first, first + self.cut[number])
        bounds = [num_blocks * i // self.pp for i in (number, number + 1)]
        return range(*bounds)


def make_mesh(layout: Layout) -> DeviceMesh:
    """Return the mesh of a layout, over all ranks of this launch."""
    return init_device_mesh(
        rank_device().type,
        tuple(layout.size(name) for name in layout.names),
        mesh_dim_names=layout.names,
    )


def place_in(mesh: DeviceMesh, name: str) -> int:
    """Return the place of this rank along a dimension, 0 if it has none."""
    if name not in (mesh.mesh_dim_names or ()):
        return 0
    own: int = mesh.get_local_rank(name)
    return own


def own_rows(layout: Layout, mesh: DeviceMesh, num_rows: int) -> slice:
    """Return which rows of a batch this rank reads.

    Raises:
        ValueError: the ranks that read other rows do not divide them.
    """
    parts = prod(layout.size(name) for name in ROWS)
    if num_rows % parts:
        raise ValueError(
            "the rows of a batch do not divide evenly (rows: "
            f"{num_rows}, parts: {parts})"
        )
    place = 0
    for name in ROWS:
        place = place * layout.size(name) + place_in(mesh, name)
    each = num_rows // parts
    return slice(place * each, (place + 1) * each)
