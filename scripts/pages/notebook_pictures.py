"""Put pictures that every viewer shows into the plain notebooks of the site.

GitHub and Colab, or JupyterLab before a notebook is trusted, do not show SVG,
or take it out of HTML. So each SVG gets a PNG as well, and HTML that has an
SVG becomes a PNG. The browser of `make check` draws them. Where there is none,
the SVG stays, and the link in the line below a figure leads to its page.

The pictures are kept in `_build/pictures`, each under the hash of what it was
drawn from.
"""

import base64
import hashlib
import json
import re
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock

ROOT = Path(__file__).resolve().parent.parent.parent
CHECKS = ROOT / "scripts" / "check"
DRAWN = ROOT / "_build" / "pictures"
PIXELS = 2  # of a picture for one of the screen: scripts/check/draw.mjs
NAMED = re.compile(r'aria-label="([^"]*)"')


def source(output: dict[str, Any]) -> str:
    """Return the SVG of an output, or its HTML around an SVG, or ""."""
    data = output.get("data", {})
    html = "".join(data.get("text/html", ""))
    svg = "".join(data.get("image/svg+xml", ""))
    return svg or (html if "<svg" in html else "")


def outputs(notebook: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each output with a picture, after the words that describe it."""
    for cell in notebook["cells"]:
        image = cell["metadata"].get("mystnb", {}).get("image", {})
        for output in cell.get("outputs", []):
            if drawn := source(output):
                names = NAMED.findall(drawn)
                yield image.get("alt", " ".join(names)), output


def draw(sources: set[str]) -> tuple[dict[str, bytes], str]:
    """Return the PNG of each picture, or why there are none."""
    DRAWN.mkdir(parents=True, exist_ok=True)
    names = {s: hashlib.sha256(s.encode()).hexdigest() for s in sources}
    files = {s: DRAWN / f"{name}.png" for s, name in names.items()}
    with FileLock(DRAWN.with_suffix(".lock")):
        for text, file in files.items():
            if not file.exists():
                file.with_suffix(".html").write_text(text, encoding="utf-8")
        why = "" if all(f.exists() for f in files.values()) else run_browser()
    if why:
        return {}, why
    return {text: file.read_bytes() for text, file in files.items()}, ""


def run_browser() -> str:
    """Draw what waits in the folder; return why that was not possible."""
    if not (CHECKS / "node_modules").exists():
        return "make check has not installed its tools"
    try:
        done = subprocess.run(
            ["node", CHECKS / "draw.mjs", DRAWN],
            capture_output=True,
            text=True,
        )
    except FileNotFoundError:
        return "there is no node"
    lines = done.stderr.strip().splitlines() or ["no message"]
    return f"drawing failed: {lines[-1]}" if done.returncode else ""


def add_png(output: dict[str, Any], png: bytes, alt: str) -> None:
    """Put a PNG into an output, with its size on the screen and its words."""
    # Width and height stand in the first chunk of every PNG.
    width, height = struct.unpack(">II", png[16:24])
    output["data"]["image/png"] = base64.b64encode(png).decode()
    output["metadata"]["image/png"] = {
        "alt": alt,
        "height": height // PIXELS,
        "width": width // PIXELS,
    }


def put_pictures(site: Path) -> None:
    """Put pictures into the notebooks of a built site, in place of HTML."""
    paths = sorted(site.glob("_sources/**/*.ipynb"))
    notebooks = {p: json.loads(p.read_text(encoding="utf-8")) for p in paths}
    found = [each for n in notebooks.values() for each in outputs(n)]
    pictures, why = draw({source(output) for _, output in found})
    if why:
        print(f"plain notebooks go without PNG ({why})")
    for alt, output in found:
        drawn = source(output)
        if drawn in pictures:
            add_png(output, pictures[drawn], alt)
        # A viewer would prefer it, and take the picture out.
        output["data"].pop("text/html", None)
    for path, notebook in notebooks.items():
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        path.write_text(f"{text}\n", encoding="utf-8")
