"""What a step of a transformer costs: counts, from the sizes of the model.

Legend::

    s  tokens of an example      h  values of a token        a  heads
    b  examples that go through  f  values inside the MLP    L  layers
       together                  g  values of all keys       V  words

A layer, without gates, where f = 4h and g = h. All values have 16 bits::

                            here                       the usual form
    parameters        2h² + 2hg + 2hf                  12h²
    flops forward     2sb · parameters + 4s²bh         24sbh² (1 + s/6h)
    bytes kept        sb (10h + 4h + 4g + 4f + 5as)    sbh (34 + 5as/h)

Kept are the values that backward needs. On t devices with tensor parallelism
each has a t-th of all but the 10h, and of these too with sequence parallelism.
With experts, f counts for each of the k that a token goes to, and 4kh are
kept besides: the rows that come to experts, and what these give.

The 5as are attention's weights of all pairs of tokens, which fused attention
does not keep. Full recomputation keeps the layer's input alone, 2h. What
selective recomputation is depends on attention. Where attention is in parts,
backward computes its weights again, and no more::

    22 billion: s = 2048, b = 4, h = 6144, a = 64, on t = 8 devices
    MB of a layer        none    selective    full
    without sequence    1,325         654     101
    with sequence         885         214      13

Where attention is fused, backward computes again all but products and
attention, whose results are kept, as by PyTorch's selective checkpointing::

                          values      of t devices each has
    the layer's input     h           a t-th, with sequence parallelism
    queries, attention    h + h       a t-th
    keys, values          g + g       a t-th
    gate and up; or one   2f; or f    a t-th
    out, down             h + h       all: they are parts of a sum

    7 billion: 4,096 tokens, h = g = 4096, f = 11,008, gated, no dropout
    MB of a layer        none    selective    full
    t = 1                 539         415      34
    t = 8                  67         111       4

Norms, activation functions and residual sums are computed twice. A large
tensor group keeps more with it than without, for the sake of the two sums.

With c devices that share each sequence (context parallelism), a device has an
s/c of its tokens, and all of the above is divided by c; the pairs of a token
are s as before.

Two products of a layer need all tokens of the tensor group: that of queries,
keys and values, and the first of the MLP. With sequence parallelism their
inputs are gathered, 2h values for each token. So are keys and values where a
sequence is shared, 2g. Megatron-LM and Llama 3's program gather again in
backward what they need; PyTorch's DTensor keeps what it has gathered::

    kept besides         sb/c · (4h (1 - 1/t) + 4g (c - 1)/t)

    a block of 4,096 wide, 16 sequences of 2,048 tokens, t = 8, c = 1:
    16 · 2048 · 4 · 4096 · 7/8 = 470 MB

Source:
    V. Korthikanti et al., Reducing activation recomputation in large
    transformer models, 2022, arXiv:2205.05198, for what is kept;
    D. Narayanan et al., Efficient large-scale language model training on GPU
    clusters, 2021, arXiv:2104.04473, for the flops.
"""

from dataclasses import KW_ONLY, dataclass

from dpkit.units import check_known

RECOMPUTE = ("none", "selective", "full")
GATHERED = ("again", "kept")


