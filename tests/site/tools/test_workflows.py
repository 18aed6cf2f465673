"""The workflows run targets that exist, and a fault in one is found.

`make lint` has them read by zizmor and by actionlint; faults are planted in a
copy of one, for zizmor here, for actionlint in checks/test_actionlint.py.
"""

import re
import subprocess
from importlib import metadata

import pytest
import yaml

from tests.repository import ROOT

FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
TARGET = re.compile(r"\bmake ([a-z-]+(?: ON=[a-z-]+)?)")


def read(name):
    return (FOLDER / name).read_text(encoding="utf-8")


def triggers(name):
    return yaml.safe_load(read(name))[True]  # "on" is a yes of YAML


def run(*words):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def zizmor(path):
    # Where it was installed, which need not be beside this Python.
    files = metadata.files("zizmor")
    (tool,) = [file for file in files if file.name == "zizmor"]
    words = ("--offline", "--quiet", "--no-config", path)
    return run(tool.locate(), *words)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_a_workflow_is_in_order(path):
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    for target in TARGET.findall(text):
        name = target.replace("test ON=", "on-").split()[0]
        assert f"\n{name}:" in targets, target
    uses = re.findall(r"uses: (.+)", text)
    assert uses
    for used in uses:
        assert re.fullmatch(r"\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used), used
    status, said = zizmor(path)
    assert status == 0, said


def test_every_job_ends_in_time():
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            assert job["timeout-minutes"] <= 240, (path, name)


def test_a_request_runs_all_that_ci_runs():
    asked = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    alone = {"serve", "test-all", "test ON=other-cpu"}  # weekly.yml has these
    runs = set(TARGET.findall(asked)) - alone
    assert runs <= set(TARGET.findall(read("cpu.yml")))
    assert {"push", "pull_request"} <= set(triggers("cpu.yml"))


def test_a_push_waits_for_no_report_of_gpus():
    (job,) = yaml.safe_load(read("gpu.yml"))["jobs"].values()
    steps = [step for step in job["steps"] if "run" in step]
    commands = [step["run"].split("\n")[0] for step in steps]
    assert commands.index("make test") < commands.index(
        "make gpu-report LIMIT=1800"
    )
    for step in steps:
        if step["run"].startswith(("make gpu-report", "make execute ON=gpu")):
            assert "github.event_name != 'push'" in step["if"]
        if step["run"] == "make test":
            assert "if" not in step


def test_no_stranger_gets_at_the_gpu():
    assert set(triggers("gpu.yml")) == {
        "push", "schedule", "workflow_dispatch"}  # fmt: skip
    assert triggers("gpu.yml")["push"] == {"branches": ["main"]}
    for job in yaml.safe_load(read("gpu.yml"))["jobs"].values():
        assert job["environment"] == "gpu"
        assert "refs/heads/main" in job["if"]
    for name in ("cpu.yml", "pages.yml"):
        assert "self-hosted" not in read(name)


@pytest.mark.parametrize(
    ("name", "job", "variable"),
    [
        ("gpu.yml", "gpu", "GPU_RUNNER"),
        ("pages.yml", "build", "PUBLISH_PAGES"),
        ("pages.yml", "publish", "PUBLISH_PAGES"),
        ("release.yml", "publish", "PUBLISH_PACKAGE"),
        ("release.yml", "attach", "PUBLISH_ARCHIVE"),
    ],
)
def test_nothing_is_published_before_the_owner_says_so(name, job, variable):
    condition = yaml.safe_load(read(name))["jobs"][job]["if"]
    assert f"vars.{variable} == 'yes'" in condition
    asked = (ROOT / "scripts" / "README.md").read_text(encoding="utf-8")
    assert f"`{variable}`" in asked


PLANTED = {
    "an action that is not pinned": (
        r"(actions/checkout)@\S+ # \S+", r"\1@v6", "unpinned-uses"),
    "a title that is run": (
        "make lint", "echo ${{ github.event.head_commit.message }}",
        "template-injection"),
    "a token that stays": (
        "persist-credentials: false", "fetch-depth: 1", "artipacked"),
}  # fmt: skip


def plant(folder, pattern, wrong):
    """Return a workflow in which something stands in place of a pattern."""
    path = folder / ".github" / "workflows" / "cpu.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    planted, count = re.subn(pattern, wrong, read("cpu.yml"), count=1)
    assert count == 1
    path.write_text(planted)
    return path


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(fault, tmp_path):
    pattern, wrong, said = PLANTED[fault]
    status, found = zizmor(plant(tmp_path, pattern, wrong))
    assert status != 0
    assert said in found
    assert "cpu.yml:" in found  # and the line
