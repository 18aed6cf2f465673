"""Checkpoints: whole or refused, by name; the last good one is used."""

import os
import re
import signal
import socket
import stat
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import nn

from dpbook.job.checkpoints import Checkpoints, unpack
from dpbook.job.state_forms import check_fit, forms, not_finite

SETTINGS = {"model": "lenet", "batch_size": 250, "lr": 0.1}


def same(one, other):
    """Tell whether two states are equal, to the bit and in form."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            same(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@pytest.fixture
def saved(tmp_path):
    """Three checkpoints, of steps 5, 10 and 15."""
    checkpoints = Checkpoints(tmp_path / "run", SETTINGS, keep=4)
    for step in (5, 10, 15):
        checkpoints.save(step, {"w": torch.full((2, 3), step), "step": step})
    return checkpoints


def found_step(checkpoints):
    found = checkpoints.newest()
    step = unpack(found.content)[1]["step"] if found.path else None
    assert found.path == (checkpoints.path(step) if step else None)
    return step


def test_a_state_comes_back(tmp_path):
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.3)
    net(torch.randn(7, 3)).sum().backward()
    optimizer.step()
    state = {
        "model": dict(net.state_dict()),
        "optimizer": optimizer.state_dict(),
        "half": torch.randn(5).bfloat16(),
        "step": 7,
    }
    checkpoints = Checkpoints(str(tmp_path / "a" / "b"), SETTINGS)
    path = checkpoints.save(7, state)
    found = checkpoints.newest()
    assert (found.path, found.refused) == (path, [])
    settings, back = unpack(found.content)
    assert settings == SETTINGS
    back["model"] = dict(back["model"])
    assert same(back, state)


def test_nothing_yet(tmp_path):
    found = Checkpoints(tmp_path / "none", SETTINGS).newest()
    assert (found.path, found.content, found.refused) == (None, b"", [])
    assert not (tmp_path / "none").exists()


def test_the_last_few_are_kept_and_others_let_be(tmp_path):
    mine = Checkpoints(tmp_path, SETTINGS, keep=2)
    other = Checkpoints(tmp_path, {**SETTINGS, "lr": 0.2}, keep=1)
    others = {other.save(step, {}).name for step in (1, 400)}
    (tmp_path / "notes.txt").touch()
    for step in (1, 30, 200, 1000):
        mine.save(step, {"step": step})
    names = {path.name for path in tmp_path.iterdir()}
    kept = {mine.path(200).name, mine.path(1000).name}
    assert names == {*kept, "notes.txt", other.path(400).name}
    assert others - names == {other.path(1).name}  # its own run's doing
    assert found_step(mine) == 1000


def test_taken_up_at_an_older_one_the_newer_does_not_count(saved):
    """Else a damaged newer one pushes a good one out."""
    saved.path(15).write_bytes(b"")
    again = Checkpoints(saved.folder, SETTINGS, keep=1)
    again.save(11, {"step": 11})
    assert found_step(again) == 11


def test_a_damaged_file_is_told_or_reads_the_same(tmp_path):
    """One bit of each byte flipped, or the file cut off before it."""
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    state = {"w": torch.randn(3), "step": 3}
    whole = checkpoints.save(3, state).read_bytes()
    told = []
    for place in range(len(whole)):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        try:
            settings, found = unpack(bytes(flipped))
        except ValueError as error:
            told.append(str(error))
        else:  # a date, say, or what fills the gap before a tensor
            assert settings == SETTINGS
            assert same(found, state)
        with pytest.raises(ValueError, match="damaged checkpoint"):
            unpack(whole[:place])
    assert len(told) > len(whole) / 2
    assert all(re.match("damaged|not a checkpoint", line) for line in told)


def test_a_flipped_bit_of_a_tensor_is_told(tmp_path):
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    w = torch.randn(1000)
    whole = checkpoints.save(3, {"w": w}).read_bytes()
    start = whole.index(w.numpy().tobytes())
    for place in range(start, start + w.nbytes, 7):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match=r"damaged checkpoint \(part: "):
            unpack(bytes(flipped))


def flip(path):
    whole = bytearray(path.read_bytes())
    whole[whole.index(b"settings")] ^= 4
    path.write_bytes(whole)


def write(content):
    return lambda path: path.write_bytes(content)


def become(make, *arguments):
    """Return a function that puts something else in a file's place."""

    def exchange(path):
        path.unlink()
        make(path, *arguments)

    return exchange


