"""Presets in files: they come back as they were, and nothing else does."""

import json
from dataclasses import asdict, replace

import pytest

import dpkit
from dpkit.sim.devices.configuration import simulation
from dpkit.sim.hardware import (
    ACCELERATORS,
    HOSTS,
    LINKS,
    Accelerator,
    Host,
    Link,
    find,
)
from dpkit.sim.hardware.clusters import cluster
from dpkit.sim.hardware.presets import read_preset, save

TABLES = {"accelerator": ACCELERATORS, "host": HOSTS, "link": LINKS}
KINDS = {"accelerator": Accelerator, "host": Host, "link": Link}
DEFAULTS = (
    "fast_convolutions other_convolutions fused_attention "
    "library_step_seconds library_share sources synchronous compute_capability"
).split()
OWN_LINK = Link(
    "mine",
    bytes_per_second=1e9 / 3,
    achieved=0.7,
    latency_seconds=1e-7,
    peer_to_peer=False,
)
PRESETS = {
    "accelerator": replace(
        ACCELERATORS["a100"], name="mine", host_link=OWN_LINK
    ),
    "host": replace(HOSTS["eager"], name="mine", launch_seconds=1e-6 / 3),
    "link": OWN_LINK,
}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.json"
    save(path, **PRESETS, provenance={"date": "today"})
    return str(path)


def rewrite(path, change):
    """Change what a file holds."""
    with open(path) as file:
        content = json.load(file)
    change(content)
    with open(path, "w") as file:
        json.dump(content, file)


@pytest.mark.parametrize("part", TABLES)
def test_every_preset_comes_back(part, tmp_path):
    path = tmp_path / "one.json"
    for preset in TABLES[part].values():
        save(path, **{**PRESETS, part: preset}, provenance={})
        found = read_preset(str(path), KINDS[part])
        assert found == preset
        assert type(found) is KINDS[part]


def test_a_preset_inside_another_comes_back(path):
    found = find(ACCELERATORS, path)
    assert found == PRESETS["accelerator"]
    assert found.host_link == OWN_LINK
    assert cluster(1, path, "nvlink2").host_link == OWN_LINK


def test_provenance_is_kept(path):
    with open(path) as file:
        assert json.load(file)["provenance"] == {"date": "today"}


def test_configure_takes_each_its_part(path):
    with dpkit.sim.machine(accelerator=path, host=path, link=path):
        found = simulation.clock.cluster
        assert found.accelerator == PRESETS["accelerator"]
        assert found.host == PRESETS["host"]
        assert found.link == PRESETS["link"]
        assert dpkit.sim.label() == "simulated (mine, mine)"
    with dpkit.sim.machine(host=path):
        assert dpkit.sim.label() == "simulated (v100, nvlink2)"


def test_a_name_that_is_known_is_no_file(path, monkeypatch):
    monkeypatch.setitem(LINKS, path, LINKS["pcie3"])
    assert find(LINKS, path) is LINKS["pcie3"]


def refusal(path, part):
    with pytest.raises(ValueError, match="file") as caught:
        find(TABLES[part], str(path))
    assert f"({part}: {str(path)!r})" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("part", TABLES)
def test_a_file_that_is_no_preset_is_refused(part, tmp_path):
    path = tmp_path / "other.json"
    assert "there is no such file" in refusal(path, part)
    path.mkdir()
    assert "cannot read the file" in refusal(path, part)
    path.rmdir()
    path.write_text("{not JSON")
    assert "the file is not JSON" in refusal(path, part)
    path.write_bytes(b"\xff\xfe{}")
    assert "the file is not JSON" in refusal(path, part)
    path.write_text("[" * 100_000)
    assert "the file is nested too deep" in refusal(path, part)
    path.write_text("[1, 2]")
    assert "the file is not one of presets" in refusal(path, part)
    path.write_text("{}")
    assert "it has: nothing" in refusal(path, part)
    path.write_text('{"provenance": {}}')
    assert "it has: provenance" in refusal(path, part)


