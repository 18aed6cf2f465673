"""Tests of dpbook.common.datasets and of the sample that it loads."""

import gzip
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
import torch
import torchvision

from dpbook.common import datasets
from dpbook.common.datasets import Labelled, load_fashion_mnist
from tests.repository import ROOT

SAMPLE = ROOT / "book" / "dpbook" / "common" / "data"
NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
RAW = Path("FashionMNIST", "raw")
Sets = tuple[Labelled, Labelled]


def no_download(root: str, download: bool) -> None:
    """Stand in for torchvision's downloader on a machine without network."""
    raise RuntimeError("Error downloading:\n<urlopen error no network>")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """See to it that no test reaches the network."""
    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", no_download)


@pytest.fixture(scope="module")
def sample() -> Sets:
    """The embedded sample."""
    return load_fashion_mnist()


@pytest.fixture(scope="module")
def full() -> Sets:
    """The full set, where this machine has it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torchvision.datasets, "FashionMNIST", no_download)
        try:
            return load_fashion_mnist(full=True)
        except FileNotFoundError as error:
            if "download failed" in str(error):
                pytest.skip("the full Fashion-MNIST is not on this machine")
            raise


# ---------------------------------------------------------------- the sample


def check_set(labelled: Labelled, count_per_class: int) -> None:
    """Check shape, type, range and balance of a loaded set."""
    images, labels = labelled
    n = 10 * count_per_class
    assert images.shape == (n, 1, 28, 28)
    assert images.dtype == torch.float32
    assert (images.min(), images.max()) == (0, 1)
    assert 0.25 < images.mean() < 0.32  # published mean: 0.286
    assert labels.shape == (n,)
    assert labels.dtype == torch.int64
    assert labels.bincount().tolist() == [count_per_class] * 10


def test_sample_is_balanced(sample: Sets) -> None:
    """10,000 and 2,000 images, of each class as many."""
    train, test = sample
    check_set(train, 1000)
    check_set(test, 200)


def test_sample_is_not_sorted_by_class(sample: Sets) -> None:
    """Neighbours have all classes, also without shuffling, to the end."""
    for labelled in sample:
        for labels in labelled.labels.split(100):
            assert len(labels.unique()) == 10


def test_sample_is_small() -> None:
    """It travels with every clone."""
    sizes = [file.stat().st_size for file in SAMPLE.iterdir()]
    assert sum(sizes) < 6_000_000


def test_sample_has_its_licence() -> None:
    """Fashion-MNIST may be passed on with its notice only."""
    licence = (SAMPLE / "LICENSE.fashion-mnist").read_text(encoding="utf-8")
    assert "Copyright © 2017 Zalando SE" in licence
    assert "MIT License" in licence


def test_loads_are_independent(sample: Sets) -> None:
    """Writing into one loaded set leaves the next one alone."""
    spoiled, _ = load_fashion_mnist()
    spoiled.images.zero_()
    again, _ = load_fashion_mnist()
    assert torch.equal(again.images, sample[0].images)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_sample_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checksum of the .gz shows that a bit is wrong."""
    shutil.copytree(SAMPLE, tmp_path / "data")
    file = tmp_path / "data" / f"{name}.gz"
    file.write_bytes(flip(file.read_bytes()))
    monkeypatch.setattr(datasets.resources, "files", lambda _: tmp_path)
    with pytest.raises(
        ValueError, match="check these files out again"
    ) as caught:
        load_fashion_mnist()
    assert str(file) in str(caught.value)


