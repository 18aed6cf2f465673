"""The command line: what it prints, what it writes, what it refuses."""

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial

import pytest
import torch

import dpkit
from dpkit.__main__ import main
from dpkit.calibration.fitted_presets import Calibration
from dpkit.calibration.predictions import Prediction
from dpkit.commands import calibrate as calibrate_command
from dpkit.commands import devices as devices_command
from dpkit.commands import step as step_command
from dpkit.commands.parser import refuse_output
from dpkit.sim.hardware import ACCELERATORS, HOSTS, LINKS, find
from dpkit.units import show_factor

FOUND = Calibration(
    ACCELERATORS["laptop-cpu"],
    HOSTS["eager"],
    LINKS["pcie3"],
    times={"view": [(1, 1e-6)]},
)
ROWS = [
    Prediction(
        "MLP",
        16,
        measured_seconds=2e-3,
        least_seconds=1.9e-3,
        predicted_seconds=1e-3,
    )
]


def refused(arguments, capsys, command=main, program="python -m dpkit"):
    """Return the one line that a command is refused with."""
    with pytest.raises(SystemExit) as end:
        command(arguments)
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(f"{program}: ")
    return line


@pytest.fixture
def quick(monkeypatch):
    """Let measuring take no time; return what was asked for."""
    asked = []

    def calibrate(device):
        asked.append(device)
        return FOUND

    def predictions(*presets_and_device):
        asked.append(presets_and_device)
        return ROWS

    monkeypatch.setattr(calibrate_command, "calibrate", calibrate)
    monkeypatch.setattr(calibrate_command, "machine_load", lambda: 0.0)
    monkeypatch.setattr(calibrate_command, "predictions", predictions)
    return asked


def rows_of(text):
    return {line[:17].strip(): line[17:] for line in text.splitlines()}


# -- devices


