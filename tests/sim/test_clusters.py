"""What a cluster is made of, and what it refuses."""

import pytest

from dpkit.sim.hardware.clusters import cluster


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accelerator": "v1000"}, "accelerator: 'v1000', known: .*v100-pcie"),
        (
            {"network": "wifi"},
            "unknown network .*network: 'wifi', known: .*ethernet",
        ),
        ({"link": "wire"}, "link: 'wire', known: .*pcie3"),
        ({"host": "slow"}, "host: 'slow', known: .*eager"),
        ({"num_devices": 0}, "num_devices: 0"),
        ({"hosts": "two"}, "hosts: 'two', known: one, per_device"),
        ({"slow": {8: 2.0}}, "rank: 8, devices: 8"),
        ({"slow": {1: 0.0}}, r"slow: \{1: 0.0\}"),
        ({"slow": {1: -2.0}}, r"slow: \{1: -2.0\}"),
    ],
)
def test_what_cannot_be_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        cluster(**options)


def test_copies_to_the_host_pass_over_pcie():
    """Over the link itself, where it is the path through the host."""
    assert cluster(2, "v100-pcie", "nvlink2").host_link.name == "pcie3"
    assert cluster(2, "v100-pcie", "pcie3").host_link.name == "pcie3"


def test_nodes():
    two = cluster(8, "v100", "nvlink2", ranks_per_node=4, network="ethernet25")
    assert [two.node_of(d) for d in range(8)] == [0] * 4 + [1] * 4
    assert two.link_between(1, 3).name == "nvlink2"
    assert two.link_between(3, 4).name == "ethernet25"
    assert two.link_between(None, 4) == two.host_link
    assert two.name == "v100, nvlink2, nodes of 4 on ethernet25"
    assert cluster(8).link_between(0, 7).name == "nvlink2"
    for name in ("ranks_per_node", "devices_per_switch"):
        with pytest.raises(ValueError, match=rf"\({name}: 0\)"):
            cluster(8, **{name: 0})


def test_switches_are_of_a_node():
    dgx = cluster(6, ranks_per_node=3, devices_per_switch=2)
    switches = [dgx.switch_of(d) for d in range(6)]
    assert switches == [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0), (1, 1)]
    assert {cluster(4).switch_of(d) for d in range(4)} == {(0, 0)}


def test_a_network_passes_no_host():
    with pytest.raises(ValueError, match=r"network: 'pcie3', peer_to_peer"):
        cluster(4, ranks_per_node=2, network="pcie3")