OWN_SOCKET = stat.S_IFSOCK | 0o600  # its owner may open it, in principle


def link_to_a_pipe(path):
    pipe = path.with_name(f"pipe of {path.name}")
    os.mkfifo(pipe)
    path.symlink_to(pipe)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (write(b""), "damaged checkpoint (why: File is not a zip file"),
        (flip, "damaged checkpoint (part: "),
        (lambda path: os.truncate(path, 300), "damaged checkpoint (why: "),
        (lambda path: torch.save(3, path), "not a checkpoint (missing: set"),
        (lambda path: ZipFile(path, "w").close(), "not a checkpoint (torch."),
        (become(Path.mkdir), "not a regular file, but a folder"),
        (become(os.mkfifo), "not a regular file, but a named pipe"),
        (become(os.mknod, OWN_SOCKET), "cannot be read (why: No such dev"),
        (become(link_to_a_pipe), "not a regular file, but a named pipe"),
        # /dev/zero is one as well, and its reader would take all memory.
        (become(Path.symlink_to, os.devnull), "not a regular file, but a dev"),
        (become(Path.symlink_to, "."), "not a regular file, but a folder"),
        (become(Path.symlink_to, "none"), "cannot be read (why: No such file"),
    ],
)
def test_a_damaged_one_is_named_and_the_last_good_one_used(saved, harm, told):
    for step in (15, 10):
        harm(saved.path(step))
    assert found_step(saved) == 5
    refused = saved.newest().refused
    assert len(refused) == 2
    for step, line in zip((15, 10), refused):
        assert line.startswith(f"{saved.path(step)}: {told}")


@pytest.fixture
def before_it_is_opened(monkeypatch):
    """Let something happen to a path at the moment when it is opened."""
    real = os.open

    def arrange(path, happen):
        def late(opened, *arguments, **named):
            if opened == str(path):
                happen()
            return real(opened, *arguments, **named)

        monkeypatch.setattr(os, "open", late)

    return arrange


def test_a_pipe_that_comes_late_is_not_read(saved, before_it_is_opened):
    path = saved.path(15)
    before_it_is_opened(path, lambda: become(os.mkfifo)(path))
    descriptors = os.listdir("/proc/self/fd")
    found = saved.newest()
    assert found.path == saved.path(10)
    (line,) = found.refused
    assert line == f"{path}: not a regular file, but a named pipe"
    assert os.listdir("/proc/self/fd") == descriptors


def test_a_checkpoint_may_be_a_link_and_so_may_the_folder(saved, tmp_path):
    """People put large files on other disks."""
    other_disk = saved.path(15).rename(tmp_path / "large.ckpt")
    saved.path(15).symlink_to(other_disk)
    (tmp_path / "link").symlink_to(saved.folder)
    linked = Checkpoints(tmp_path / "link", SETTINGS, keep=1)
    assert linked.lock() == []
    assert found_step(linked) == 15
    linked.save(20, {"step": 20})
    assert list(saved.folder.glob("*.ckpt")) == [saved.path(20)]
    assert other_disk.exists()  # the old one's name was deleted, a link
    linked.unlock()


def test_none_is_good(saved):
    for path in saved.folder.iterdir():
        flip(path)
    assert found_step(saved) is None
    assert len(saved.newest().refused) == 3


