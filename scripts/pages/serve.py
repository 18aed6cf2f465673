"""Show a folder of pages at a port of this machine, until Ctrl-C.

Usage: python scripts/pages/serve.py _build/html 8000

`--try 8000` shows nothing: it tells whether the port could be had. Where it
could not, a line says so.
"""

import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

HOST = "localhost"


def server(folder: str, port: str) -> ThreadingHTTPServer:
    """Return a server of a folder that listens at a port.

    Raises:
        ValueError: the port cannot be had.
    """
    if not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"not a port (PORT: {port!r}); choose one: make serve PORT=8001"
        )
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    try:
        return ThreadingHTTPServer((HOST, int(port)), handler)
    except OSError as error:
        raise ValueError(
            f"the port cannot be had (port: {port}, why: {error.strerror}); "
            f"choose another: make serve PORT={int(port) % 65535 + 1}"
        ) from error


def main(arguments: list[str]) -> int:
    """Serve, or try; return the exit status."""
    folder, port = arguments
    try:
        with server(folder, port) as pages:
            if folder != "--try":
                address = f"http://{HOST}:{port}"
                print(f"the book is on {address}; Ctrl-C ends it", flush=True)
                pages.serve_forever()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