def test_without_the_repository_the_full_set_is_thinned_out(
    sample: Sets, full: Sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package from an index has no images, and gives the same sample."""
    monkeypatch.setattr(datasets.resources, "files", lambda _: tmp_path)
    monkeypatch.setattr(datasets, "_load_full_set", lambda: full)
    made = load_fashion_mnist()
    for ours, theirs in zip(made, sample, strict=True):
        assert torch.equal(ours.images, theirs.images)
        assert torch.equal(ours.labels, theirs.labels)


def test_the_sample_is_every_sixth_and_every_fifth_of_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the full set is not at hand: a small one stands in."""
    numbers = torch.arange(120)
    whole = Labelled(numbers.view(-1, 1, 1, 1), numbers // 2 % 10)
    monkeypatch.setattr(datasets.resources, "files", lambda _: tmp_path)
    monkeypatch.setattr(datasets, "_load_full_set", lambda: (whole, whole))
    for part, step in zip(load_fashion_mnist(), (6, 5), strict=True):
        images = part.images.flatten()
        assert torch.equal(images, images.sort().values)
        for label in range(10):
            ours = numbers[whole.labels == label][::step]
            assert torch.equal(images[part.labels == label], ours)


def test_without_images_and_network_the_reader_learns_what_to_do(
    tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample is asked for, and neither it nor the full set is there."""
    monkeypatch.setattr(datasets.resources, "files", lambda _: tmp_path)
    with pytest.raises(FileNotFoundError, match="clone of the repository"):
        load_fashion_mnist()


# -------------------------------------------------------------- the full set


def test_full_set_is_balanced(full: Sets) -> None:
    """60,000 and 10,000 images, of each class as many."""
    train, test = full
    check_set(train, 6000)
    check_set(test, 1000)


def test_sample_is_part_of_the_full_set(sample: Sets, full: Sets) -> None:
    """Class by class, the sample is every sixth or fifth image."""
    for part, whole, step in zip(sample, full, (6, 5), strict=True):
        for label in range(10):
            ours = part.images[part.labels == label]
            theirs = whole.images[whole.labels == label]
            assert torch.equal(ours, theirs[::step])


# ----------------------------------------- where the full set is looked for


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A tiny set that passes for the full one: 3 and 2 images.

    The places to look in are folders below ``tmp_path``: ``own``
    ($DPKIT_DATA), ``debian``, and ``cache/dpkit``; none exists.
    """
    contents = {}
    for name, n in zip(NAMES, (3, 3, 2, 2), strict=True):
        size = 28 * 28 * n if "images" in name else n
        header = bytes(16 if "images" in name else 8)
        contents[name] = header + bytes(i % 251 for i in range(size))
    checksums = tuple(sha256(data).hexdigest() for data in contents.values())
    monkeypatch.setattr(datasets, "_FULL_SHA256", checksums)
    monkeypatch.setattr(datasets, "_DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("DPKIT_DATA", str(tmp_path / "own"))
    return contents


def write(folder: Path, files: dict[str, bytes], suffix: str = ".gz") -> None:
    """Write the files of a set into a folder, as they are or as .gz."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        packed = gzip.compress(data) if suffix == ".gz" else data
        (folder / f"{name}{suffix}").write_bytes(packed)


def check_tiny(sets: Sets) -> None:
    """Check that the tiny set was loaded, every value of it."""
    for (images, labels), n in zip(sets, (3, 2), strict=True):
        pixels = torch.arange(28 * 28 * n) % 251
        assert torch.equal(images.flatten() * 255, pixels.float())
        assert images.shape == (n, 1, 28, 28)
        assert torch.equal(labels, torch.arange(n))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("place", ["own", f"own/{RAW}", "debian"])
def test_full_set_is_found(
    tiny: dict[str, bytes], tmp_path: Path, place: str, suffix: str
) -> None:
    """Each place will do, unpacked or not."""
    write(tmp_path / place, tiny, suffix)
    check_tiny(load_fashion_mnist(full=True))


@pytest.mark.parametrize("value", [None, ""])
def test_cache_stands_in_for_an_unset_folder(
    tiny: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
) -> None:
    """Without DPKIT_DATA, or with an empty one, the cache is looked in."""
    monkeypatch.delenv("DPKIT_DATA")
    if value is not None:
        monkeypatch.setenv("DPKIT_DATA", value)
    write(tmp_path / "cache" / "dpkit" / RAW, tiny)
    check_tiny(load_fashion_mnist(full=True))


def test_home_stands_in_for_an_unset_cache(
    monkeypatch: pytest.MonkeyPatch, tiny: dict[str, bytes], tmp_path: Path
) -> None:
    """Without XDG_CACHE_HOME the cache is in the home folder."""
    monkeypatch.delenv("DPKIT_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / ".cache" / "dpkit" / RAW, tiny)
    check_tiny(load_fashion_mnist(full=True))


def test_the_users_folder_comes_first(
    tiny: dict[str, bytes], tmp_path: Path
) -> None:
    """Damage in a later place does not matter; in the first it does."""
    damaged = dict.fromkeys(NAMES, b"")
    write(tmp_path / "own", tiny)
    write(tmp_path / "debian", damaged)
    check_tiny(load_fashion_mnist(full=True))
    write(tmp_path / "own", damaged)
    write(tmp_path / "debian", tiny)
    with pytest.raises(ValueError, match="own"):
        load_fashion_mnist(full=True)


def flip(data: bytes) -> bytes:
    """Change one bit in the middle."""
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


FAULTS_GZ: dict[str, Callable[[bytes], bytes]] = {
    "empty file": lambda _: b"",
    "truncated .gz": lambda data: gzip.compress(data)[:-20],
    "truncated header": lambda data: gzip.compress(data)[:7],
    "flipped bit in .gz": lambda data: flip(gzip.compress(data)),
    "garbage in .gz": lambda data: gzip.compress(data)[:10] + b"\xff" * 20,
    "not a .gz": lambda data: data,
    "flipped bit in contents": lambda data: gzip.compress(flip(data)),
    "short contents": lambda data: gzip.compress(data[:-1]),
    "long contents": lambda data: gzip.compress(data + b"\0"),
}
FAULTS_UNPACKED: dict[str, Callable[[bytes], bytes]] = {
    "empty file": lambda _: b"",
    "half a file": lambda data: data[: len(data) // 2],
    "flipped bit": flip,
}
FAULTS = [
    *[(".gz", FAULTS_GZ[fault]) for fault in FAULTS_GZ],
    *[("", FAULTS_UNPACKED[fault]) for fault in FAULTS_UNPACKED],
]
CASES = [(NAMES[i % 4], *fault) for i, fault in enumerate(FAULTS)]


@pytest.mark.parametrize(
    ("name", "suffix", "fault"), CASES, ids=[*FAULTS_GZ, *FAULTS_UNPACKED]
)
def test_damaged_file_is_named(
    tiny: dict[str, bytes],
    tmp_path: Path,
    name: str,
    suffix: str,
    fault: Callable[[bytes], bytes],
) -> None:
    """Whatever is wrong with a file, the error says which and what to do."""
    folder = tmp_path / "own"
    write(folder, tiny, suffix)
    file = folder / f"{name}{suffix}"
    file.write_bytes(fault(tiny[name]))
    with pytest.raises(ValueError, match=r"^damaged file, or .+\(") as caught:
        load_fashion_mnist(full=True)
    assert f"file: {file}," in str(caught.value)
    advice = str(caught.value).splitlines()[-1]
    assert advice.startswith("delete these files and try again")
    assert "DPKIT_DATA" in advice


@pytest.mark.parametrize("name", NAMES)
def test_missing_file_is_named(
    tiny: dict[str, bytes], tmp_path: Path, name: str
) -> None:
    """Three files are no set, and do not count as none."""
    del tiny[name]
    write(tmp_path / "own", tiny)
    with pytest.raises(FileNotFoundError, match=r"^incomplete") as caught:
        load_fashion_mnist(full=True)
    assert str(tmp_path / "own" / name) in str(caught.value)


def test_folder_that_is_a_file(tiny: dict[str, bytes], tmp_path: Path) -> None:
    """A wrong DPKIT_DATA is named, not passed over."""
    (tmp_path / "own").write_bytes(b"")
    write(tmp_path / "debian", tiny)
    with pytest.raises(NotADirectoryError, match="not a folder"):
        load_fashion_mnist(full=True)


# -------------------------------------------------------------- the download


def use_downloader(
    monkeypatch: pytest.MonkeyPatch, download_to: Callable[[Path], None]
) -> None:
    """Let torchvision's downloader call this, with the raw folder."""

    def downloader(root: str, download: bool) -> None:
        assert download
        download_to(Path(root) / RAW)

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", downloader)


@pytest.mark.parametrize("variable_is_set", [True, False])
def test_download_is_kept(
    tiny: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable_is_set: bool,
) -> None:
    """It goes to DPKIT_DATA, or else to the cache, and happens once."""
    root = tmp_path / "own"
    if not variable_is_set:
        monkeypatch.delenv("DPKIT_DATA")
        root = tmp_path / "cache" / "dpkit"
    use_downloader(monkeypatch, lambda raw: write(raw, tiny, ""))
    check_tiny(load_fashion_mnist(full=True))
    stored = [path for path in root.rglob("*") if path.is_file()]
    assert sorted(stored) == sorted(root / RAW / name for name in NAMES)
    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", no_download)
    check_tiny(load_fashion_mnist(full=True))


def test_failed_download_names_the_places(
    tiny: dict[str, bytes], tmp_path: Path
) -> None:
    """The error says where it looked, why it failed, and what to do."""
    with pytest.raises(FileNotFoundError) as caught:
        load_fashion_mnist(full=True)
    fact, advice = str(caught.value).splitlines()
    assert fact.startswith("no Fashion-MNIST here, and the download failed (")
    for place in ("own", f"own/{RAW}", "debian"):
        assert f"{tmp_path / place}," in fact or f"{tmp_path / place};" in fact
    assert "no network" in fact
    for remedy in ("DPKIT_DATA", "dataset-fashion-mnist", "full=False"):
        assert remedy in advice


def torn_halfway(tiny: dict[str, bytes], raw: Path) -> None:
    """Write two files and half of the third, then lose the connection."""
    write(raw, {name: tiny[name] for name in NAMES[:2]}, "")
    write(raw, {NAMES[2]: tiny[NAMES[2]][:99]}, "")
    raise ConnectionResetError("connection reset by peer")


def torn_unnoticed(tiny: dict[str, bytes], raw: Path) -> None:
    """Write all files, the last one half, and report nothing."""
    write(raw, tiny | {NAMES[3]: tiny[NAMES[3]][:-1]}, "")


def torn_to_nothing(tiny: dict[str, bytes], raw: Path) -> None:
    """Write nothing, and report nothing."""


@pytest.mark.parametrize(
    "tear", [torn_halfway, torn_unnoticed, torn_to_nothing]
)
def test_torn_download_does_not_count(
    tiny: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tear: Callable[[dict[str, bytes], Path], None],
) -> None:
    """It is an error, nothing of it stays, and the next try is a fresh one."""
    use_downloader(monkeypatch, lambda raw: tear(tiny, raw))
    with pytest.raises(FileNotFoundError, match="download failed"):
        load_fashion_mnist(full=True)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    use_downloader(monkeypatch, lambda raw: write(raw, tiny, ""))
    check_tiny(load_fashion_mnist(full=True))


def test_killed_download_does_not_count(
    tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed process leaves behind is not taken for the set."""
    left_behind = tmp_path / "left behind"

    def killed(raw: Path) -> None:
        write(raw, dict.fromkeys(NAMES, b"half"), "")
        shutil.copytree(tmp_path / "own", left_behind)  # no clean-up here
        raise RuntimeError("killed")

    use_downloader(monkeypatch, killed)
    with pytest.raises(FileNotFoundError, match="killed"):
        load_fashion_mnist(full=True)
    assert [path for path in left_behind.rglob("*") if path.is_file()]
    monkeypatch.setenv("DPKIT_DATA", str(left_behind))
    use_downloader(monkeypatch, lambda raw: write(raw, tiny, ""))
    check_tiny(load_fashion_mnist(full=True))


def test_two_downloads_at_once(
    tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slower process finds the files of the faster one in its place."""

    def overtaken(raw: Path) -> None:
        write(raw, tiny, "")
        write(tmp_path / "own" / RAW, tiny, "")

    use_downloader(monkeypatch, overtaken)
    check_tiny(load_fashion_mnist(full=True))
    check_tiny(load_fashion_mnist(full=True))


def test_download_that_cannot_be_stored(
    tiny: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If something else is in the way of the files, the error says so."""
    write(tmp_path / "own" / RAW, {"notes": b"of the user"}, "")
    use_downloader(monkeypatch, lambda raw: write(raw, tiny, ""))
    with pytest.raises(FileNotFoundError, match="not empty"):
        load_fashion_mnist(full=True)
    assert (tmp_path / "own" / RAW / "notes").read_bytes() == b"of the user"
