"""The fixtures that look, and what pytest tells them.

To be named in ``pytest_plugins``. Other fixtures that every test has must ask
for ``leaves_nothing``, or would be torn down after it has looked.
"""

import builtins
import gc
import os
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from tests.left_behind.files import IN_REPOSITORY, TEMPORARY
from tests.left_behind.kinds import MISSING, Change, Kind, Seen
from tests.left_behind.machine import MACHINE
from tests.left_behind.patches import PATCHES
from tests.left_behind.running import PROCESSES, THREADS, bury
from tests.left_behind.surroundings import ENVIRONMENT, SETTINGS
from tests.left_behind.tensors import TENSORS

KINDS: list[Kind] = [
    TENSORS,  # before other hardware, which they would be in the way of
    MACHINE,
    THREADS,
    PROCESSES,
    PATCHES,
    ENVIRONMENT,
    SETTINGS,
    TEMPORARY,
    IN_REPOSITORY,
]
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
PATIENCE = 60.0  # seconds, for what ends by itself
SCOPES = ["session", "package", "module", "class", "function"]
RAISED = pytest.StashKey[bool]()

Snapshot = list[Seen]  # one of each kind
Changes = list[list[Change]]  # likewise

_begun: list[tuple[str, Snapshot]] = []  # what was, by scope, the widest first


@pytest.fixture(autouse=True, scope="session")
def own_temporary_folder(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Make ``tempfile`` use a folder that no other process uses.

    Its path is short: sockets have none that is longer than 107 letters. What
    PyTorch has compiled stays where all processes find it.
    """
    compiled = os.path.join(
        tempfile.gettempdir(), f"torchinductor_{os.getuid()}"
    )
    IN_REPOSITORY.begin(request.config.rootpath)
    tmp_path_factory.getbasetemp()  # stays where it is
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        if COMPILED not in os.environ:  # torch sets it, and makes the folder
            patch.setenv(COMPILED, compiled)
        patch.setenv("TMPDIR", folder)
        patch.setattr(tempfile, "tempdir", folder)
        # Else IPython makes a folder each time, for a user without a home.
        patch.setenv("IPYTHONDIR", tempfile.mkdtemp(dir=folder))
        yield


@pytest.fixture(autouse=True, scope="session")
def session_leaves_nothing(
    request: pytest.FixtureRequest, own_temporary_folder: None
) -> Iterator[None]:
    """Fail if fixtures of the session leave something behind.

    Temporary files do not count: the kernel of a notebook is killed at its
    end, and may leave some.
    """
    looking = _begin_and_end(request)
    next(looking)
    yield
    TEMPORARY.remove(os.listdir(tempfile.gettempdir()))
    next(looking, None)


@pytest.fixture(autouse=True, scope="module")
def module_leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail if fixtures of a module leave something behind."""
    yield from _begin_and_end(request)


@pytest.fixture(autouse=True)
def leaves_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves something behind."""
    yield from _begin_and_end(request)


def _begin_and_end(request: pytest.FixtureRequest) -> Iterator[None]:
    before = look()
    _begun.append((request.scope, before))
    yield
    _begun.pop()
    if request.node.stash.get(RAISED, False):
        _forget_error()
    vars(builtins).pop("_", None)  # what an example showed last
    getattr(request.node, "funcargs", {}).clear()  # of fixtures that are gone
    changes = changes_since(before)
    if not any(changes):
        PATCHES.is_known = request.scope == "function"
        return
    lines = [
        line
        for kind, left in zip(KINDS, changes)
        if left
        for line in kind.describe(left)
    ]
    for kind, left in zip(KINDS, changes):
        if left:
            lines += _put_back(kind, left)
    take_over([snapshot for _, snapshot in _begun], before, look())
    if not request.node.stash.get(RAISED, False):
        pytest.fail(_message(request, lines), pytrace=False)


def _put_back(kind: Kind, left: list[Change]) -> list[str]:
    """Make all as it was; say why it cannot be."""
    try:
        kind.put_back(left)
    except Exception as error:
        return [f"and it cannot be put back: {error}"]
    return []


def _message(request: pytest.FixtureRequest, lines: list[str]) -> str:
    who = request.node.nodeid or "the session"
    if request.scope != "function":
        who = f"the fixtures of {who}, or a test that uses them,"
    return "\n    ".join([f"{who} left behind:", *lines])


def _forget_error() -> None:
    """Free the error of a test, which keeps all that its frames have."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)


def look() -> Snapshot:
    """Return what there is now."""
    return [kind.look() for kind in KINDS]


def changes_since(before: Snapshot) -> Changes:
    """Return what has been left, and does not go by itself."""
    changes = _compare(before)
    # There are few young objects. And what a graph of autograd keeps becomes
    # garbage only when the graph has been freed (dpkit/sim/memory/garbage.py).
    for generation in (0, 1, 2, 2, 2):
        if any(changes):
            gc.collect(generation)
            changes = _compare(before)
    end = time.monotonic() + PATIENCE
    while _may_end(changes) and time.monotonic() < end:
        time.sleep(0.01)
        bury()
        changes = _compare(before)
    return changes


def _compare(before: Snapshot) -> Changes:
    return [kind.changes(b, kind.look()) for kind, b in zip(KINDS, before)]


def _may_end(changes: Changes) -> bool:
    return any(kind.may_end and left for kind, left in zip(KINDS, changes))


def take_over(
    snapshots: list[Snapshot], before: Snapshot, now: Snapshot
) -> None:
    """Enter what has changed from ``before`` to ``now`` in snapshots."""
    for index, kind in enumerate(KINDS):
        for key in before[index].keys() | now[index].keys():
            one, other = (x[index].get(key, MISSING) for x in (before, now))
            if kind.same(one, other):
                continue
            for snapshot in snapshots:
                snapshot[index].pop(key, None)
                if other is not MISSING:
                    snapshot[index][key] = other


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any],
) -> Generator[None, Any, Any]:
    """Count what a fixture of a wider scope makes as there before a test.

    It may be asked for as late as in the test.
    """
    if fixturedef.scope != "function":
        PATCHES.is_known = False
    scope = SCOPES.index(fixturedef.scope)
    inner = [s for name, s in _begun if SCOPES.index(name) > scope]
    if not inner:
        return (yield)
    before = look()
    try:
        return (yield)
    finally:
        take_over(inner, before, look())


def pytest_fixture_post_finalizer(
    fixturedef: pytest.FixtureDef[Any],
) -> None:
    """Note that a fixture of a wider scope is gone, and its patches too."""
    if fixturedef.scope != "function":
        PATCHES.is_known = False


def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> None:
    """Note that a test has failed: then it need not leave all as it was."""
    if call.when == "teardown" or call.excinfo is None:
        return
    if not isinstance(call.excinfo.value, pytest.skip.Exception):
        item.stash[RAISED] = True
