"""Commit the plain notebooks to a branch for Colab and Binder.

Usage: python scripts/owner/notebooks_branch.py ROOT BRANCH

The branch holds what HEAD holds, with the plain notebooks of the built site in
place of the chapters. It is always one commit after HEAD, so that old pictures
do not add up. Files and the branch that is checked out stay as they are.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MESSAGE = "The plain notebooks of {commit}\n"
NEXT = """\
{count} plain notebooks are on the branch {branch}. To publish them:
  git push --force origin {branch}
Then set notebooks_branch to "{branch}" in _config.yml, once."""


def git(root: Path, *arguments: str, index: Path | None = None) -> str:
    """Run git in a clone, with an index other than its own if one is given.

    Raises:
        subprocess.CalledProcessError: git has failed, and said why.
    """
    own = {"GIT_INDEX_FILE": str(index)} if index else {}
    done = subprocess.run(
        ["git", *arguments],
        cwd=root,
        env=os.environ | own,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def refuse_changes(root: Path, why: str) -> None:
    """Refuse to go on where something is not committed.

    Args:
        root: The clone.
        why: A sentence, for the message.

    Raises:
        ValueError: There are changes; the message has the first of them.
    """
    changed = git(root, "status", "--porcelain", "--untracked-files=no")
    if changed:
        raise ValueError(
            f"there are changes without a commit ({changed.splitlines()[0]})\n"
            f"{why} Commit first."
        )


def refuse_lone_svg(notebooks: list[Path]) -> None:
    """Refuse to go on where a picture is SVG alone.

    Raises:
        ValueError: There are such pictures; the message counts them.
    """
    alone = [
        path.name
        for path in notebooks
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        for output in cell.get("outputs", [])
        if "image/svg+xml" in output.get("data", {})
        if "image/png" not in output["data"]
    ]
    if alone:
        raise ValueError(
            "there are pictures without PNG, and GitHub and Colab may not "
            f"show others (pictures: {len(alone)}, the first in {alone[0]})\n"
            "A browser draws them: run make check once, which installs what "
            "it needs, and then make notebooks-branch again."
        )


def commit(root: Path, branch: str) -> int:
    """Commit the notebooks; return how many there are.

    Raises:
        ValueError: Something is not committed, no site is built, or its
            notebooks have no PNG.
    """
    refuse_changes(root, "The notebooks name the commit that they install.")
    plain = sorted(root.glob("_build/html/_sources/book/*.ipynb"))
    if not plain:
        raise ValueError("there is no built site; first: make book")
    refuse_lone_svg(plain)
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder, "index")
        git(root, "read-tree", "HEAD", index=index)
        for path in plain:
            blob = git(root, "hash-object", "-w", str(path))
            entry = f"100644,{blob},book/{path.name}"
            git(root, "update-index", "--cacheinfo", entry, index=index)
        tree = git(root, "write-tree", index=index)
    head = git(root, "rev-parse", "HEAD")
    message = MESSAGE.format(commit=head)
    new = git(root, "commit-tree", tree, "-p", head, "-m", message)
    git(root, "branch", "--force", branch, new)
    return len(plain)


def main() -> int:
    """Write the branch; print what to do next."""
    root, branch = Path(sys.argv[1]), sys.argv[2]
    try:
        count = commit(root, branch)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(NEXT.format(count=count, branch=branch))
    return 0


if __name__ == "__main__":
    sys.exit(main())
