"""Build the site of the book, and the whole book on one page to print.

Usage: python scripts/build_site.py FOLDER

The folder holds `_config.yml`, `_toc.yml` and `book/`; the site is written to
`_build/html` there. A warning is a failure.
"""

import subprocess
import sys
from pathlib import Path

PAGES = Path(__file__).with_name("print_page.py")


def main() -> int:
    """Build by jupyter-book, which lies beside this Python."""
    folder = Path(sys.argv[1])
    tool = Path(sys.executable).with_name("jupyter-book")
    build = [tool, "build", folder, "-W", "-n", "--keep-going"]
    for command in (
        build,
        [*build, "--builder", "singlehtml"],
        [sys.executable, PAGES, folder / "_build"],
    ):
        status = subprocess.run(command).returncode
        if status != 0:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
