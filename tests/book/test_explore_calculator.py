"""The calculator: what fits, how long a run takes, and what it costs."""

import re
import shlex
from dataclasses import replace

import pytest

from dpbook.explore.calculator import (
    CALCULATOR,
    CONTROLS,
    MODELS,
    own_network,
    words_of,
)
from dpbook.explore.planner import EAGER, PROGRAM_HOSTS
from dpbook.planner.case import Case
from dpbook.planner.layouts import Layout
from dpbook.planner.machines import MACHINES, NODE
from dpbook.planner.networks import NETWORKS
from dpbook.planner.search import search
from dpkit.__main__ import command_parser
from dpkit.sim.hardware import ACCELERATORS, LINKS
from dpkit.units import show_memory, show_seconds
from tests.repository import ROOT


def ask(**settings):
    shown = CALCULATOR.ask(**settings)
    assert shown.refused == ""
    return shown, dict(shown.facts)


def test_it_shows_the_fastest_layout_of_the_planner():
    shown, facts = ask(machines=4, examples=256, tokens=10)
    net = replace(NETWORKS["7B"], sequence=4096)
    machines = MACHINES["p5.48xlarge"].cluster(4)
    case = Case(net, 256, machines, host=PROGRAM_HOSTS[EAGER])
    best = search(case).plans[0]
    assert facts["GPUs of 4 p5.48xlarge"] == "32 H100, 80 GB"
    assert facts["a step"] == show_seconds(best.seconds.total)
    assert facts["layout"] == words_of(best.layout)
    held = show_memory(int(best.memory.total))
    assert f"the fullest GPU holds {held}, and 72 GiB" in shown.sentence
    days = 10e9 / (256 * 4096) * best.seconds.total / 86_400
    assert facts["the run"].startswith(f"{24 * days:.3g} hours;")
    bars = [picture.svg for picture in shown.pictures]
    assert f">{held}<" in bars[0]
    assert f">{facts['a step']}<" in bars[1]


def test_a_model_of_7_billion_needs_18_bytes_for_each_parameter():
    _, facts = ask()
    assert facts["parameters"] == "6.738 billion"
    assert facts["weights, gradients and Adam's averages"] == "113 GiB"


def test_what_does_not_fit_is_told_with_the_machines_that_it_fits_on():
    shown, facts = ask(model="Llama 3, 70B", machines=1)
    assert shown.sentence.startswith("It does not fit: ")
    assert "mostly the optimizer's state" in shown.sentence
    assert shown.sentence.endswith("It fits on 4 of these machines.")
    assert "a step" not in facts
    row = facts["the fewest machines that it fits on"]
    assert re.search(r"4 [^;]*\bp5\.48xlarge", row)
    sentences = {
        n: ask(model="Llama 3, 70B", machines=n)[0].sentence for n in (2, 4)
    }
    assert sentences[2].startswith("It does not fit: ")
    assert sentences[4].startswith("It fits: ")


def test_too_large_for_all_machines():
    # 37 examples are on one replica, of 4 stages and 8 GPUs for each layer.
    sizes = {"layers": 7, "width": 16_384, "heads": 8, "words": 128_256}
    shown, facts = ask(
        model="your own",
        machine="p3.16xlarge",
        machines=1,
        sequence=1024,
        examples=37,
        **sizes,
    )
    assert shown.sentence.endswith("It fits on no number of these machines.")
    assert "p3" not in facts["the fewest machines that it fits on"]


def test_money_is_the_price_times_machines_times_hours():
    _, facts = ask(machines=4, price=20)
    (hours_of_gpus,) = re.findall(r"([\d,]+) hours of a GPU", facts["the run"])
    hours = int(hours_of_gpus.replace(",", "")) / NODE
    money = facts["money, in the currency of the price"]
    assert int(money.replace(",", "")) == pytest.approx(20 * hours, rel=1e-3)
    assert not any(name.startswith("money") for name in ask(machines=4)[1])


def test_own_sizes():
    net = own_network(
        layers=32, width=4096, heads=32, words=32_000, sequence=4096
    )
    assert net.parameters == NETWORKS["7B"].parameters
    shown = CALCULATOR.ask(model="your own", width=2048, heads=24)
    assert "(width: 2048, heads: 24)" in shown.refused
    assert shown.place == "heads"


def test_examples_that_do_not_divide_are_refused():
    shown = CALCULATOR.ask(examples=1021, machines=2048)
    assert "(examples: 1021, GPUs: 16384)" in shown.refused
    assert shown.place == "examples"


@pytest.mark.parametrize("name", CALCULATOR.presets)
def test_presets_set_everything_and_fit(name):
    settings = CALCULATOR.presets[name]
    assert set(settings) == set(CONTROLS)
    assert ask(**settings)[0].sentence.startswith("It fits: ")


@pytest.mark.parametrize("machine", MACHINES)
def test_the_command_names_these_gpus(machine):
    _, facts = ask(machine=machine, machines=4)
    words = shlex.split(facts["to try a script on GPUs like these"])
    assert words[:4] == ["python", "-m", "dpkit", "torchrun"]
    told = command_parser().parse_args(words[3:])
    rented = MACHINES[machine]
    assert told.nnodes == 4
    assert told.nproc_per_node == NODE
    assert told.accelerator == rented.accelerator
    assert told.link == rented.link
    memory = ACCELERATORS[told.accelerator].memory_bytes
    if told.memory:
        memory = told.memory * 1e9  # as sold; the planner takes them as GiB
    wanted = rented.cluster(4).accelerator.memory_bytes
    assert memory == pytest.approx(wanted, rel=0.07)
    assert told.network in LINKS


def test_machines_have_the_share_of_their_network():
    port = MACHINES["p3.16xlarge"].cluster(2).network
    assert port.bytes_per_second == 25e9 / 8 / 8
    assert port.latency_seconds == LINKS["ethernet25"].latency_seconds
    assert MACHINES["p5.48xlarge"].cluster(2).network is LINKS["infiniband400"]


def test_the_page_for_readers_of_another_book_has_the_same_machines():
    text = (ROOT / "book" / "from-d2l.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| `(\S+)` \| 8 (.*?) \| .*? \| `(.*?)` \|", text)
    assert len(rows) >= 3
    for name, gpus, options in rows:
        machine = MACHINES[name]
        assert machine.short == f"{NODE} {gpus}"
        assert options == f"--gpus {NODE} {machine.options}"


def test_layouts_in_words():
    words = words_of(Layout(1, 8, 4, micro_batch=2, recompute="full", zero=0))
    assert words == (
        "1 replica, 8 GPUs share each layer, 4 stages in a row; no ZeRO, "
        "2 examples at a time, layers are computed again"
    )


def test_sizes_of_the_networks():
    counts = {n: round(m.parameters / 1e9, 1) for n, m in MODELS.items()}
    assert counts == {
        "Llama 2, 7B": 6.7,
        "Llama 2, 13B": 13.0,
        "Llama 3, 8B": 8.0,
        "Llama 3, 70B": 70.6,
        "Llama 3, 405B": 405.8,
    }
