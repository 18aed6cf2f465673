"""Which operators with arithmetic are charged, of all that torch has."""

import json
import re
import warnings
from pathlib import Path

import pytest
import torch
from torchvision.ops import deform_conv2d

import dpkit
from dpkit.sim.operators import uncharged_arithmetic
from dpkit.sim.operators.record import has_kernel, operator_of

aten = torch.ops.aten

# Words in the names of operators that may multiply matrices, or do more.
WORDS = re.compile(
    r"(^|_)(b|addb?|baddb|sspadd)?mm(_|$)|matmul|conv(_|\d|ol|$)|attention"
    r"|fft_|linalg|bilinear$|einsum|dist_|euclidean|dot(_|$)|addr_?$|mv_?$"
    r"|cholesky|(^|_)lu(_|$)|(^|_)qr(_|$)|geqrf|ormqr|svd|eig|solve|lstsq"
    r"|inverse|(^|_|log)det(_|$)|lstm|gru|rnn|(^|_)linear|kron|householder"
    r"|multi_head|encoder|ldl|lobpcg"
)
# They have such a word and no product; or they are for other devices.
WITHOUT = set(
    "_convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight "
    "_embedding_bag_per_sample_weights_backward _linalg_check_errors "
    "_scaled_dot_product_fused_attention_overrideable "
    "_scaled_dot_product_fused_attention_overrideable_backward "
    "_weight_norm_interface _weight_norm_interface_backward "
    "convolution_backward_overrideable convolution_overrideable "
    "fft_fftfreq fft_rfftfreq linalg__powsum linalg_cross "
    "linalg_vector_norm lu_unpack slice_inverse "
    "upsample_linear1d upsample_linear1d_backward".split()
)
# Of tensors that simulated devices refuse: sparse, quantized, of oneDNN.
OTHER_LAYOUTS = re.compile("sparse|sspaddmm|quantize|^mkldnn_(linear|reorder)")


def operators():
    """Yield the operators that run on plain tensors, not as several others.

    Those that write to an argument "out" are left away: they have the names
    of those that do not.
    """
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        full = f"{schema.name}.{schema.overload_name}".rstrip(".")
        known = space == "aten" and torch._C._dispatch_has_kernel(full)
        if not known or any(a.is_out for a in schema.arguments):
            continue
        keys = "CPU", "CompositeExplicitAutograd"
        if any(has_kernel(full, key) for key in keys):
            overload = schema.overload_name or "default"
            yield getattr(getattr(aten, name), overload)


def test_all_that_has_arithmetic_is_charged_or_warned_of():
    dpkit.sim.register()
    records = [operator_of(func) for func in operators()]
    assert len(records) > 1000
    found = {
        r.name
        for r in records
        if WORDS.search(r.name) and not r.is_composed and r.flops is None
    }
    found = {name for name in found if not OTHER_LAYOUTS.search(name)}
    # What is new in torch is to be counted in flops.py or named here.
    assert (
        sorted(found - WITHOUT - uncharged_arithmetic.LIMITED_BY_MEMORY) == []
    )


def test_what_is_warned_of_has_words_that_are_looked_for():
    """Or the test above would not miss it."""
    names = (
        uncharged_arithmetic.WARNED_OF | uncharged_arithmetic.LIMITED_BY_MEMORY
    )
    assert sorted(name for name in names if not WORDS.search(name)) == []


@pytest.mark.parametrize(
    "words", [*uncharged_arithmetic.UNCHARGED, "`mv`, `addmv`"]
)
def test_the_page_says_what_is_charged_for_traffic_alone(words):
    page = Path(__file__).parents[2] / "book" / "limits-programs.ipynb"
    cells = json.loads(page.read_text())["cells"]
    assert any(words in "".join(cell["source"]) for cell in cells)


@pytest.fixture
def fresh(monkeypatch):
    """No program was warned of anything yet."""
    monkeypatch.setattr(uncharged_arithmetic, "_warned", set())


CALLS = {
    "linalg_matrix_exp": lambda x: torch.linalg.matrix_exp(x),
    "linalg_inv_ex": lambda x: x.inverse(),
    "_fft_r2c": lambda x: torch.fft.rfft(x),
    "_cdist_forward": lambda x: torch.cdist(x, x, p=1.0),
    "conv_tbc": lambda x: torch.conv_tbc(x[None], x[None], x[0]),
}


@pytest.mark.parametrize(
    ("name", "backing"),
    [*[(name, "cpu") for name in CALLS], ("linalg_matrix_exp", "meta")],
)
def test_the_first_call_warns(name, backing, fresh):
    dpkit.sim.register()
    with dpkit.sim.machine(backing=backing):
        x = torch.eye(5, device="sim:0")
        with pytest.warns(UserWarning, match=rf"operation: {name}\)") as found:
            CALLS[name](x)
        (warning,) = found
        line = CALLS[name].__code__.co_firstlineno
        assert (warning.filename, warning.lineno) == (__file__, line)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            CALLS[name](x)


def test_the_first_deformed_convolution_warns(fresh):
    x = torch.ones(1, 1, 5, 5, device=dpkit.devices(1, "sim")[0])
    offset, w = x.new_zeros(1, 18, 3, 3), x[..., :3, :3].requires_grad_()
    with pytest.warns(UserWarning, match=r"operation: deform_conv2d\)"):
        y = deform_conv2d(x, offset, w)
    with pytest.warns(UserWarning, match=r"on: _deform_conv2d_backward\)"):
        y.sum().backward()


def distances_and_backward():
    x = torch.eye(5, device="sim:0").requires_grad_()
    with dpkit.sim.trace(races=True):
        total = torch.cdist(x, x.detach(), p=1.0).sum()
        total.backward()


def test_a_warning_names_the_line_of_the_program(fresh):
    """Wherever torch calls the operator: in backward, and for races."""
    with pytest.warns(match="arithmetic is not charged") as found:
        distances_and_backward()
    first = distances_and_backward.__code__.co_firstlineno
    places = [(warning.filename, warning.lineno) for warning in found]
    assert places == [(__file__, first + 3), (__file__, first + 4)]


def test_nothing_else_warns(fresh):
    zero = dpkit.devices(1, "sim")[0]
    with warnings.catch_warnings(), dpkit.sim.trace(races=True):
        warnings.simplefilter("error")
        x = torch.eye(5, device=zero)
        (x @ x).mv(x[0]).dot(x[0])
        x.cpu().inverse()  # the CPU is not simulated


@pytest.mark.skipif(
    not hasattr(torch, "_foreach_mm"),
    reason="this torch has no products of lists",
)
def test_a_list_of_products_takes_what_they_take_one_by_one():
    xs = [torch.ones(2, 3 + i, device="sim:0") for i in range(2)]
    with dpkit.sim.trace() as timeline:
        torch._foreach_mm(xs, [x.T for x in xs])
    assert sum(span.flops for span in timeline.spans) == 2 * 2 * 2 * (3 + 4)
