"""Say at the foot of each page which version it is, and how to write to whom.

`CITATION.cff` says it, which the owner of the book fills (`make address`
asks). The date is that of the last commit. A copy of the book alone, as tests
make one, says nothing.
"""

import subprocess
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config

CITATION = "CITATION.cff"


def last_commit(folder: Path) -> date | None:
    """Return the day of the last commit, in a repository of git."""
    command = ["git", "-C", folder, "log", "-1", "--format=%cs"]
    try:
        run = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    day = run.stdout.strip()
    return date.fromisoformat(day) if day else None


def version(cited: dict[str, Any], day: date | None) -> str:
    """Return the version, with the day if it is known."""
    when = f", {day.day} {day:%B %Y}" if day else ""
    return f"Version {cited['version']}{when}."


def contacts(cited: dict[str, Any]) -> str:
    """Return a sentence with a link for each to whom readers can write."""
    sentences = []
    for entry in cited.get("contact", []):
        email = entry.get("email")
        address = f"mailto:{email}" if email else entry["website"]
        words = f"Write to {entry['name']}"
        link = f'<a href="{escape(address)}">{escape(words)}</a>.'
        sentences.append(link)
    return " ".join(sentences)


def add_imprint(app: Sphinx, config: Config) -> None:
    """Put version, day and contacts into the foot of each page."""
    file = Path(app.confdir, CITATION)
    if not file.exists():
        return
    cited = yaml.safe_load(file.read_text("utf-8"))
    said = [version(cited, last_commit(file.parent)), contacts(cited)]
    paragraphs = "".join(f"<p>{words}</p>" for words in said if words)
    config.html_theme_options["extra_footer"] = paragraphs


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("config-inited", add_imprint)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