def test_of_another_run(saved):
    changed = {"model": "linear", "batch_size": 250, "lr": 0.1, "seed": 3}
    other = Checkpoints(saved.folder, changed)
    told = (
        f"{saved.path(15)}: checkpoint of another run (model: lenet there, "
        "linear here, seed: none there, 3 here)"
    )
    with pytest.raises(ValueError, match="a folder of its own") as caught:
        other.newest()
    assert str(caught.value).startswith(told)
    other.save(2, {"step": 2})
    assert found_step(other) == 2
    assert other.newest().refused[0] == told
    assert len(other.newest().refused) == 3


def test_a_name_alone_does_not_make_it_ours(saved):
    other = Checkpoints(saved.folder, {**SETTINGS, "lr": 0.2})
    other.save(20, {"step": 20}).rename(saved.path(20))
    assert found_step(saved) == 15
    (line,) = saved.newest().refused
    assert line.endswith("another run (lr: 0.2 there, 0.1 here)")


def test_a_name_of_another_step(saved):
    """It would be taken for the newest; another form of name may be."""
    saved.path(10).rename(saved.path(30))
    assert found_step(saved) == 15
    (line,) = saved.newest().refused
    assert line == (
        f"{saved.path(30)}: another step's checkpoint (step: 10 in its "
        "state, 30 in its name)"
    )
    best = saved.path(5).rename(saved.folder / "the best.ckpt")
    assert saved.newest().path == best


class Trap:
    def __reduce__(self):
        return Path("sprung").touch, ()


@pytest.mark.parametrize("what", [Trap(), {"settings": {}}, [1], {1: Trap()}])
def test_nothing_in_it_is_executed(saved, what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(what, saved.path(20))
    assert found_step(saved) == 15
    (line,) = saved.newest().refused
    assert line.startswith(f"{saved.path(20)}: not a checkpoint")
    assert not Path("sprung").exists()


# A kill between any two calls leaves the older ones, and none that is damaged.


@pytest.mark.parametrize(
    ("call", "times", "step"),
    [("fsync", 1, 15), ("replace", 1, 15), ("fsync", 2, 20)],
)
def test_ended_while_writing(saved, monkeypatch, call, times, step):
    counted = []
    real = getattr(os, call)

    def end(*args):
        counted.append(args)
        if len(counted) == times:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(os, call, end)
    with pytest.raises(KeyboardInterrupt):
        saved.save(20, {"step": 20})
    monkeypatch.undo()
    assert found_step(saved) == step
    assert saved.newest().refused == []
    saved.save(20, {"step": 20})
    assert found_step(saved) == 20
    assert list(saved.folder.glob("*.tmp")) == []


@pytest.fixture
def victim(tmp_path):
    """A file that no job has to do with, and that has to stay as it is."""
    path = tmp_path / "victim"
    path.write_text("precious")
    yield path
    assert path.read_text() == "precious"


def draft_of(checkpoints, step):
    path = checkpoints.path(step)
    return path.with_name(f"{path.name}.tmp")


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_in_the_place_of_a_draft_is_replaced(saved, victim, link):
    link(draft_of(saved, 20), victim)
    path = saved.save(20, {"step": 20})
    assert not path.is_symlink()
    assert found_step(saved) == 20


def test_a_link_that_comes_just_before_a_draft_is_not_followed(
    saved, victim, monkeypatch
):
    draft, unlink = draft_of(saved, 20), Path.unlink

    def exchange(path, missing_ok=False):
        unlink(path, missing_ok)
        path.symlink_to(victim)

    monkeypatch.setattr(Path, "unlink", exchange)
    with pytest.raises(FileExistsError) as caught:
        saved.save(20, {"step": 20})
    monkeypatch.undo()
    assert caught.value.filename == str(draft)
    assert draft.is_symlink()  # it is not ours to delete
    assert found_step(saved) == 15


def test_a_folder_in_the_place_of_a_draft_is_named(saved):
    draft = draft_of(saved, 20)
    draft.mkdir()
    (draft / "precious").touch()
    before = sorted(saved.folder.rglob("*"))
    with pytest.raises(OSError, match="directory") as caught:
        saved.save(20, {"step": 20})
    assert caught.value.filename == str(draft)
    assert sorted(saved.folder.rglob("*")) == before


def test_who_may_read_what_is_written(tmp_path):
    """Whom the mask of the process allows it, as with any other file."""
    before = os.umask(0o027)
    try:
        checkpoints = Checkpoints(tmp_path, SETTINGS)
        draft = draft_of(checkpoints, 1)
        draft.touch(0o777)  # from a job that was killed
        path = checkpoints.save(1, {})
        assert checkpoints.lock() == []
    finally:
        os.umask(before)
    for file in (path, tmp_path / "lock"):
        assert stat.filemode(file.stat().st_mode) == "-rw-r-----"
    checkpoints.unlock()


def test_a_full_disk(saved, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    before = sorted(saved.folder.iterdir())
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        saved.save(20, {"step": 20})
    assert caught.value.filename == f"{saved.path(20)}.tmp"
    assert sorted(saved.folder.iterdir()) == before


def test_on_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """The content, then the name, then the folder that has the name."""
    calls = []
    fsync, replace = os.fsync, os.replace

    def sync(descriptor):
        name = Path(os.readlink(f"/proc/self/fd/{descriptor}")).name
        size = os.fstat(descriptor).st_size if "tmp" in name else 0
        calls.append((name, size))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", lambda old, new: calls.append(
        (Path(old).name, Path(new).name)) or replace(old, new))  # fmt: skip
    folder = tmp_path / "folder"
    folder.mkdir()
    path = Checkpoints(folder, SETTINGS).save(1, {})
    assert calls == [
        (f"{path.name}.tmp", path.stat().st_size),
        (f"{path.name}.tmp", path.name),
        ("folder", 0),
    ]


