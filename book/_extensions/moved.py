"""Lead from the old address of a section to the page where it stands now.

A browser sends no server the part of an address behind `#`. So a page that
lost sections has a short script with the new address of each, and goes there
if it is asked for one of them. A page that is gone is made again: it has links
to the pages that took its place, and the same script. `moved.toml` says which
sections went where.
"""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

MOVED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
FOLDER = "book/"
SCRIPT = """
const moved = %s;
function follow() {
  const id = decodeURIComponent(location.hash.slice(1));
  const address = Object.hasOwn(moved, id) ? moved[id] : "";
  if (address && !document.getElementById(id)) location.replace(address);
}
addEventListener("DOMContentLoaded", follow);
addEventListener("hashchange", follow);
"""


def in_this_build(app: Sphinx) -> dict[str, Any]:
    """Return the entries whose pages are built; tests build a few pages."""

    def is_built(entry: dict[str, Any]) -> bool:
        renamed = entry.get("renamed", {}).values()
        pages = {to.partition("#")[0] for to in (*entry["to"], *renamed)}
        return all(FOLDER + page in app.env.found_docs for page in pages)

    return {name: entry for name, entry in MOVED.items() if is_built(entry)}


def sections(app: Sphinx, page: str) -> set[str]:
    """Return what can stand behind `#` in an address of a page.

    A page that is not built has nothing.
    """
    if FOLDER + page not in app.env.found_docs:
        return set()
    doctree = app.env.get_doctree(FOLDER + page)
    return {name for node in doctree.findall() for name in ids_of(node)}


def ids_of(node: Any) -> list[str]:
    """Return the names of one part of a page; text has none."""
    return node["ids"] if hasattr(node, "attributes") else []


def address(target: str) -> str:
    """Return the address of a page, or of one of its sections."""
    page, _, section = target.partition("#")
    return f"{page}.html#{section}" if section else f"{page}.html"


def new_addresses(app: Sphinx, page: str) -> dict[str, str]:
    """Return where the sections that left a page stand: name -> address.

    A name that two of the new pages have, such as "summary", leads to the
    first of them.

    Raises:
        ValueError: The table names a page or a section that is not there.
    """
    renamed = MOVED[page].get("renamed", {})
    for target in renamed.values():
        to, _, section = target.partition("#")
        if section and section not in sections(app, to):
            raise ValueError(f"moved.toml: no such section (named: {target})")
    here = sections(app, page)
    found = {}
    for to in reversed(MOVED[page]["to"]):
        there = sections(app, to) - here
        found |= {name: f"{to}.html#{name}" for name in there}
    return found | {name: address(to) for name, to in renamed.items()}


def script(app: Sphinx, page: str) -> str:
    """Return the script that leads away from a page."""
    addresses = new_addresses(app, page)
    return SCRIPT % json.dumps(addresses, sort_keys=True)


def add_script(
    app: Sphinx,
    page: str,
    template: str,
    context: dict[str, Any],
    doctree: Any,
) -> None:
    """Add the script to a page that lost sections, or is gone."""
    name = page.removeprefix(FOLDER)
    if page.startswith(FOLDER) and name in in_this_build(app):
        app.add_js_file(None, body=script(app, name))


def gone_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each that is gone, with links to the new ones."""
    for name, entry in in_this_build(app).items():
        if "title" not in entry:
            continue
        links = "".join(
            f'<li><a href="{to}.html">{title_of(app, to)}</a></li>'
            for to in entry["to"]
        )
        body = (
            f"<section><h1>{entry['title']}</h1>"
            f"<p>What stood here stands on these pages:</p>"
            f"<ul>{links}</ul></section>"
        )
        context = {"title": entry["title"], "body": body}
        yield FOLDER + name, context, "page.html"


def title_of(app: Sphinx, page: str) -> str:
    """Return the title of a page."""
    return app.env.titles[FOLDER + page].astext()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("html-page-context", add_script)
    app.connect("html-collect-pages", gone_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
