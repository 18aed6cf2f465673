"""Tests of dpkit.sim.hardware."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from dpkit.sim.hardware import (
    ACCELERATORS,
    DTYPES,
    HOSTS,
    LINKS,
    find,
    presets,
)
from dpkit.sim.hardware.parts import CONVOLUTIONS

TABLES = {"accelerator": ACCELERATORS, "link": LINKS, "host": HOSTS}
PRESETS = [p for table in TABLES.values() for p in table.values()]


def name_of(preset):
    return preset.name


def numeric(preset):
    """The names of the fields that hold numbers; not of empty tables."""
    held = {f.name: getattr(preset, f.name) for f in fields(preset)}
    del held["sources"]
    return {
        name
        for name, value in held.items()
        if not isinstance(value, str | bool) and value != {}
    }


def product_seconds(accelerator, n, dtype="float32"):
    """The time of a product of two n×n matrices, with its formula."""
    sizes = {"float64": 8, "float32": 4, "tf32": 4, "float8": 1}
    size = sizes.get(dtype, 2)
    flops, num_bytes = 2 * n**3, 3 * size * n**2
    rate = accelerator.flops_per_second[dtype]
    rate *= accelerator.achieved_flops[dtype]
    memory = accelerator.bytes_per_second * accelerator.achieved_bytes
    return accelerator.kernel_seconds + max(
        (flops + accelerator.half_flops) / rate,
        (num_bytes + accelerator.half_bytes) / memory,
    )


def copy_seconds(link, num_bytes):
    rate = link.bytes_per_second * link.achieved
    return link.latency_seconds + num_bytes / rate


def test_the_presets_are_those_that_the_book_names():
    assert list(ACCELERATORS) == (
        "k80 p100 p40 v100 v100-pcie a100 h100 h200 b200 rtx4090 "
        "laptop-cpu".split()
    )
    assert list(LINKS) == (
        "pcie3 pcie3-p2p pcie4 pcie5 nvlink1 nvlink2 nvlink3 nvlink4 "
        "nvlink5 ethernet10 ethernet25 ethernet100 "
        "infiniband200 infiniband400 infiniband800".split()
    )
    assert list(HOSTS) == "eager eager-modules eager-program cpu".split()


@pytest.mark.parametrize(("part", "table"), TABLES.items())
def test_each_file_is_named_in_its_table(part, table):
    folder = Path(presets.__file__).parent / "data" / f"{part}s"
    assert {path.stem for path in folder.iterdir()} == set(table)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_presets_have_the_names_they_are_found_by(table):
    assert all(preset.name == name for name, preset in table.items())


@pytest.mark.parametrize("preset", PRESETS, ids=name_of)
def test_each_number_has_a_source(preset):
    """But for those that the class assumes, and whose source it gives."""
    assumed = {
        f.name for f in fields(preset) if getattr(preset, f.name) == f.default
    }
    assert numeric(preset) - assumed <= set(preset.sources)
    assert set(preset.sources) <= {f.name for f in fields(preset)}
    for source in preset.sources.values():
        assert source == source.strip() != ""


@pytest.mark.parametrize("preset", ACCELERATORS.values(), ids=name_of)
def test_the_capability_of_a_gpu_fits_its_rates(preset):
    """From 8.0 on NVIDIA's tensor cores take TF32 and bfloat16."""
    capability = preset.compute_capability
    assert bool(capability) == (preset.name != "laptop-cpu")
    assert bool(capability) == ("compute_capability" in preset.sources)
    rates = preset.flops_per_second
    is_new = bool(capability) and float(capability) >= 8
    assert ("tf32" in rates) == is_new
    assert (rates.get("bfloat16", 0) > rates["float32"]) == is_new
    assert "float8" not in rates or float(capability) >= 8.9


@pytest.mark.parametrize("preset", ACCELERATORS.values(), ids=name_of)
def test_an_accelerator_reaches_its_host_through_a_link(preset):
    assert preset.host_link in LINKS
    assert not LINKS[preset.host_link].peer_to_peer


@pytest.mark.parametrize("preset", ACCELERATORS.values(), ids=name_of)
def test_only_the_cpu_is_synchronous(preset):
    assert preset.synchronous == (preset.name == "laptop-cpu")


@pytest.mark.parametrize("preset", ACCELERATORS.values(), ids=name_of)
def test_larger_products_reach_higher_rates(preset):
    for dtype in preset.flops_per_second:
        rates = [
            2 * n**3 / product_seconds(preset, n, dtype)
            for n in (32, 128, 512, 2048, 8192)
        ]
        assert rates == sorted(rates)
        assert rates[-1] < preset.flops_per_second[dtype]


def test_links_across_a_network_are_slower_than_those_within():
    # What cards of one server reach over pcie3-p2p is less than its promise.
    links = [link for link in LINKS.values() if link.name != "pcie3-p2p"]
    ranked = sorted(links, key=lambda link: copy_seconds(link, 1e8))
    assert [link.name for link in ranked] == (
        "nvlink5 nvlink4 nvlink3 nvlink2 infiniband800 nvlink1 pcie5 "
        "infiniband400 pcie4 infiniband200 pcie3 "
        "ethernet100 ethernet25 ethernet10".split()
    )


@pytest.mark.parametrize("name", ["backward_launch_seconds", "view_seconds"])
def test_what_is_assumed_of_a_program_is_in_the_ratio_of_eager(name):
    eager, program = HOSTS["eager"], HOSTS["eager-program"]
    times = program.launch_seconds / eager.launch_seconds
    expected = times * getattr(eager, name)
    assert getattr(program, name) == pytest.approx(expected, rel=0.02)
    assert program.sources[name].startswith("assumed")