@dataclass(frozen=True)
class Transformer:
    """The sizes of a model, and of an example.

    Example:
        >>> gpt = Transformer(layers=48, hidden=6144, heads=64,
        ...                   vocabulary=51_200, sequence=2048,
        ...                   fused=False)
        >>> f"{gpt.parameters / 1e9:.1f} billion"
        '22.1 billion'
    """

    _: KW_ONLY
    layers: int  #: how many layers, L
    hidden: int  #: the values of a token, h
    heads: int  #: the heads of attention, a
    vocabulary: int  #: the words, V
    sequence: int  #: the tokens of an example, s
    feed_forward: int = 0  #: the values inside the MLP, f; 0 stands for 4h
    key_heads: int = 0  #: the heads of keys and of values; 0 stands for a
    gated: bool = False  #: whether the MLP has a third matrix, as SwiGLU has
    #: Whether embedding and scores of words share their weights.
    tied: bool = True
    #: Whether attention is one kernel, which writes no weights.
    fused: bool = True
    dropout: bool = True  #: whether there is dropout, of which masks are kept
    dtype: str = "bfloat16"  #: in which it computes
    #: How many experts a layer has in place of one MLP, E, and 0 where it has
    #: an MLP.
    experts: int = 0
    choices: int = 0  #: how many of them a token goes to, k
    #: Whether it is written in plain modules and runs by PyTorch's engines,
    #: so that the kernels between products are not fused.
    plain: bool = False

    def __post_init__(self) -> None:
        """Refuse choices of experts that a layer does not have."""
        if not min(1, self.experts) <= self.choices <= self.experts:
            raise ValueError(
                "a token goes to one expert of a layer at least, and to each "
                f"once at most (experts: {self.experts}, choices: "
                f"{self.choices})"
            )

    @property
    def inner(self) -> int:
        """The values inside the MLP, f."""
        return self.feed_forward or 4 * self.hidden

    @property
    def keys(self) -> float:
        """The values of all keys of a token, g."""
        return self.hidden * (self.key_heads or self.heads) / self.heads

    @property
    def mlp_parameters(self) -> float:
        """The parameters of the MLP, or of one expert."""
        return (3 if self.gated else 2) * self.hidden * self.inner

    @property
    def non_expert_parameters(self) -> float:
        """The parameters of a layer that are no expert's.

        They are those of attention, of the router and of the MLP, which a
        layer with experts does not have.
        """
        attention = 2 * self.hidden * (self.hidden + self.keys)
        router = self.hidden * self.experts
        mlp = 0.0 if self.experts else self.mlp_parameters
        return attention + router + mlp

    @property
    def layer_parameters(self) -> float:
        """The parameters of a layer, without biases and norms."""
        all_experts = self.experts * self.mlp_parameters
        return self.non_expert_parameters + all_experts

    @property
    def used_parameters(self) -> float:
        """The parameters of a layer that a token meets."""
        chosen = self.choices * self.mlp_parameters
        return self.non_expert_parameters + chosen

    @property
    def word_parameters(self) -> float:
        """The parameters of the embedding; scoring the words has as many."""
        return float(self.vocabulary * self.hidden)

    @property
    def parameters(self) -> float:
        """The parameters of the whole model."""
        ends = (1 if self.tied else 2) * self.word_parameters
        return self.layers * self.layer_parameters + ends

    def flops(self, num_examples: float, masked: bool = False) -> float:
        """Return the flops that a step needs, forward and backward.

        Args:
            num_examples: Those of the step.
            masked: Whether a causal mask leaves out half of attention's
                pairs. The sources count all pairs.

        Example:
            >>> gpt = Transformer(layers=48, hidden=6144, heads=64,
            ...                   vocabulary=51_200, sequence=2048)
            >>> h, s, v, layers = 6144, 2048, 51_200, 48
            >>> inside = 1 + s / (6 * h) + v / (12 * layers * h)
            >>> round(gpt.flops(4) / (72 * 4 * s * layers * h**2 * inside), 9)
            1.0
        """
        weights = self.layers * self.used_parameters + self.word_parameters
        pairs: float = 2 * self.layers * self.sequence * self.hidden
        pairs /= 2 if masked else 1
        return 6 * num_examples * self.sequence * (weights + pairs)

    def kept_bytes(
        self,
        micro_batch: int,
        *,
        tensor: int = 1,
        recompute: str = "selective",
        sequence_parallel: bool = True,
        context: int = 1,
        gathered: str = "again",
    ) -> float:
        """Return the bytes that a device keeps of a layer for backward.

        Args:
            micro_batch: The examples that go through together.
            tensor: How many devices share the layer.
            recompute: What backward computes again: "none"; "selective", the
                weights of attention, or if it is fused, all but products and
                attention; "full", the layer.
            sequence_parallel: Whether these devices share what lies between
                products, too.
            context: How many devices share each sequence.
            gathered: What becomes of inputs, keys and values that a device
                has gathered from others, when forward has used them: "again",
                backward gathers them once more; "kept", they stay. With
                recomputation backward gathers them in any case.

        Example:
            >>> gpt = Transformer(layers=48, hidden=6144, heads=64,
            ...                   vocabulary=51_200, sequence=2048,
            ...                   fused=False)
            >>> for recompute in ("none", "selective", "full"):
            ...     kept = gpt.kept_bytes(4, tensor=8, recompute=recompute)
            ...     print(f"{kept / 1e6:,.0f} MB")
            885 MB
            214 MB
            13 MB
        """
        check_known("recompute", recompute, RECOMPUTE)
        check_known("gathered", gathered, GATHERED)
        rows = tensor if sequence_parallel else 1  # that share the rest
        tokens = micro_batch * self.sequence / context
        h = self.hidden
        if recompute == "full":
            return 2 * tokens * h / rows
        if recompute == "selective" and self.fused:
            return tokens * self._kept_selectively(rows, tensor)
        inner = (6 if self.gated else 4) * self.inner * (self.choices or 1)
        inner += 4 * self.choices * h  # rows that came, and what was given
        shared = 4 * h + 4 * self.keys + inner
        if recompute == "none" and not self.fused:
            shared += 5 * self.heads * self.sequence
        outside = (10 if self.dropout else 8) * h
        whole = 0.0
        if gathered == "kept":
            inputs = 4 * h * (1 - 1 / rows)
            keys_and_values = 4 * self.keys / tensor * (context - 1)
            whole = inputs + keys_and_values
        return tokens * (outside / rows + shared / tensor + whole)

    def _kept_selectively(self, rows: int, tensor: int) -> float:
        """Return the bytes of a token: its input, products and attention.

        Args:
            rows: How many devices share what lies between products.
            tensor: How many share the layer.
        """
        h = self.hidden
        up = (2 if self.gated else 1) * self.inner
        shared = 2 * h + 2 * self.keys + up
        sums = 2 * h
        return 2 * (h / rows + shared / tensor + sums)
