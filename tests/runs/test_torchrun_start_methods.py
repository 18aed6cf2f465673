"""A script on ranks chooses how the processes that it starts begin."""

import sys

import pytest

from tests.runs.running_scripts import torchrun

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="ranks are forked on Linux"
)

SCRIPT = """
import multiprocessing


def tell(queue):
    queue.put(multiprocessing.get_start_method())


if __name__ == "__main__":
    assert multiprocessing.get_start_method(allow_none=True) is None
    multiprocessing.set_start_method("spawn")
    queue = multiprocessing.Queue()
    process = multiprocessing.Process(target=tell, args=(queue,))
    process.start()
    print(f"began by {queue.get()}")
    process.join()
"""


@pytest.mark.slow
def test_a_rank_may_set_the_start_method(tmp_path):
    text = torchrun(tmp_path, "--nproc-per-node", "2", script=SCRIPT)
    assert text.count("began by spawn") == 2
