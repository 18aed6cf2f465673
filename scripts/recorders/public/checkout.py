"""Lay out the files of a commit, for a script that is run as it was then."""

import shutil
import subprocess
from pathlib import Path

from recorders.public.table import PublicScript, fill


def lay_out(
    repository: Path, target: Path, script: PublicScript, made: str
) -> None:
    """Write the files that a script needs, with its replacements.

    Args:
        repository: A checkout with its history.
        target: The folder for the files. What it holds is removed.
        script: Which commit, which text is replaced, what is linked.
        made: The folder of data made up.

    Raises:
        subprocess.CalledProcessError: There is no such commit.
        ValueError: A text to be replaced is not there just once.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    git = ["git", "-C", str(repository)]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "--name-only", script.at or "HEAD"],
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        command = [*git, "show", f"{script.at or 'HEAD'}:{name}"]
        shown = subprocess.run(command, capture_output=True)
        if shown.returncode == 0:  # a shallow history lacks large files
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(shown.stdout)
    for name, source in script.linked.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(fill(source, {"made": made}))
    replace(target / script.folder / script.script, script.replaced)


def replace(path: Path, pairs: list[list[str]]) -> None:
    """Replace texts in a file, each of which must be there just once.

    Raises:
        ValueError: One is not, so that the script would be another.
    """
    if not pairs:
        return
    text = path.read_text()
    for old, new in pairs:
        if text.count(old) != 1:
            raise ValueError(
                "a text must be there just once "
                f"(file: {path.name}, text: {old!r}, found: {text.count(old)})"
            )
        text = text.replace(old, new)
    path.write_text(text)
