"""actionlint, which `make lint` runs, finds a fault in a workflow."""

import pytest

from tests.site.checks.conftest import CHECKS
from tests.site.tools.test_workflows import plant, run

PLANTED = {
    "nothing": ("make lint", "make lint", ""),
    "a key that does not exist": (
        "timeout-minutes", "timeout", 'unexpected key "timeout"'),
    "a job that does not exist": (
        "    runs-on", "    needs: nothing\n    runs-on", '"nothing"'),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_what_is_planted_is_found(fault, tmp_path):
    pattern, wrong, said = PLANTED[fault]
    path = plant(tmp_path, pattern, wrong)
    status, found = run("node", CHECKS / "workflows.mjs", path)
    assert (status != 0) == (said != "")
    assert said in found
    assert ("cpu.yml:" in found) == (said != "")  # and the line