def test_folders_that_it_makes_are_on_disk(tmp_path, monkeypatch):
    synced = []
    fsync = os.fsync

    def sync(descriptor):
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    folder = tmp_path / "a" / "b"
    Checkpoints(folder, SETTINGS).save(1, {})
    assert {tmp_path, tmp_path / "a", folder} <= set(synced)
    assert tmp_path.parent not in synced


@pytest.mark.parametrize("keep", [0, -1])
def test_none_to_keep(tmp_path, keep):
    with pytest.raises(ValueError, match=rf"\(keep: {keep}\)"):
        Checkpoints(tmp_path, SETTINGS, keep=keep)


# A state that does not fit.


def test_numbers_and_options_may_differ():
    wanted = forms({"step": 0, "model": {"w": torch.ones(2, 3)}})
    state = {"step": 5, "model": {"w": torch.zeros(2, 3)}, "option": None}
    check_fit(state, wanted)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({"model": {"w": torch.ones(2, 3)}}, "state/step: none there, int"),
        ({"step": 1}, "state/model: none there, dict here"),
        ({"step": "1", "model": {}}, "state/step: str there, int here"),
        ({"step": 1, "model": {}}, "state/model/w: none there, float32 of"),
        ({"step": 1, "model": [1]}, "state/model: list there, dict here"),
        (
            {"step": 1, "model": {"w": torch.ones(2, 4)}},
            "float32 of shape (2, 4) there, float32 of shape (2, 3) here",
        ),
        (
            {"step": 1, "model": {"w": torch.ones(2, 3).double()}},
            "float64 of shape (2, 3) there, float32 of shape (2, 3) here",
        ),
        (
            {"step": 1, "model": {"w": torch.ones(2, 3), "b": torch.ones(2)}},
            "state/model/b: float32 of shape (2,) there, none here",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_passed_over(saved, state, told):
    wanted = forms({"step": 0, "model": {"w": torch.ones(2, 3)}})
    good = {"step": 16, "model": {"w": torch.ones(2, 3)}}
    saved.save(16, good)
    saved.save(20, state)
    found = saved.newest(lambda state: check_fit(state, wanted))
    assert found.path == saved.path(16)
    (line,) = found.refused
    assert line.startswith(f"{saved.path(20)}: does not fit this run (state")
    assert told in line


def test_a_state_that_holds_itself_does_not_fit():
    state = {"step": 1}
    state["again"] = state
    with pytest.raises(ValueError, match=r"does not fit .*nested too deep"):
        check_fit(state, forms({"step": 0}))


@pytest.mark.filterwarnings("ignore:Validating sparse tensor invariants")
@pytest.mark.parametrize(
    ("w", "told"),
    [
        (torch.empty(2, 3, device="meta"), "without values (meta) there"),
        (torch.ones(2, 3).to_sparse(), "stored as sparse_coo there"),
    ],
)
def test_a_tensor_without_its_values_is_passed_over(saved, w, told):
    """Also one that the run has not: its values are looked at as well."""
    good = {"step": 16, "w": torch.ones(2, 3)}
    wanted = forms(good)
    saved.save(16, good)
    saved.save(18, {"step": 18, "w": w})
    saved.save(20, {"step": 20, "w": torch.ones(2, 3), "extra": w})

    def check(state):
        check_fit(state, wanted)
        assert not_finite(state) == ""

    found = saved.newest(check)
    assert found.path == saved.path(16)
    form = f"float32 of shape (2, 3) {told}"
    for line, place in zip(found.refused, ("extra", "w"), strict=True):
        assert f"does not fit this run (state/{place}: {form}" in line


def test_a_setting_is_a_number_or_a_string(saved):
    content = {"settings": {"lr": torch.ones(2)}, "state": {"step": 20}}
    torch.save(content, saved.path(20))
    assert found_step(saved) == 15
    (line,) = saved.newest().refused
    assert line.endswith("not a checkpoint (setting lr: a Tensor)")


def test_numbers_that_are_not_finite_are_counted():
    state = {"step": 3, "model": {"a": torch.ones(7), "n": torch.arange(4)}}
    assert not_finite(state) == ""
    for harm in (torch.nan, torch.inf, -torch.inf):
        state["model"]["w"] = torch.tensor([[1.0, harm, 2.0], [harm, 0, 5]])
        told = "state/model/w: 2 of 6 values are not finite"
        assert not_finite(state) == told


# One job in a folder.


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr("dpbook.job.lock.WAIT_SECONDS", 0)


def refused(checkpoints):
    """Return who has the lock; None if it can be had."""
    told = r"uses this folder \(folder: (.*), used by: (.*)\); give each run"
    try:
        assert checkpoints.lock() == []
    except RuntimeError as error:
        folder, holder = re.search(told, str(error)).groups()
        assert folder == str(checkpoints.folder)
        return holder
    checkpoints.unlock()
    return None


def test_a_second_job_is_refused_by_name(tmp_path, impatient):
    one, other = (Checkpoints(tmp_path / "new", SETTINGS) for _ in range(2))
    assert one.lock() == one.lock() == []
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    assert refused(other) == refused(other) == holder
    other.newest()  # it may look
    one.unlock()
    assert refused(other) is None
    (tmp_path / "new" / "lock").write_text("")
    other.lock()
    assert one.folder == other.folder
    assert refused(one) == holder


def test_the_lock_ends_with_who_is_killed(tmp_path, impatient):
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        checkpoints.lock()
        os.write(writer, b"locked")
        signal.pause()
    try:
        assert os.read(reader, 6) == b"locked"
        assert refused(checkpoints).startswith(f"process {child} on ")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        os.close(writer)
    assert (tmp_path / "lock").read_text().startswith(f"process {child} on ")
    assert refused(checkpoints) is None


@pytest.fixture
def forked():
    """Fork a process that runs a function, and then waits for its end."""
    children = []
    reader, writer = os.pipe()

    def fork(function):
        child = os.fork()
        if not child:
            try:
                os.write(writer, str(function()).encode())
            finally:
                signal.pause()
        children.append(child)
        return os.read(reader, 1000).decode()

    yield fork
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    os.close(reader)
    os.close(writer)


def test_a_forked_process_does_not_let_go_of_the_lock(
    tmp_path, impatient, forked
):
    one, other = (Checkpoints(tmp_path, SETTINGS) for _ in range(2))
    one.lock()
    assert forked(one.unlock) == "None"
    assert refused(other) == f"process {os.getpid()} on {socket.gethostname()}"
    one.unlock()


def test_the_lock_is_released_though_a_forked_process_is_there(
    tmp_path, impatient, forked
):
    """The forked process has the file open, too."""
    one, other = (Checkpoints(tmp_path, SETTINGS) for _ in range(2))
    one.lock()
    assert forked(os.getpid) != str(os.getpid())
    one.unlock()
    one.unlock()  # it has nothing to release
    assert refused(other) is None


def test_who_was_just_killed_is_waited_for(tmp_path, monkeypatch):
    """It may take a moment to end; here, until the first look."""
    one, other = (Checkpoints(tmp_path, SETTINGS) for _ in range(2))
    one.lock()
    looks = []

    def look(seconds):
        looks.append(seconds)
        one.unlock()

    monkeypatch.setattr("dpbook.job.lock.time.sleep", look)
    assert refused(other) is None
    assert len(looks) == 1


def test_without_locks_that_is_told(tmp_path, monkeypatch):
    def none(file, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", none)
    (line,) = Checkpoints(tmp_path, SETTINGS).lock()
    assert line == (
        f"nothing keeps other jobs out (folder: {tmp_path}, why: Function "
        "not implemented)"
    )


def test_a_lock_on_a_full_disk(tmp_path, monkeypatch):
    def full(file, operation):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fcntl.flock", full)
    with pytest.raises(OSError, match="No space left") as caught:
        Checkpoints(tmp_path, SETTINGS).lock()
    assert caught.value.filename == str(tmp_path / "lock")


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_lock_that_is_a_link_is_refused(tmp_path, victim, link):
    lock = tmp_path / "run" / "lock"
    lock.parent.mkdir()
    link(lock, victim)
    descriptors = os.listdir("/proc/self/fd")
    checkpoints = Checkpoints(lock.parent, SETTINGS)
    with pytest.raises(ValueError, match="delete the link, and") as caught:
        checkpoints.lock()
    assert str(caught.value).startswith(f"{lock} is a link to a file that")
    assert os.listdir("/proc/self/fd") == descriptors
    lock.unlink()
    assert checkpoints.lock() == []
    checkpoints.unlock()


@pytest.mark.parametrize(
    ("make", "kind", "delete"),
    [
        (os.mkfifo, "named pipe", Path.unlink),
        (Path.mkdir, "folder", Path.rmdir),
        (lambda path: os.mknod(path, stat.S_IFSOCK), "socket", Path.unlink),
    ],
)
def test_a_lock_that_is_not_a_regular_file_is_refused(
    tmp_path, make, kind, delete
):
    lock = tmp_path / "lock"
    make(lock)
    descriptors = os.listdir("/proc/self/fd")
    checkpoints = Checkpoints(tmp_path, SETTINGS)
    told = f"{lock}: not a regular file, but a {kind}; delete it, and start"
    with pytest.raises(ValueError, match=f"^{re.escape(told)}"):
        checkpoints.lock()
    assert os.listdir("/proc/self/fd") == descriptors
    delete(lock)
    assert checkpoints.lock() == []
    checkpoints.unlock()


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Path.symlink_to, "is a link to a file"),
        (lambda path, _: os.mkfifo(path), "not a regular file, but a named"),
    ],
)
def test_a_link_or_pipe_that_comes_late_is_no_lock(
    tmp_path, victim, before_it_is_opened, make, told
):
    lock = tmp_path / "lock"
    before_it_is_opened(lock, lambda: make(lock, victim))
    with pytest.raises(ValueError, match=told) as caught:
        Checkpoints(tmp_path, SETTINGS).lock()
    assert str(caught.value).startswith(str(lock))


def test_a_lock_whose_link_leads_nowhere_makes_nothing(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "new")
    with pytest.raises(ValueError, match="is a link"):
        Checkpoints(tmp_path, SETTINGS).lock()
    assert not (tmp_path / "new").exists()
