"""Build the site of the book, with a page to print for each of its parts.

Usage: python scripts/pages/build_site.py FOLDER

The folder holds `_config.yml`, `_toc.yml` and `book/`; the site is written to
`_build/html` there. A warning is a failure.
"""

import gc
import subprocess
import sys
from pathlib import Path

from notebook_pictures import put_pictures
from pack_python import pack, put_into_site
from print_page import write_pages
from search_index import write_index
from slim_site import slim

# A third of the time would go to looking through documents for garbage, and
# seconds more to taking Python down.
JUPYTER_BOOK = """
import gc, os, sys
from jupyter_book.cli.main import main
gc.disable()
try:
    main()
except SystemExit as end:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(end.code or 0)
"""


def main() -> int:
    """Build by jupyter-book; add Python, pictures and the pages to print."""
    folder = Path(sys.argv[1])
    arguments = ["build", folder, "-W", "-n", "--keep-going"]
    status = subprocess.run(
        [sys.executable, "-P", "-c", JUPYTER_BOOK, *arguments]
    ).returncode
    if status == 0:
        site = folder / "_build" / "html"
        put_into_site(pack(), site)
        put_pictures(site)
        gc.disable()
        write_pages(folder)
        write_index(site)
        slim(site)
    return status


if __name__ == "__main__":
    sys.exit(main())
