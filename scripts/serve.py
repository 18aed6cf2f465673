"""Serve the built book, as readers see it.

Usage: python scripts/serve.py FOLDER PORT
"""

import sys
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

HOST, PORTS = "localhost", range(1, 2**16)


def main(folder: str, port: str) -> int:
    """Serve a folder until Ctrl-C; say in one line why that cannot be."""
    if not port.isdecimal() or int(port) not in PORTS:
        print(f"not a port from 1 to 65535 (PORT: {port!r})", file=sys.stderr)
        return 2
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    try:
        server = ThreadingHTTPServer((HOST, int(port)), handler)
    except OSError as error:
        print(
            f"cannot serve the book (port: {port}, why: {error.strerror}); "
            "name another port by PORT=…",
            file=sys.stderr,
        )
        return 1
    print(f"the book is on http://{HOST}:{port}; Ctrl-C ends it", flush=True)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
