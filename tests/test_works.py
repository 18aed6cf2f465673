"""Tests of dpkit.ranks.works: who waits for an operation, and when."""

from dpkit.lab.overlap.engines import data_parallel_pair


def overlapping(timeline, device):
    """Return the seconds in which a device computes while it sends."""
    mine = [span for span in timeline.spans if span.device == device]
    sent = [s for s in mine if s.name.startswith("copy to")]
    computed = [s for s in mine if s.stream == "compute"]
    both = (
        min(a.end, b.end) - max(a.start, b.start)
        for a in sent
        for b in computed
    )
    return sum(max(0.0, seconds) for seconds in both)


def test_pytorch_s_reducer_sends_beside_backward():
    """Its future is done at once; the stream waits when backward ends."""
    pair = data_parallel_pair(backing="meta")
    ours, theirs = (
        overlapping(step.timeline, "sim:0")
        for step in (pair.ours, pair.theirs)
    )
    assert theirs > 0.9 * ours > 0
