"""`make gpu-report`: limits of time, what is left, and what is told."""

import itertools
import os
import signal
import subprocess
import sys
import time

import gpu_report
import psutil
import pytest
from gpu_report_parts import limited, text
from gpu_report_parts.plan import PAIRS, ROOT, Part, plan
from gpu_report_parts.records import CUT, FAILED, LATE, PASSED, Records

FACTS = {"date": "2026-11-22", "gpus": ["H200"], "torch": "2.15"}
SAYS = "import sys; print('said', sys.argv[1])"
# Starts one in a session of its own, which starts another and ends.
STARTS = """
import subprocess, sys, time
_, generation, file = sys.argv
with open(file, "a") as told:
    print("here", file=told)
if generation != "grandchild":
    next = "grandchild" if generation == "child" else "child"
    words = [sys.executable, __file__, next, file]
    subprocess.Popen(words, start_new_session=True)
if generation != "child":
    time.sleep(600)
"""


KILLED = """
import os, signal

def test_quick():
    pass

def test_at_which_it_is_cut():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def program(source, *words, name="part", **changes):
    return Part(name, (sys.executable, "-c", source, *words), 60, **changes)


@pytest.fixture
def part():
    return program(SAYS, "it")


@pytest.fixture
def records(tmp_path):
    return Records(tmp_path, "one H200", "0123abcd")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Return a call of given parts, in one folder."""
    monkeypatch.setattr(gpu_report, "LEAST_SECONDS", 0)

    def make(*parts, limit=60.0, devices_in_place=0):
        monkeypatch.setattr(gpu_report, "plan", lambda *args: list(parts))
        folder = tmp_path / "report"
        end = time.monotonic() + limit
        return gpu_report.Call(FACTS, folder, devices_in_place, end)

    return make


# A limit of time.


def test_a_program_that_ends_by_itself(part, tmp_path):
    log = tmp_path / "log"
    ended = limited.run(part.command, log, 60, "a")
    assert ended.status == 0
    assert log.read_text() == "said it\n"
    wrong = [sys.executable, "-c", "import nothing_of_that_name"]
    assert limited.run(wrong, log, 60, "a").status == 1
    assert "nothing_of_that_name" in log.read_text()  # its errors too