def test_a_v100_takes_what_was_measured_for_a_product():
    """50 products of 4000×4000 took 0.493 s."""
    seconds = product_seconds(ACCELERATORS["v100-pcie"], 4000)
    assert seconds == pytest.approx(0.493 / 50, rel=0.15)


@pytest.mark.parametrize(
    ("n", "shortest", "longest"),
    [(1, 2e-6, 7e-6), (512, 25e-6, 35e-6), (1024, 165e-6, 205e-6)],
)
def test_a_v100_takes_what_was_measured_for_small_products(
    n, shortest, longest
):
    seconds = product_seconds(ACCELERATORS["v100-pcie"], n)
    assert shortest < seconds < longest


def test_a_v100_takes_what_was_measured_for_small_sums():
    """A kernel of 64 kB takes about 2.3 µs, one after another."""
    v100 = ACCELERATORS["v100"]
    memory = v100.bytes_per_second * v100.achieved_bytes
    seconds = v100.kernel_seconds + (64e3 + v100.half_bytes) / memory
    assert 2e-6 < seconds < 4e-6


def test_copies_take_what_was_measured():
    """3.2 GB took 2.445 s pageable; pinned, about 13 GB/s were reached."""
    pageable = 3.2e9 / HOSTS["eager"].new_memory_bytes_per_second
    assert pageable == pytest.approx(2.445, rel=0.01)
    pinned = copy_seconds(LINKS["pcie3"], 3.2e9)
    assert 3.2e9 / pinned == pytest.approx(13e9, rel=0.03)


@pytest.mark.parametrize("preset", PRESETS, ids=name_of)
def test_a_preset_is_found_by_its_name_or_as_itself(preset):
    (table,) = [t for t in TABLES.values() if preset in t.values()]
    assert find(table, preset.name) is preset
    own = replace(preset, name="own")
    assert find(table, own) is own


@pytest.mark.parametrize(("kind", "table"), TABLES.items())
def test_an_unknown_name_is_refused_with_those_that_are_known(kind, table):
    known = ", ".join(table)
    with pytest.raises(ValueError, match="unknown") as refusal:
        find(table, "abacus")
    assert str(refusal.value) == (
        f"unknown {kind} ({kind}: 'abacus', known: {known})"
    )


BAD = {
    "bytes_per_second": (0, -1, float("nan")),
    "to_device_bytes_per_second": (0, -1, float("nan")),
    "from_device_bytes_per_second": (0, -1, float("nan")),
    "new_memory_bytes_per_second": (0, -1, float("nan")),
    "memory_bytes": (0, -1),
    "achieved": (0, -0.1, 1.01, float("nan")),
    "achieved_bytes": (0, -0.1, 1.01, float("nan")),
    "half_flops": (-1, float("nan")),
    "half_bytes": (-1, float("nan")),
    "kernel_seconds": (-1, float("nan")),
    "latency_seconds": (-1, float("nan")),
    "library_step_seconds": (-1, float("nan")),
    "library_share": (0, -1, float("nan")),
    "launch_seconds": (-1, float("nan")),
    "backward_launch_seconds": (-1, float("nan")),
    "view_seconds": (-1, float("nan")),
    "wait_seconds": (-1, float("nan")),
}
EXAMPLES = [ACCELERATORS["v100"], LINKS["pcie3"], HOSTS["eager"]]


@pytest.mark.parametrize("name", BAD)
def test_a_number_that_cannot_be_is_refused(name):
    holders = [e for e in EXAMPLES if name in numeric(e)]
    assert holders
    for example in holders:
        for value in BAD[name]:
            with pytest.raises(ValueError, match="must") as refusal:
                replace(example, **{name: value})
            assert f"({name}: {value})" in str(refusal.value)


def test_every_number_is_tried():
    tried = {*BAD, "flops_per_second", "achieved_flops", *CONVOLUTIONS}
    assert tried == set().union(*map(numeric, EXAMPLES))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flops_per_second", 0),
        ("flops_per_second", -1.0),
        ("achieved_flops", 0),
        ("achieved_flops", 1.5),
        ("fast_convolutions", 0),
        ("other_convolutions", -0.5),
    ],
)
def test_a_number_of_a_dtype_that_cannot_be_is_refused(name, value):
    v100 = ACCELERATORS["v100"]
    numbers = {**getattr(v100, name), "float16": value}
    with pytest.raises(ValueError, match="must be positive") as refusal:
        replace(v100, **{name: numbers})
    assert f"({name}['float16']: {value})" in str(refusal.value)


def test_no_cost_and_the_whole_rate_are_possible():
    link = replace(LINKS["pcie3"], achieved=1, latency_seconds=0)
    assert copy_seconds(link, 15.75e9) == 1


@pytest.mark.parametrize(
    "name", ["flops_per_second", "achieved_flops", *CONVOLUTIONS]
)
def test_an_unknown_dtype_is_refused(name):
    v100 = ACCELERATORS["v100"]
    with pytest.raises(ValueError, match="unknown dtype") as refusal:
        replace(v100, **{name: {**getattr(v100, name), "int8": 0.5}})
    assert str(refusal.value) == (
        f"unknown dtype ({name}: 'int8', known: {', '.join(DTYPES)})"
    )


def test_a_rate_without_its_fraction_is_refused():
    v100 = ACCELERATORS["v100"]
    with pytest.raises(ValueError, match="of the same dtypes"):
        replace(v100, achieved_flops={"float32": 0.9})


def test_float32_cannot_be_left_out():
    v100 = ACCELERATORS["v100"]
    with pytest.raises(ValueError, match="a rate for float32") as refusal:
        replace(v100, flops_per_second={"float16": 1e14})
    assert "(flops_per_second: float16)" in str(refusal.value)
