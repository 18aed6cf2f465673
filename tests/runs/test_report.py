"""Each row of a report, read from a run that is made up, with no two alike."""

import re
from html import unescape
from types import SimpleNamespace

import pytest

from dpkit.runs.torchrun.facts import KindOfCalls, RankFacts, StepEnd
from dpkit.runs.torchrun.html_report import _last_step, write_page
from dpkit.runs.torchrun.launching import RankReport, Run
from dpkit.runs.torchrun.report import report
from dpkit.sim.clock.record import SECOND, Block, Span
from dpkit.sim.timeline.timeline import Timeline

KIB = 1024


def steps(*ends):
    """Return the ends of steps, from pairs of seconds and a peak in KiB."""
    return [StepEnd(s * SECOND, peak * KIB) for s, peak in ends]


# On GPU 0 most memory is taken for a moment, in step 2; on GPU 1 at the end.
FACTS = [
    RankFacts(
        steps((1, 1), (3, 3), (6, 3)),
        peak_bytes=3 * KIB,
        blocks=[
            Block("sim:0", KIB, "parameters", allocated=-1),
            Block("sim:0", 2 * KIB, "activations", allocated=0, freed=1),
            Block("sim:0", KIB, "gradients", allocated=2),
        ],
        traffic=[
            KindOfCalls("allreduce", (0, 1), 6, 6000),
            KindOfCalls("message", (), 3, 60),
        ],
    ),
    RankFacts(
        steps((2, 1), (4, 1), (8, 1)),
        peak_bytes=6 * KIB,
        blocks=[
            Block("sim:1", KIB, "parameters", allocated=-1),
            Block("sim:1", 5 * KIB, "optimizer state", allocated=3),
        ],
        traffic=[KindOfCalls("broadcast", (0, 1), 9, 900)],
    ),
]
SPANS = [
    # Before the first step: it counts nowhere.
    Span("sim:0", "compute", "early", "compute", 0, 1),
    Span("sim:0", "compute", "mm", "compute", 1, 2),
    Span("sim:0", "sends", "copy to sim:1", "copy", 1.75, 2.75, num_bytes=70),
    Span("sim:0", "compute", "add", "compute", 4, 4.5),
    Span("sim:0", "compute", "mm", "compute", 4.5, 5),
    Span("sim:1", "compute", "mm", "compute", 2, 5),
    Span("host:0", "python", "add", "launch", 2.75, 4),
    Span("host:1", "python", "mm", "launch", 5, 8),
]


def of_rank(facts):
    return RankReport(facts, {}, {}, {}, [], {})


def made(spans=SPANS, facts=FACTS, **others):
    """Return a run of two GPUs."""
    timeline = Timeline(spans=spans, label="made up")
    return Run(timeline, list(map(of_rank, facts)), **others)


def rows(done, title):
    """Return the words of each line of a section, after its heading."""
    (text,) = [str(s) for s in report(done) if s.title.startswith(title)]
    _, *lines = text.splitlines()
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


def test_memory():
    """The most that was taken, and for what at that moment."""
    (heads, *found) = rows(made(), "Memory")
    names = "parameters", "gradients", "activations", "optimizer state"
    assert heads == ["GPU", "peak", "first in step", *names]
    assert found == [  # an empty cell leaves nothing
        ["0", "3 KiB", "2", "1 KiB", "0 B", "2 KiB"],
        ["1", "6 KiB", "after them", "1 KiB", "5 KiB"],
    ]


def test_steps():
    """Four: of 2, 3, 2 and 4 s. GPU 0 waits 1.25 s of 5 for its launches."""
    assert rows(made(), "A step of the optimizer, one of 3") == [
        ["2.5 s (median; from 2 s to 4 s)"],
        [
            "about 1.875 s if launches took no time "
            "(GPUs wait for them for 25%)"
        ],
    ]


def test_where_the_time_goes():
    """Of the 5 s of GPU 0 from its first step to its last, and the 6 of 1."""
    assert rows(made(), "Where the time goes, after the first step")[1:] == [
        ["0", "40%", "20%", "5%", "45%"],
        ["1", "50%", "0%", "0%", "50%"],
    ]


def test_what_takes_longest():
    assert rows(made(), "What GPU 0 spends most time on")[1:] == [
        ["mm", "2", "30%"],
        ["copy to sim:1", "1", "20%"],
        ["add", "1", "10%"],
    ]


def test_what_is_sent():
    """By rank 0, in three steps."""
    assert rows(made(), "What is sent")[1:] == [
        ["allreduce", "2", "6", "6 kB", "2.00", "2 kB"],
        ["message", "2", "3", "60 B", "1.00", "20 B"],
    ]