def test_a_program_past_its_limit_may_say_where_it_was(tmp_path, monkeypatch):
    """The limit comes when it has begun, which may take a while."""
    log = tmp_path / "log"
    wait = limited._wait

    def wait_until_begun(process, seconds):
        while not log.read_text():
            time.sleep(0.01)
        return wait(process, seconds)

    monkeypatch.setattr(limited, "_wait", wait_until_begun)
    words = [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"]
    assert limited.run(words, log, 0.1, "a").status is None
    said = log.read_text()
    assert said.startswith("1\n")
    assert said.endswith("KeyboardInterrupt\n")


def test_a_program_that_only_waits_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(limited, "LOOK_SECONDS", 0.05)
    limit = limited.CpuLimit(600, idle_seconds=0.5)
    ended = limited.run(["sleep", "3600"], tmp_path / "log", limit, "a")
    assert ended.status is None


def test_a_program_that_gets_little_of_the_cores_goes_on(
    tmp_path, monkeypatch
):
    """However long it takes: each third look finds that it has computed."""
    told = tmp_path / "told"
    used = []
    clock = itertools.count()

    def use_a_little(mark):
        used.append(0.5 if len(used) % 3 == 0 else 0.0)
        if len(used) == 40:
            told.touch()
        return sum(used)

    monkeypatch.setattr(limited, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(limited.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(limited, "cpu_seconds", use_a_little)
    words = ["bash", "-c", f"until [ -e {told} ]; do sleep 0.01; done"]
    limit = limited.CpuLimit(600, idle_seconds=30)
    assert limited.run(words, tmp_path / "log", limit, "a").status == 0
    assert len(used) >= 40


def test_what_its_processes_have_used_is_counted(tmp_path, monkeypatch):
    """Also of those that have ended, where their parent has seen it."""
    monkeypatch.setattr(limited, "LOOK_SECONDS", 0.05)
    burn = "import time; end = time.process_time() + 0.3"
    burn += "\nwhile time.process_time() < end: pass"
    source = f"{sys.executable} -c '{burn}'; sleep 3600"
    limit = limited.CpuLimit(0.25, idle_seconds=1e9)
    words = ["bash", "-c", source]
    assert limited.run(words, tmp_path / "log", limit, "a").status is None


def test_what_it_has_started_is_ended_with_it(
    tmp_path, monkeypatch, is_running
):
    """Also in sessions of their own, and by one that has ended itself."""
    monkeypatch.setattr(limited, "GRACE_SECONDS", 0.1)
    file, told = tmp_path / "starts.py", tmp_path / "told"
    file.write_text(STARTS)
    told.touch()
    seen = []

    def wait(process, seconds):
        while told.read_text().count("here") < 3:
            assert process.poll() is None
            time.sleep(0.01)
        seen.extend(limited.marked("of this test"))

    monkeypatch.setattr(limited, "_wait", wait)
    words = [sys.executable, file, "parent", told]
    ended = limited.run(words, tmp_path / "log", 60, "of this test")
    assert ended.status is None
    assert len({process.pid for process in seen}) >= 2
    assert not limited.marked("of this test")
    assert not any(is_running(process.pid) for process in seen)


def test_others_are_left_alone(part, tmp_path):
    words = [sys.executable, "-c", "input()"]
    other = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        env=os.environ | {limited.MARK: "of another"},
    )
    limited.run(part.command, tmp_path / "log", 60, "of this")
    assert other.poll() is None
    assert psutil.Process(other.pid) in limited.marked("of an")
    other.communicate(b"\n")


def test_a_program_that_another_kills_has_not_ended_well(
    tmp_path, monkeypatch
):
    def wait(process, seconds):
        while not limited.marked("killed/"):
            assert process.poll() is None
        limited.end_all("killed/")
        return process.wait()

    monkeypatch.setattr(limited, "_wait", wait)
    words = [sys.executable, "-c", "while True: pass"]
    ended = limited.run(words, tmp_path / "log", 60, "killed/")
    assert ended.status == -signal.SIGKILL


# What is run, and in which order.


def names(parts):
    return [part.name for part in parts]


def test_the_most_valuable_comes_first(tmp_path):
    chapters = [f"chapter-{p.stem}" for p in ROOT.glob("book/*.ipynb")]
    found = names(plan(tmp_path, 1))
    first = ["machine", "cuda-tests", "comparisons", "resident", *PAIRS]
    rates = ["calibrate", "gpu_steps", "gpu_operators"]
    assert found[: len(first)] == first
    assert sorted(found[len(first) : -len(rates)]) == sorted(chapters)
    assert found[-len(rates) :] == rates
    assert len(set(found)) == len(found)


def test_ten_minutes_are_enough_to_come_to_the_chapters(tmp_path):
    parts = [p for p in plan(tmp_path, 1) if p.num_gpus == 1]
    before = itertools.takewhile(lambda part: part.alone, parts)
    assert sum(part.limit for part in before) < gpu_report.LIMIT * 2 / 3
    assert all(part.limit < 240 for part in parts if part.alone)
    assert gpu_report.LIMIT + limited.GRACE_SECONDS < 600


def test_a_rehearsal_sees_the_cpu_where_a_gpu_would_be(tmp_path):
    real = {part.name: part.command for part in plan(tmp_path, 2)}
    rehearsed = {part.name: part.command for part in plan(tmp_path, 2, 2)}
    for name in ("gpu_steps", "gpu_operators"):  # too large for a CPU
        assert name not in rehearsed
        real.pop(name)
    assert list(real) == list(rehearsed)
    for name in ("machine", "calibrate", "resident", *PAIRS):
        assert "gpu_report_parts.stand_in" not in real[name]
        assert "gpu_report_parts.stand_in" in rehearsed[name]
    assert "cuda:0" in real["calibrate"]
    assert "cuda:0" not in rehearsed["calibrate"]
    assert "cpu" in rehearsed["calibrate"]


def test_what_is_done_is_not_run_again(records):
    parts = [program("", name=name) for name in "abcde"]
    for part, outcome in zip(parts, (PASSED, FAILED, LATE, CUT)):
        records.save(part, outcome, 1.0)
    assert names(records.left(parts, 1)) == ["d", "e"]
    assert names(records.left(parts, 1, ["failed"])) == list("bcde")
    assert names(records.left(parts, 1, ["a", "c"])) == list("acde")
    assert names(records.left(parts, 1, ["all"])) == list("abcde")
    pair = program("", name="pair", num_gpus=2)
    assert records.left([pair], 1, ["all"]) == []
    assert records.left([pair], 2) == [pair]


def test_on_another_machine_all_is_run_again(records, part):
    records.save(part, PASSED, 1.0)
    assert records.left([part], 1) == []
    elsewhere = Records(records.folder, "one A100", records.code)
    assert elsewhere.left([part], 1) == [part]


def test_an_unknown_part(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", "--again", "calibrate", "wraper"])
    with pytest.raises(SystemExit):
        gpu_report.parse()
    assert "unknown parts (--again: wraper, known: " in capsys.readouterr().err


# What is told.


def test_a_rehearsal_says_so_on_its_first_line(records, part):
    told = text.report(FACTS, [part], records, stand_in=2).splitlines()
    assert told[0] == (
        "# A rehearsal on the CPU: no GPU was there (devices that stood in: "
        "2, 2026-11-22)"
    )
    told = text.report(FACTS, [part], records).splitlines()
    assert told[0] == "# GPU report: 1 × H200, 2026-11-22"


def test_every_part_has_a_row(records, part):
    others = [program("", name="b"), program("", name="c", num_gpus=2)]
    records.save(part, PASSED, 2.4)
    records.log(part).write_text("one | two\n\x1b[31mlast | line\x1b[0m\n\n")
    told = text.report(FACTS, [part, *others], records)
    rows = [line for line in told.splitlines() if line.startswith("| ")][-3:]
    assert rows == [
        "| part | passed | 2 | `last \\| line` |",
        "| b | not run yet |  |  |",
        "| c | needs 2 GPUs (there: 1) |  |  |",
    ]
    assert told.count("<details") == 1


def test_what_did_not_pass_is_unfolded(records, part):
    for outcome, opening in ((PASSED, "<details>"), (LATE, "<details open>")):
        records.save(part, outcome, 60.0)
        told = text.report(FACTS, [part], records)
        head = f"{opening}<summary>part: {outcome}, 60 s</summary>"
        assert head in told.splitlines()


def test_results_are_told_whole_and_long_outputs_are_cut(records):
    result = records.folder / "gpu.json"
    part = program("", results=(result, records.folder / "not written"))
    records.save(part, PASSED, 1.0)
    lines = [f"line {number}." for number in range(1000)]
    result.write_text("\n".join(lines))
    records.log(part).write_text("\n".join(lines))
    told = text.report(FACTS, [part], records)
    assert told.count("line 0.") == 1
    assert told.count("line 999.") == 3  # in the table too
    assert f"… {1000 - text.NUM_LINES} lines more in part.log" in told


def test_of_a_progress_bar_its_end_is_told():
    assert text.plain(f"10 %\r20 %\rdone\n{ROOT}/tests: 1  \n") == (
        "done\ntests: 1"
    )


def test_code_that_has_changed_since_is_told(records, part):
    records.save(part, PASSED, 1.0)
    now = Records(records.folder, "one H200", "another")
    told = text.report(FACTS, [part], now)
    assert "passed, with code that has changed since (0123abcd)" in told
    assert "changed since" not in text.report(FACTS, [part], records)


# A call.


def test_the_report_is_written_after_each_part(call, tmp_path):
    """The second part finds the first one's outcome in it."""
    path = tmp_path / "report.md"
    reads = f"print('read', 'first | passed' in open({str(path)!r}).read())"
    parts = [program(SAYS, "1", name="first"), program(reads, name="second")]
    made = call(*parts)
    made.run(parts, lanes=1)
    assert made.path == path
    assert made.records.log(parts[1]).read_text() == "read True\n"
    assert "| second | passed |" in path.read_text()


def test_a_part_that_fails_or_is_late_stops_no_other(call):
    parts = [
        program("raise SystemExit(3)", name="fails"),
        Part("late", (sys.executable, "-c", "while True: pass"), 0.2),
        program(SAYS, "it", name="last"),
    ]
    made = call(*parts)
    made.run(parts, lanes=1)
    outcomes = [made.records.find(part).outcome for part in parts]
    assert outcomes == [FAILED, LATE, PASSED]


def test_what_the_time_of_a_call_does_not_reach_is_left(call, monkeypatch):
    """What was cut off is run by the next call, and what was not begun."""
    parts = [
        program("while True: pass", name="cut"),
        program(SAYS, "it", name="not begun"),
    ]
    made = call(*parts, limit=50.0)
    run = gpu_report.run

    def run_out(words, log, limit, *others):
        made._end = time.monotonic()
        return run(words, log, 0.1, *others)

    monkeypatch.setattr(gpu_report, "run", run_out)
    made.run(parts, lanes=1)
    assert made.records.find(parts[0]).outcome == CUT
    assert made.records.find(parts[1]) is None
    assert call(*parts).records.left(parts, 1) == parts


def test_parts_beside_each_other(call, tmp_path):
    """Each waits for the other one's file."""
    source = (
        "import sys, pathlib; folder, mine, other = sys.argv[1:]\n"
        "pathlib.Path(folder, mine).touch()\n"
        "while not pathlib.Path(folder, other).exists(): pass"
    )
    parts = [
        program(source, str(tmp_path), *pair, name=pair[0], alone=False)
        for pair in ("ab", "ba")
    ]
    made = call(*parts)
    made.run(parts, lanes=2)
    outcomes = [made.records.find(part).outcome for part in parts]
    assert outcomes == [PASSED, PASSED]


def test_a_part_whose_name_begins_with_the_name_of_another(call, tmp_path):
    """It fails after the other one has passed, which ends its processes."""
    short, long = (
        f"chapter-data-parallelism{end}" for end in ("", "-concise")
    )
    source = (
        "import sys, pathlib; report = pathlib.Path(sys.argv[1])\n"
        f"while '| {short} | passed |' not in report.read_text(): pass\n"
        "print('saw it', flush=True)\n"
        "raise SystemExit(3)"
    )
    parts = [
        program(SAYS, "it", name=short, alone=False),
        program(source, str(tmp_path / "report.md"), name=long, alone=False),
    ]
    assert {short, long} <= set(names(plan(tmp_path, 1)))
    made = call(*parts)
    made.run(parts, lanes=2)
    outcomes = [made.records.find(part).outcome for part in parts]
    assert outcomes == [PASSED, FAILED]
    assert made.records.log(parts[1]).read_text() == "saw it\n"


def test_an_interrupted_call_leaves_a_report(call, monkeypatch):
    parts = [
        program(SAYS, "it", name="first", alone=False),
        program("while True: pass", name="waits", alone=False),
        program(SAYS, "it", name="next", alone=False),
    ]
    made = call(*parts)
    run = gpu_report.run

    def interrupted(words, *others):
        if words == parts[1].command:
            signal.raise_signal(signal.SIGINT)
        return run(words, *others)

    monkeypatch.setattr(gpu_report, "run", interrupted)
    monkeypatch.setattr(gpu_report, "ThreadPoolExecutor", Here)
    with pytest.raises(KeyboardInterrupt):
        made.run(parts, lanes=1)
    assert "| first | passed |" in made.path.read_text()
    assert "| next | not run yet |" in made.path.read_text()


class Here:
    """A pool that runs in this thread."""

    def __init__(self, num_threads):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def map(self, function, items):
        return map(function, items)


# A rehearsal.


def test_the_stand_in_reaches_those_who_hold_the_function_by_name():
    script = (
        "import sys; from gpu_report_parts import stand_in\n"
        "stand_in.stand_in(2)\n"
        "import dpkit; from dpkit import accelerator, machine\n"
        "print(dpkit.devices(2, kind='cuda'))\n"
        "assert machine.real_devices is accelerator.real_devices"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=gpu_report.environment(2),
    )
    assert done.stdout == ("[device(type='cpu'), device(type='cpu')]\n"), (
        done.stderr
    )


def test_without_a_gpu_it_says_how_to_rehearse(monkeypatch, capsys, tmp_path):
    facts = FACTS | {"gpus": []}
    monkeypatch.setattr(gpu_report, "read_facts", lambda count: facts)
    monkeypatch.setattr(sys, "argv", ["", "--folder", str(tmp_path)])
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    assert gpu_report.main() == 1
    assert "make gpu-report STAND_IN=1" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_tests_that_are_cut_are_named(tmp_path):
    """The last line of the log alone would say that no test was run."""
    (part,) = (p for p in plan(tmp_path, 1) if p.name == "cuda-tests")
    (tmp_path / "test_both.py").write_text(KILLED)
    left_out = "-m", "cuda", *map(str, (ROOT / "tests").iterdir())
    words = [word for word in part.command if word not in left_out]
    words = [words[0], "-m", *words[1:], "-n", "0", str(tmp_path)]
    log, environment = tmp_path / "log", gpu_report.environment(0)
    limited.run(words, log, 60, "test-cut/", environment, tmp_path)
    assert "test_both.py::test_quick PASSED" in log.read_text("utf-8")
