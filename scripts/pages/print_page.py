"""Put each part of the book on one page to print, next to its other pages.

Such a page, `print-the-three-ways.html` for example, consists of the articles
of the built pages of a part, in the order of the contents, with solutions
unfolded, headings one level deeper, and every id unique. It uses the styles,
scripts and images of the site, so it is one more file and no more. The whole
book on one page would keep a browser busy for long.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from bs4 import BeautifulSoup, Tag

SCRIPTS = ("katex", "auto-render", "a11y")  # formulas, and wide boxes
FRAME = """<!DOCTYPE html>
<html lang="en" data-theme="light"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title></title></head>
<body class="print-page"><main class="bd-content"><article class="bd-article">
</article></main></body></html>
"""


def inside(href: str, page: str, ids: dict[tuple[str, str], str]) -> str:
    """Return where a link on a page of the folder `book/` leads from here.

    That is a place of this page, if it has the one that is meant.

    Args:
        href: The link, as it stands on the page.
        page: The name of that page.
        ids: For each page here, and each place on it, its id here.
    """
    target, _, anchor = href.partition("#")
    name = target.removesuffix(".html") if target else page
    if (name, anchor) in ids:
        return f"#{ids[name, anchor]}"
    is_beside = re.fullmatch(r"[\w-]+\.html", target)
    return f"book/{href}" if is_beside else href


def unfold(article: Tag) -> None:
    """Open what is folded, and remove what only a click could use."""
    for details in article.find_all("details"):
        details["open"] = ""
    for box in article.find_all(class_="dropdown"):
        names = box.get_attribute_list("class")
        box["class"] = [c for c in names if c not in ("dropdown", "toggle")]
    for part in article.select(
        "a.headerlink, a:has(> .viewcode-link), figure.live > script,"
        ".live-controls, .live-steps"
    ):
        part.decompose()


def contents(articles: dict[str, Tag], page: BeautifulSoup) -> Tag:
    """Return a list of links to the chapters and pages."""
    around = page.new_tag("nav", attrs={"aria-label": "Contents"})
    names = page.new_tag("ol", attrs={"class": "print-contents"})
    for name, article in articles.items():
        entry = page.new_tag("li")
        link = page.new_tag("a", href=f"#document-{name}")
        link.string = article.h1.get_text().strip()
        entry.append(link)
        names.append(entry)
    around.append(names)
    return around


def printable(title: str, pages: dict[str, str]) -> str:
    """Return the page to print for some built pages, by name and in order."""
    soups = {
        name: BeautifulSoup(html, "html.parser")
        for name, html in pages.items()
    }
    articles = {name: soup.article for name, soup in soups.items()}
    tags = [
        (n, tag) for n, a in articles.items() for tag in a.find_all(id=True)
    ]
    count = Counter(str(tag["id"]) for _, tag in tags)
    ids = {(name, ""): f"document-{name}" for name in pages}
    for name, tag in tags:
        old = str(tag["id"])
        tag["id"] = old if count[old] == 1 else f"{name}--{old}"
        ids[name, old] = str(tag["id"])
    page = BeautifulSoup(FRAME, "html.parser")
    for name, article in articles.items():
        unfold(article)
        for link in article.find_all("a", href=True):
            link["href"] = inside(str(link["href"]), name, ids)
    page.title.string = title
    sheets = {
        str(link["href"]): link
        for soup in soups.values()
        for link in soup.head.find_all("link", rel="stylesheet")
    }
    page.head.extend(sheets.values())
    scripts = {
        str(script["src"]): script
        for soup in soups.values()
        for script in soup.head.find_all("script", src=True)
        if any(name in str(script["src"]) for name in SCRIPTS)
    }
    page.head.extend(scripts.values())
    heading = page.new_tag("h1")
    heading.string = title
    page.article.extend([heading, contents(articles, page)])
    for name, article in articles.items():
        for heading in article.find_all(re.compile("^h[1-5]$")):
            heading.name = f"h{int(heading.name[1]) + 1}"
        anchor = page.new_tag("span", id=f"document-{name}")
        page.article.extend([anchor, *article.contents])
    # The pages lie in a folder of the site, and the page to print next to it.
    return str(page).replace('="../', '="')


def parts(contents: dict[str, Any]) -> dict[str, list[str]]:
    """Return the pages of each part; the first page belongs to the first.

    Args:
        contents: What `_toc.yml` says.
    """
    found = {
        part["caption"]: [
            Path(entry["file"]).name
            for chapter in part["chapters"]
            for entry in [chapter, *chapter.get("sections", [])]
        ]
        for part in contents["parts"]
    }
    next(iter(found.values())).insert(0, Path(contents["root"]).name)
    return found


def file_of(caption: str) -> str:
    """Return the name of the page to print of a part."""
    return f"print-{caption.lower().replace(' ', '-')}.html"


def write_pages(folder: Path) -> None:
    """Write the pages to print into the site that was built in a folder."""
    toc = yaml.safe_load((folder / "_toc.yml").read_text(encoding="utf-8"))
    site = folder / "_build" / "html"
    for caption, names in parts(toc).items():
        pages = {
            name: (site / "book" / f"{name}.html").read_text(encoding="utf-8")
            for name in names
        }
        target = site / file_of(caption)
        target.write_text(printable(caption, pages), encoding="utf-8")
        print(f"a part of the book on one page: {target}")