def came(**seconds):
    """Return when ranks came to a collective."""
    return {
        int(rank[1:]): SimpleNamespace(mark=round(s * SECOND))
        for rank, s in seconds.items()
    }


def test_who_is_waited_for():
    """For rank 1 two others wait 3 and 4 s; for rank 0 once 0.5 s."""
    arrivals = {
        ("a", (0, 1, 2)): came(r0=2, r1=5, r2=1),
        ("b", (0, 1, 2)): came(r0=1.5, r1=1.5, r2=1),
        ("c", (0, 2)): came(r0=2, r2=2),
    }
    assert rows(made(arrivals=arrivals), "Who the ranks wait for") == [
        [
            "most for rank 1: it came last to 1 of 3, and the others waited "
            "7 s for it, added up"
        ]
    ]
    same = {"a": came(r0=1, r1=1)}
    titles = [section.title for section in report(made(arrivals=same))]
    assert not any("wait for" in title for title in titles)


# -- one process with two GPUs: their steps end together

ONE_PROCESS = [
    Span("host", "python", "mm", "launch", 0.5, 1.5),
    Span("host", "python", "mm", "launch", 2, 3.5),
    Span("host", "python", "synchronize", "wait", 3.5, 4.5),
    Span("sim:0", "compute", "mm", "compute", 1, 2),
    Span("sim:1", "compute", "mm", "compute", 1, 2.5),
    Span("sim:0", "compute", "mm", "compute", 3, 5),
    Span("sim:1", "compute", "mm", "compute", 3, 5.5),
    Span("sim:0", "in", "copy from host", "copy", 1, 2, num_bytes=30),
    Span("sim:1", "in", "copy from sim:0", "copy", 2, 3, num_bytes=600),
    Span("sim:1", "in", "copy from sim:0", "copy", 3, 4, num_bytes=300),
    Span("sim:0", "out", "copy to sim:1", "copy", 2, 3, num_bytes=600),
    Span("sim:0", "in", "copy to host", "copy", 5, 6, num_bytes=7),
    Span("sim:0", "in", "copy to host", "copy", 6, 7, num_bytes=2),
]


def one_process():
    facts = [one._replace(steps=FACTS[0].steps) for one in FACTS]
    return made(ONE_PROCESS, facts, is_one_process=True)


def test_what_one_process_does():
    """In 5 s it issues for 0.5 and 1.5, and waits for 1."""
    first, *_ = rows(one_process(), "Where the time goes")
    assert first == [
        "the process issues work for 40% of it, and waits for GPUs for 20%"
    ]


def test_what_one_process_copies():
    """Each copy once, where it arrives; in three steps."""
    assert rows(one_process(), "What is sent")[1:] == [
        ["the host", "GPU 0", "1", "30 B", "0.333", "10 B"],
        ["GPU 0", "the host", "2", "9 B", "0.667", "3 B"],
        ["GPU 0", "GPU 1", "2", "900 B", "0.667", "300 B"],
    ]


def test_which_gpu_the_others_wait_for():
    """GPU 1 computes 0.5 s longer in either step."""
    assert rows(one_process(), "Which GPU the others wait for") == [
        [
            "most for GPU 1: it computes longest in 2 of 2 steps; the other "
            "GPUs compute 1 s less, added up"
        ]
    ]


# -- the page


@pytest.mark.parametrize("make", [made, one_process])
def test_the_page_has_every_cell_of_the_report(tmp_path, make):
    """And for each GPU its memory, with the numbers of its own."""
    path = tmp_path / "page.html"
    write_page(make(), path, "train.py")
    page = unescape(path.read_text())
    for section in report(make()):
        beginning = page.index(f"<h2>{section.title}")
        part = page[beginning:].partition("<h2>")[2].partition("<h2>")[0]
        text = " ".join(re.sub("<[^>]*>", " ", part).split())
        for line in section.lines:
            assert line in text
        if section.table is not None:
            for line in str(section.table).splitlines():
                assert " ".join(line.split()) in text
    pictures = page.split("<h2>Memory, in the order of issue")[1]
    zero, one = re.findall("<svg.*?</svg>", pictures, re.DOTALL)
    assert ">activations<" in zero
    assert ">activations<" not in one
    assert ">optimizer state<" in one


def test_the_page_draws_the_last_step():
    """From its beginning on, and nothing of the steps before."""
    found = [
        (span.device, span.name, span.start, span.end)
        for span in _last_step(made(), [0, 1])
        if span.device in ("sim:0", "host:0")
    ]
    assert found == [
        ("sim:0", "add", 1.0, 1.5),
        ("sim:0", "mm", 1.5, 2.0),
        ("host:0", "add", 0.0, 1.0),
    ]
