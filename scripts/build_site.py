"""Build the site of the book, and the whole book on one page to print.

Usage: python scripts/build_site.py FOLDER

The folder holds `_config.yml`, `_toc.yml` and `book/`; the site is written to
`_build/html` there. A warning is a failure.
"""

import gc
import subprocess
import sys
from pathlib import Path

from print_page import write_page

# A third of the time would go to looking through documents for garbage, and
# seconds more to taking Python down, and to starting it for each builder.
JUPYTER_BOOK = """
import gc, os, sys, warnings
from jupyter_book.cli.main import main
gc.disable()
# sphinx-external-toc asks every object what it is, and torch warns of one.
warnings.simplefilter("ignore", FutureWarning)
status = 0
for builder in ("html", "singlehtml"):
    try:
        main(["build", *sys.argv[1:], "--builder", builder])
    except SystemExit as end:
        status = end.code or 0
    if status != 0:
        break
sys.stdout.flush()
sys.stderr.flush()
os._exit(status)
"""


def main() -> int:
    """Build by jupyter-book, then write the page to print."""
    folder = Path(sys.argv[1])
    words = [folder, "-W", "-n", "--keep-going"]
    status = subprocess.run(
        [sys.executable, "-P", "-c", JUPYTER_BOOK, *words]
    ).returncode
    if status != 0:
        return status
    gc.disable()
    write_page(folder / "_build")
    return 0


if __name__ == "__main__":
    sys.exit(main())