def test_devices_tells_what_there_is_and_what_is_used(capsys, monkeypatch):
    monkeypatch.delenv("DPKIT_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert main(["devices"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows["torch"] == torch.__version__
    assert rows["GPUs"] == "none"
    assert rows["simulated"] == "8 × v100, nvlink2, 16 GiB each, values on cpu"
    assert rows["DPKIT_DEVICES"] == "not set"
    assert rows["dpkit.devices(1)"] == "sim:0"
    assert rows["dpkit.devices(2)"] == "sim:0, sim:1"
    assert rows["dpkit.devices(8)"].endswith("sim:6, sim:7")


def test_devices_obeys_the_environment(capsys, monkeypatch):
    monkeypatch.setenv("DPKIT_DEVICES", "cpu")
    main(["devices"])
    rows = rows_of(capsys.readouterr().out)
    assert rows["DPKIT_DEVICES"] == "cpu"
    assert rows["dpkit.devices(2)"] == "cpu, cpu"
    monkeypatch.setenv("DPKIT_DEVICES", "abacus")
    assert main(["devices"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows["dpkit.devices(2)"].startswith("none: unknown kind of device")


def test_devices_tells_of_a_torch_that_was_not_tried(capsys, monkeypatch):
    monkeypatch.setenv("DPKIT_DEVICES", "sim")
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    assert main(["devices"]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows["torch"] == "2.9.1"
    for name in ("simulated", "dpkit.devices(1)", "dpkit.devices(8)"):
        assert rows[name].startswith("none: this torch is older than")
        assert "torch: 2.9.1" in rows[name]


class Driver:
    """A machine with GPUs, as torch tells of it."""

    @staticmethod
    def get_device_name(device):
        return f"GPU number {device.index}"

    @staticmethod
    def get_device_properties(device):
        class Properties:
            total_memory = 3 * 2**30

        return Properties


def test_devices_tells_of_gpus(capsys, monkeypatch, pretend_gpus):
    monkeypatch.setenv("DPKIT_DEVICES", "cpu")
    pretend_gpus(2)
    monkeypatch.setattr(torch, "get_device_module", lambda device: Driver)
    main(["devices"])
    gpus = rows_of(capsys.readouterr().out)["GPUs"]
    assert gpus == ("cuda:0 GPU number 0, 3 GiB; cuda:1 GPU number 1, 3 GiB")


def test_devices_tells_why_gpus_are_not_used(
    capsys, monkeypatch, pretend_gpus
):
    monkeypatch.setenv("DPKIT_DEVICES", "cpu")
    monkeypatch.setattr(devices_command, "why_unusable", lambda: "too old")
    for count, said in ((0, "none: too old"), (1, "; not used: too old")):
        pretend_gpus(count)
        monkeypatch.setattr(torch, "get_device_module", lambda device: Driver)
        main(["devices"])
        assert rows_of(capsys.readouterr().out)["GPUs"].endswith(said)


def test_the_module_runs():
    run = subprocess.run(
        [sys.executable, "-m", "dpkit", "devices"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.startswith("torch ")
    assert run.stderr == ""


# -- step


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"dpkit {dpkit.__version__}\n"


def test_a_step_on_three_devices_is_that_of_one(capsys):
    assert main(["step", "3"]) == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("on sim:0, sim:1, sim:2: ")
    assert first.endswith(", simulated (v100, nvlink2)")
    assert second.startswith("on sim:0 alone: ")
    assert third.startswith("the parameters are those of sim:0 alone")


def test_a_step_on_what_there_is(capsys, monkeypatch, pretend_gpus):
    """All GPUs; without one, two devices."""
    asked = []

    def devices(count):
        asked.append(count)
        return dpkit.devices(count, "cpu")

    monkeypatch.setattr(step_command, "devices", devices)
    for count in (0, 1, 3):
        pretend_gpus(count)
        assert main(["step"]) == 0
    assert asked == [2, 1, 3]


def test_a_step_that_is_wrong_is_refused(capsys, monkeypatch):
    """As if one device of two had trained on its own rows alone."""
    right = step_command.trained

    def wrong(net, X, y, used):
        half = len(X) // len(used)
        return right(net, X[:half], y[:half], used[:1])

    monkeypatch.setattr(step_command, "trained", wrong)
    with pytest.raises(SystemExit):
        main(["step", "2"])
    assert "the parameters differ (most: " in capsys.readouterr().err


def test_a_step_on_too_many_devices(capsys):
    with pytest.raises(SystemExit):
        main(["step", "9"])
    assert "too few sim devices" in capsys.readouterr().err


# -- calibrate


def test_calibrate_writes_presets_and_how_far_off_they_are(
    quick, tmp_path, capsys
):
    path = str(tmp_path / "mine.json")
    assert main(["calibrate", "--output", path]) == 0
    for table, preset in (
        (ACCELERATORS, FOUND.accelerator),
        (HOSTS, FOUND.host),
        (LINKS, FOUND.link),
    ):
        assert find(table, path) == preset
    facts = json.loads((tmp_path / "mine.json").read_text())["provenance"]
    assert facts["command"] == f"python -m dpkit calibrate --output {path}"
    assert facts["device"] == "cpu"
    assert facts["times"] == {"view": [[1, 1e-6]]}
    (row,) = facts["check"]
    assert (row["model"], row["predicted_seconds"]) == ("MLP", 1e-3)
    printed = capsys.readouterr()
    assert "÷2.00" in printed.out
    assert f'accelerator="{path}"' in printed.out
    assert printed.err == ""
    cpu = torch.device("cpu")
    assert quick == [cpu, (FOUND.accelerator, FOUND.host, FOUND.link, cpu)]


def test_what_it_says_to_type_works(quick, tmp_path, capsys):
    path = tmp_path / "mine.json"
    main(["calibrate", "--output", str(path), "--no-check"])
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("dpkit.sim.configure(")
    arguments = line.removeprefix("dpkit.sim.configure(").removesuffix(")")
    changes = dict(part.split("=") for part in arguments.split(", "))
    changes = {name: value.strip('"') for name, value in changes.items()}
    with dpkit.sim.machine(**changes):
        assert dpkit.sim.label() == "simulated (laptop-cpu, pcie3)"


def test_without_the_check_no_step_is_measured(quick, tmp_path, capsys):
    path = tmp_path / "mine.json"
    main(["calibrate", "--output", str(path), "--no-check"])
    assert len(quick) == 1
    assert "check" not in json.loads(path.read_text())["provenance"]
    assert "predicted" not in capsys.readouterr().out


def off_by(*factors):
    """Return what measures and simulates steps, and is off by these."""
    return lambda *presets_and_device: [
        Prediction(
            "MLP",
            16,
            measured_seconds=1e-3,
            least_seconds=1e-3,
            predicted_seconds=1e-3 * factor,
        )
        for factor in factors
    ]


@pytest.mark.parametrize("factors", [(0.4, 0.01, 1.1), (1.1, 9.0, 2.5)])
def test_presets_that_are_far_off_are_not_written(
    quick, tmp_path, monkeypatch, capsys, factors
):
    monkeypatch.setattr(calibrate_command, "predictions", off_by(*factors))
    path = tmp_path / "mine.json"
    path.write_text("what was there")
    with pytest.raises(SystemExit) as end:
        main(["calibrate", "--output", str(path)])
    assert end.value.code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["mine.json"]
    assert path.read_text() == "what was there"
    printed = capsys.readouterr()
    assert show_factor(factors[0]) in printed.out
    (line,) = printed.err.splitlines()
    assert line.startswith(
        "python -m dpkit: simulated steps are far off (median factor: "
        "2.50, at most: 2), so nothing is written"
    )
    main(["calibrate", "--output", str(path), "--force"])
    assert find(HOSTS, str(path)) == FOUND.host
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "python -m dpkit: warning: simulated steps are far off (median "
        "factor: 2.50, at most: 2)"
    )


def test_presets_that_are_off_by_less_are_written(
    quick, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(
        calibrate_command, "predictions", off_by(-0.5, -0.99, 0.1)
    )
    path = str(tmp_path / "mine.json")
    main(["calibrate", "--output", path])
    assert find(HOSTS, path) == FOUND.host
    assert capsys.readouterr().err == ""


def test_doubts_are_told_with_their_figures(
    quick, tmp_path, monkeypatch, capsys
):
    found = replace(FOUND, spread=0.5)
    monkeypatch.setattr(calibrate_command, "calibrate", lambda device: found)
    monkeypatch.setattr(calibrate_command, "machine_load", lambda: 3.21)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    path = tmp_path / "mine.json"
    main(["calibrate", "--no-check", "--output", str(path)])
    busy, unsteady = capsys.readouterr().err.splitlines()
    threads = torch.get_num_threads()
    assert f"(load: 3.2, threads: {threads}, cores: 2)" in busy
    assert "(median above the fastest: 50 %, quiet machines: below" in unsteady
    facts = json.loads(path.read_text())["provenance"]
    assert (facts["load"], facts["spread"]) == (3.21, 0.5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: command"),
        (["abacus"], "invalid choice: 'abacus'"),
        (["devices", "7"], "unrecognized arguments: 7"),
        (["calibrate", "--device"], "expected one argument"),
        (["calibrate", "--device", "sim"], "not a CPU or GPU .*'sim'"),
        (["calibrate", "--device", "meta"], "not a CPU or GPU .*'meta'"),
        (["calibrate", "--device", "a\nb"], "not a CPU or GPU"),
        (["calibrate", "--device", "cuda:99"], "there is no such GPU"),
    ],
)
def test_what_cannot_be_is_refused(arguments, words, quick, capsys):
    line = refused(arguments, capsys)
    assert re.search(words, line), line
    assert quick == []


COUNTS = "0", "-3", "inf", "nan", "1e3", "two", ""
NO_GIGABYTES = "inf", "nan", "0", "-1", "1e300", "1e-12", "much", ""
NO_FILES = {
    "{folder}": "Is a directory",
    "": "Is a directory",
    "/dev/full": "it is no regular file",
    "{folder}/none/file": "there is no folder for it",
}
NO_OPTIONS = [
    *(
        (command, option, value, f"argument {option}")
        for command, option in (
            ("check", "--ranks"),
            ("check", "--steps"),
            ("run", "--gpus"),
            ("run", "--steps"),
            ("torchrun", "--nproc-per-node"),
            ("torchrun", "--nnodes"),
            ("torchrun", "--steps"),
        )
        for value in COUNTS
    ),
    *(
        (command, option, "100000000", "(num_devices: 100000000, at most: 128")
        for command, option in (
            ("check", "--ranks"),
            ("run", "--gpus"),
            ("torchrun", "--nproc-per-node"),
            ("torchrun", "--nnodes"),
        )
    ),
    *(("run", "--memory", x, "argument --memory") for x in NO_GIGABYTES),
    *(
        ("run", option, value, f"cannot write ({option}: '{{value}}'): {why}")
        for option in ("--report", "--trace")
        for value, why in NO_FILES.items()
    ),
    *(
        (command, f"--{kind}", value, f"unknown {kind} ({kind}: '{{value}}'")
        for command, kind in (
            ("run", "accelerator"),
            ("run", "link"),
            ("run", "host"),
            ("torchrun", "network"),
        )
        for value in ("", "none", "{folder}")
    ),
    ("check", "--one", "'x", 'No closing quotation (--one: "\'x")'),
    ("check", "--ranks", "1", "nothing to compare (--ranks: 1)"),
]


@pytest.mark.parametrize(("command", "option", "value", "told"), NO_OPTIONS)
def test_what_an_option_cannot_be_is_refused_before_the_script_runs(
    command, option, value, told, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # as the command does
    script = tmp_path / "script.py"
    script.write_text("open('ran', 'w')")
    value = value.format(folder=tmp_path)
    with dpkit.sim.machine():
        line = refused([command, f"{option}={value}", str(script)], capsys)
    shown = "." if value == "" and "write" in told else value
    assert told.format(value=shown) in line
    if told.startswith("argument"):
        assert f"({value!r})" in line


def test_a_file_that_is_there_stays_until_there_is_something_to_write(
    tmp_path,
):
    kept = tmp_path / "report.html"
    kept.write_text("of the last run")
    refuse_output("--report", kept)
    assert kept.read_text() == "of the last run"
    assert list(tmp_path.iterdir()) == [kept]


def test_a_full_disk_is_found_before_the_run(tmp_path, capsys, monkeypatch):
    full = partial(open, "/dev/full", "wb", buffering=0)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: full())
    line = refused(tmp_path / "x", capsys, partial(refuse_output, "--trace"))
    assert "No space left on device" in line


def test_a_file_that_cannot_be_written_is_found_before_measuring(
    quick, tmp_path, capsys
):
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "file").touch()
    for name, words in (
        ("no/such/mine.json", "there is no folder for it"),
        ("folder.json", "Is a directory"),
        ("file/mine.json", "Not a directory"),
        ("mine.txt", "must end in .json"),
    ):
        path = str(tmp_path / name)
        line = refused(["calibrate", "--output", path], capsys)
        assert words in line
        assert f"'{path}'" in line
    assert quick == []


def test_looking_for_a_place_changes_nothing(quick, tmp_path, monkeypatch):
    def fail(device):
        raise KeyboardInterrupt

    monkeypatch.setattr(calibrate_command, "calibrate", fail)
    old = tmp_path / "old.json"
    old.write_text("what was there")
    for path in (old, tmp_path / "new.json"):
        with pytest.raises(KeyboardInterrupt):
            main(["calibrate", "--output", str(path)])
    assert [p.name for p in tmp_path.iterdir()] == ["old.json"]
    assert old.read_text() == "what was there"


def test_a_torch_that_was_not_tried_is_found_before_measuring(
    quick, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(torch, "__version__", "2.9.1")
    path = str(tmp_path / "mine.json")
    line = refused(["calibrate", "--output", path], capsys)
    assert "this torch is older than" in line
    assert "--no-check" in line
    assert quick == []
    assert main(["calibrate", "--output", path, "--no-check"]) == 0


def test_times_that_make_no_sense_are_told(
    quick, tmp_path, monkeypatch, capsys
):
    def calibrate(device):
        raise ValueError("times do not\ngrow with sizes")

    monkeypatch.setattr(calibrate_command, "calibrate", calibrate)
    path = str(tmp_path / "mine.json")
    line = refused(["calibrate", "--output", path], capsys)
    assert "times do not grow" in line


@pytest.mark.parametrize("words", [[], ["devices"], ["calibrate"]])
def test_help_is_given(words, capsys):
    with pytest.raises(SystemExit) as end:
        main([*words, "--help"])
    assert end.value.code == 0
    assert "python -m dpkit" in capsys.readouterr().out