@pytest.mark.parametrize("part", TABLES)
@pytest.mark.parametrize("value", [None, [], 3, "v100", {}])
def test_a_part_that_is_no_preset_is_refused(part, value, path):
    rewrite(path, lambda content: content.update({part: value}))
    words = refusal(path, part)
    assert "this part of the file is not a preset" in words
    assert words.endswith(("it holds no fields", "missing field (name)"))


@pytest.mark.parametrize("part", TABLES)
def test_each_field_must_be_there_and_no_other(part, path):
    for name in asdict(PRESETS[part]):
        if name in DEFAULTS:
            continue
        save(path, **PRESETS, provenance={})
        rewrite(path, lambda content, name=name: content[part].pop(name))
        assert f"missing field ({name})" in refusal(path, part)
    save(path, **PRESETS, provenance={})
    rewrite(path, lambda content: content[part].update(colour="red"))
    assert "unknown field (colour)" in refusal(path, part)


@pytest.mark.parametrize(
    ("part", "name", "value", "words"),
    [
        ("link", "bytes_per_second", "1e9", "a number was expected"),
        ("link", "bytes_per_second", None, "a number was expected"),
        ("link", "bytes_per_second", True, "a number was expected"),
        ("link", "bytes_per_second", -1.0, "a rate must be positive"),
        ("link", "peer_to_peer", 1, "true or false was"),
        ("link", "name", 5, "a text was expected"),
        ("link", "sources", [], "a table was expected"),
        ("link", "sources", {"achieved": 1}, r"sources['achieved']"),
        ("host", "launch_seconds", [], "a number was expected"),
        ("host", "launch_seconds", float("nan"), "finite (launch_seconds: n"),
        ("host", "launch_seconds", float("inf"), "finite (launch_seconds: i"),
        ("link", "bytes_per_second", float("inf"), "finite (bytes_per_sec"),
        ("accelerator", "memory_bytes", 1.5, "a whole number was"),
        ("accelerator", "flops_per_second", 1e12, "a table was expected"),
        ("accelerator", "flops_per_second", {"float32": "1"}, "['float32']"),
        ("accelerator", "flops_per_second", {"int8": 1.0}, "unknown dtype"),
        ("accelerator", "fast_convolutions", {"int8": 1.0}, "unknown dtype"),
        ("accelerator", "other_convolutions", {"float32": 0}, "a multiple"),
        ("accelerator", "fused_attention", {"flash2": 0.5}, "unknown fused"),
        ("accelerator", "fused_attention", {"flash": 1.1}, "at most one"),
        ("accelerator", "host_link", 3, "a text was expected"),
        ("accelerator", "host_link", {"name": "x"}, "missing field"),
    ],
)
def test_a_value_that_cannot_be_is_refused(part, name, value, words, path):
    rewrite(path, lambda content: content[part].update({name: value}))
    message = refusal(path, part)
    assert "this part of the file is not a preset" in message
    assert words in message


def test_a_whole_number_is_a_rate_too(path):
    rewrite(path, lambda c: c["link"].update(bytes_per_second=1000))
    assert find(LINKS, path).bytes_per_second == 1000


def test_what_cannot_be_written_leaves_what_was_there(path, tmp_path):
    before = (tmp_path / "mine.json").read_text()
    with pytest.raises(TypeError):
        save(path, **PRESETS, provenance={"date": object()})
    assert (tmp_path / "mine.json").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["mine.json"]


def test_a_disk_that_is_full_leaves_what_was_there(
    path, tmp_path, monkeypatch
):
    before = (tmp_path / "mine.json").read_text()

    def write_half(self, text, encoding=None):
        with self.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", write_half)
    with pytest.raises(OSError, match="No space left"):
        save(path, **PRESETS, provenance={})
    assert (tmp_path / "mine.json").read_text() == before
    assert [p.name for p in tmp_path.iterdir()] == ["mine.json"]


def test_a_place_that_is_not_there_is_not_written(tmp_path):
    with pytest.raises(FileNotFoundError):
        save(tmp_path / "no" / "x.json", **PRESETS, provenance={})
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(IsADirectoryError):
        save(tmp_path / "folder.json", **PRESETS, provenance={})
    assert [p.name for p in tmp_path.iterdir()] == ["folder.json"]
